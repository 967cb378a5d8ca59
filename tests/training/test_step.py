"""Micro-batches and ranks have the gradient of the whole batch; a teacher adds the difference of similarities."""

from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

from doap.descriptor import Descriptor
from doap.loss import ListwiseAP
from doap.training.step import full_step, micro_batch_step, seed_step, similarity_difference
from doap.types import Relation
from oracles.ranks import run_two_ranks

FLOAT = torch.float32


def problem(mode):
    torch.manual_seed(0)
    descriptor = Descriptor.build(dim=16, dropout=0.3)
    descriptor.train(mode)
    return descriptor, torch.rand(24, 1, 32, 32), Relation(torch.arange(24) // 3)


def gradients(descriptor):
    return torch.cat([parameter.grad.flatten() for parameter in descriptor.parameters()])


def test_micro_batches_have_the_gradient_of_the_whole_batch():
    # Evaluation mode, because batch normalisation uses the statistics of each micro-batch.
    descriptor, patches, relation = problem(mode=False)
    value = full_step(descriptor, ListwiseAP(), patches, relation, FLOAT)
    whole = gradients(descriptor)
    descriptor.zero_grad()
    same = micro_batch_step(descriptor, ListwiseAP(), patches, relation, FLOAT, micro_batch=7, seed=0)
    torch.testing.assert_close(same, value)
    torch.testing.assert_close(gradients(descriptor), whole, rtol=1e-4, atol=1e-6)


def test_one_micro_batch_in_training_mode_equals_the_full_step():
    descriptor, patches, relation = problem(mode=True)
    seed = seed_step(0, 5)
    full_step(descriptor, ListwiseAP(), patches, relation, FLOAT)
    whole, statistics = gradients(descriptor), [buffer.clone() for buffer in descriptor.buffers()]
    descriptor, patches, relation = problem(mode=True)
    seed_step(0, 5)
    micro_batch_step(descriptor, ListwiseAP(), patches, relation, FLOAT, micro_batch=24, seed=seed)
    torch.testing.assert_close(gradients(descriptor), whole, rtol=1e-4, atol=1e-6)
    moving = [one for one in statistics if one.is_floating_point()]
    again = [one for one in descriptor.buffers() if one.is_floating_point()]
    for one, other in zip(moving, again, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", ["real", "binary"])
def test_the_difference_from_a_teacher_is_the_mean_over_all_pairs(kind):
    generator = torch.Generator().manual_seed(0)
    outputs, taught = torch.randn(5, 8, generator=generator), normalize(torch.randn(5, 3, generator=generator))
    rows = outputs.tanh() / 8**0.5 if kind == "binary" else normalize(outputs)
    expected = sum((rows[i] @ rows[j] - taught[i] @ taught[j]) ** 2 for i in range(5) for j in range(5)) / 25
    torch.testing.assert_close(similarity_difference(outputs, taught, kind), expected)
    rotation, _ = torch.linalg.qr(torch.randn(3, 3, generator=generator))
    assert similarity_difference(3 * taught @ rotation, taught) < 1e-10


RANK = """
import sys
import torch
from doap.descriptor import Descriptor
from doap.loss import ListwiseAP
from doap.training.distributed import joined
from doap.training.step import micro_batch_step, full_step
from doap.types import Relation

def gradient(ranks, micro_batch):
    torch.manual_seed(0)
    descriptor = Descriptor.build(dim=16).eval()
    patches, groups = torch.rand(24, 1, 32, 32), torch.arange(24) // 3
    own = slice(0, 15) if ranks.first else slice(15, 24)
    network, loss = ranks.share(descriptor), ListwiseAP(across_ranks=True)
    arguments = (network, loss, patches[own], Relation(groups[own]), torch.float32)
    full_step(*arguments) if micro_batch is None else micro_batch_step(*arguments, micro_batch, 0)
    return torch.cat([p.grad.flatten() for p in descriptor.parameters()])

with joined() as ranks:
    for name, micro_batch in (("whole", None), ("parts", 4)):
        torch.save(gradient(ranks, micro_batch), f"{sys.argv[1]}/{name}{ranks.rank}.pt")
"""


def test_two_ranks_have_the_gradient_of_one(tmp_path):
    run_two_ranks(RANK, tmp_path)
    torch.manual_seed(0)
    descriptor = Descriptor.build(dim=16).eval()
    patches, groups = torch.rand(24, 1, 32, 32), torch.arange(24) // 3
    full_step(descriptor, ListwiseAP(), patches, Relation(groups), FLOAT)
    for name in ("whole0", "whole1", "parts0", "parts1"):
        got = torch.load(Path(tmp_path) / f"{name}.pt", weights_only=True)
        torch.testing.assert_close(got, gradients(descriptor), rtol=0, atol=1e-5)
