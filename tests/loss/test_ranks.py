"""A batch that spans two processes has the loss and gradient of one process."""

from pathlib import Path

import pytest
import torch

from doap.loss import LOSSES
from doap.types import Relation
from oracles.ranks import run_two_ranks

# Starting two processes takes seconds.
pytestmark = pytest.mark.slow
SIZE, CUT = 50, 31  # ragged on purpose: one rank has more of the batch than the other


@pytest.fixture(scope="module")
def problem():
    generator = torch.Generator().manual_seed(0)
    table = torch.rand(3, 3, generator=generator) < 0.3
    return {
        "cut": CUT,
        "inputs": torch.randn(SIZE, 12, generator=generator),
        "weight": torch.randn(8, 12, generator=generator),
        "groups": torch.randint(0, 15, (SIZE,), generator=generator),
        "clusters": torch.randint(0, 3, (SIZE,), generator=generator),
        "table": table | table.T,
        # A pair named by one rank holds for the items of all ranks. The second rank names none.
        "pairs": [torch.randint(0, 15, (9, 2), generator=generator), None],
    }


@pytest.fixture(scope="module")
def two_ranks(problem, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    torch.save(problem, folder / "problem.pt")
    code = Path(__file__).with_name("two_ranks.py").read_text(encoding="utf-8")
    run_two_ranks(code, folder / "problem.pt", folder / "out")
    return [torch.load(folder / f"out.{rank}", weights_only=True) for rank in (0, 1)]


@pytest.mark.parametrize("distance", ["euclidean", "hamming"])
@pytest.mark.parametrize("name", LOSSES)
def test_one_rank_equals_two_ranks(problem, two_ranks, name, distance):
    network = torch.nn.Linear(12, 8, bias=False)
    with torch.no_grad():
        network.weight.copy_(problem["weight"])
    relation = Relation(problem["groups"], problem["pairs"][0], problem["clusters"], problem["table"])
    value = LOSSES[name](distance=distance)(network(problem["inputs"]), relation)
    value.backward()
    for rank in two_ranks:
        torch.testing.assert_close(rank[f"{name} {distance}"]["value"], value.detach(), rtol=0, atol=1e-6)
        torch.testing.assert_close(rank[f"{name} {distance}"]["gradient"], network.weight.grad, rtol=0, atol=1e-6)
