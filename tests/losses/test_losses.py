"""What every loss of doap promises, and each one's own value."""

import pytest
import torch
from torch.nn.functional import normalize

from doap.errors import ArgumentError, ShapeError
from doap.functional.listwise import listwise_average_precision
from doap.losses import LOSSES, HardestTriplet, ListwiseAP
from doap.types import Relation
from oracles.listwise import dense_listwise, looped_triplet

EACH = pytest.mark.parametrize(
    "loss",
    [make(distance=distance) for make in LOSSES.values() for distance in ("euclidean", "squared", "hamming")],
    ids=lambda loss: f"{type(loss).__name__}-{loss.distance}",
)


def outputs(size=24, dim=16, seed=0, dtype=torch.float32):
    return torch.randn(size, dim, dtype=dtype, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def gradient(value, x):
    return torch.autograd.grad(value, x)[0]


def test_listwise_is_one_minus_the_mean_of_the_dense_oracle():
    x, groups = outputs(), torch.arange(24) // 3
    value, number = dense_listwise(normalize(x.double()), Relation(groups), "euclidean", 25)
    assert ListwiseAP()(x, groups).item() == pytest.approx(1 - value.item() / number, abs=1e-6)


def test_binary_listwise_relaxes_signs_by_tanh():
    x, groups = outputs(), torch.arange(24) // 3
    value, number = dense_listwise(x.double().tanh(), Relation(groups), "hamming", 16)
    assert ListwiseAP("hamming")(x, groups).item() == pytest.approx(1 - value.item() / number, abs=1e-6)


def test_steeper_tanh_ranks_by_tanh_of_the_multiple():
    x, groups = outputs(), torch.arange(24) // 3
    assert ListwiseAP("hamming", slope=3.0)(x, groups) == ListwiseAP("hamming")(3 * x, groups)


def test_signs_are_ranked_as_shipped_bits_and_their_gradient_is_that_of_tanh():
    x, groups = outputs(), torch.arange(24) // 3
    value, number = dense_listwise(torch.where(x > 0, 1.0, -1.0).double(), Relation(groups), "hamming", 16)
    loss = ListwiseAP("hamming", signs=True)
    assert loss(x, groups).item() == pytest.approx(1 - value.item() / number, abs=1e-6)
    code = torch.where(x > 0, 1.0, -1.0).detach().requires_grad_()
    total, asked = listwise_average_precision(code, code, Relation(groups), distance="hamming")
    straight = gradient((asked - total) / asked, code) * (1 - x.tanh().square())
    torch.testing.assert_close(gradient(loss(x, groups), x), straight)


def test_triplet_equals_the_loop():
    x = outputs()
    generator = torch.Generator().manual_seed(5)
    relation = Relation(
        torch.randint(0, 9, (24,), generator=generator), torch.randint(0, 9, (8, 2), generator=generator)
    )
    for chunk in (5, 256):
        value = HardestTriplet(chunk=chunk)(x, relation).item()
        assert value == pytest.approx(looped_triplet(normalize(x.detach()), relation, 1.0), abs=1e-5)


def test_triplet_gradient_passes_gradcheck():
    relation = Relation(torch.tensor([0, 0, 1, 1, 1, 2, 3]))
    assert torch.autograd.gradcheck(lambda x: HardestTriplet()(x, relation), outputs(7, 4, dtype=torch.float64))


@EACH
def test_descending_the_gradient_lowers_the_loss(loss):
    x, groups = outputs(), torch.arange(24) // 3
    before = loss(x, groups)
    slope = gradient(before, x)
    assert loss(x - 0.05 * slope / slope.norm(), groups) < before


@EACH
def test_scale_of_the_loss_is_the_scale_of_the_gradient(loss):
    x, groups = outputs(), torch.arange(24) // 3
    torch.testing.assert_close(gradient(3 * loss(x, groups), x), 3 * gradient(loss(x, groups), x))


@EACH
def test_groups_of_any_size_and_order_are_taken_and_lonely_queries_counted(loss):
    groups = torch.tensor([4, 9, 4, -1, 4, 7, 7, 100] + [55] * 16)
    value = loss(outputs(), groups)
    assert value.isfinite()
    assert int(loss.skipped) == 3


@EACH
@pytest.mark.parametrize("size", [0, 1, 5])
def test_list_without_any_match_costs_nothing_and_keeps_the_graph(loss, size):
    x = outputs(size)
    value = loss(x, torch.arange(size))
    value.backward()
    assert value.item() == 0
    assert x.grad.abs().sum() == 0
    assert int(loss.skipped) == size


@EACH
def test_query_whose_distractors_are_all_ignored_is_harmless(loss):
    groups = torch.tensor([0, 0, 1, 1])
    everything = Relation(groups, None, torch.zeros(4, dtype=torch.long), torch.ones(1, 1, dtype=torch.bool))
    x = outputs(4)
    value = loss(x, everything)
    value.backward()
    # Nothing to be confused with: AP is 1 up to how far apart the positives' bins are, and a triplet has no third.
    assert value.item() == pytest.approx(0, abs=1e-6)
    assert x.grad.isfinite().all()


@EACH
def test_equal_descriptors_give_a_finite_gradient(loss):
    x = outputs(1).detach().repeat(12, 1).requires_grad_()
    value = loss(x, torch.arange(12) // 2)
    value.backward()
    assert value.item() > 0
    assert x.grad.isfinite().all()


@EACH
def test_autocast_computes_distances_in_float32(loss):
    x, groups = outputs(), torch.arange(24) // 3
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = loss(x, groups)
    assert inside.dtype == torch.float32
    torch.testing.assert_close(inside, loss(x, groups))
    half = x.detach().bfloat16().requires_grad_()
    loss(half, groups).backward()
    assert half.grad.dtype == torch.bfloat16


@EACH
def test_evaluation_without_gradient_gives_the_same_value(loss):
    x, groups = outputs(), torch.arange(24) // 3
    with torch.no_grad():
        value = loss(x, groups)
    torch.testing.assert_close(value, loss(x, groups).detach())


@EACH
def test_wrong_input_is_named(loss):
    with pytest.raises(ShapeError, match=r"descriptors: expected \(M, D\), got \(3,\)"):
        loss(torch.zeros(3), torch.zeros(3, dtype=torch.long))
    with pytest.raises(ArgumentError, match="groups: expected one for each of 3 descriptors, got 2"):
        loss(torch.zeros(3, 4), torch.zeros(2, dtype=torch.long))
    with pytest.raises(ArgumentError, match=r"groups: expected integers, got torch.float32"):
        loss(torch.zeros(3, 4), torch.zeros(3))
