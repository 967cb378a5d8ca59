"""Checkpoints with other contents are refused."""

import pytest
import torch

from doap._support.errors import DataError
from doap.training.checkpoint import RunProgress, load_state
from oracles.file_samples import RECIPE, checkpoint_parts, write_checkpoint


@pytest.fixture
def path(tmp_path):
    write_checkpoint(tmp_path)
    return tmp_path / "state.pt"


def test_a_checkpoint_restores_the_progress(path):
    assert load_state(path, RECIPE, checkpoint_parts()) == RunProgress(5, 1.5, 0.5, 3)


@pytest.mark.parametrize(
    "change",
    [
        {"recipe": None},
        {"recipe": []},
        {"progress": {"step": "many"}},
        {"progress": {"step": -1}},
        {"progress": {"steps": 1}},
        {"progress": {"seconds": float("nan")}},
        {"progress": 3},
        {"network": {}},
        {"network": 5},
        {"network": {"weight": torch.zeros(7), "bias": torch.zeros(2)}},
        {"network": {"weight": "text", "bias": torch.zeros(2)}},
        {"optimiser": {}},
        {"optimiser": []},
        {"optimiser": {"state": {}, "param_groups": [{"params": [0, 1, 2]}]}},
    ],
)
def test_a_checkpoint_with_other_contents_is_refused(path, change):
    torch.save(torch.load(path, weights_only=True) | change, path)
    with pytest.raises(DataError):
        load_state(path, RECIPE, checkpoint_parts())


def test_a_checkpoint_without_a_part_is_refused(path):
    with pytest.raises(DataError):
        load_state(path, RECIPE, checkpoint_parts() | {"loss": torch.nn.Linear(1, 1)})


@pytest.mark.parametrize("content", [[], 3, None, "text", {}, torch.zeros(2)])
def test_a_file_that_is_no_checkpoint_is_refused(path, content):
    torch.save(content, path)
    with pytest.raises(DataError):
        load_state(path, RECIPE, checkpoint_parts())
