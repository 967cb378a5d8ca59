"""The contract of every registered loss, and the value of each."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from doap._support.errors import ArgumentError, ShapeError
from doap.loss import LOSSES, HardestTriplet, ListwiseAP, second_order_difference
from doap.loss.gathered_batch import GatheredBatch, relax
from doap.loss.kernel import listwise_average_precision
from doap.types import Relation
from oracles.listwise import defined_ap, looped_triplet

EACH = pytest.mark.parametrize(
    "loss",
    [make(distance=distance) for make in LOSSES.values() for distance in ("euclidean", "squared", "hamming")],
    ids=lambda loss: f"{type(loss).__name__}-{loss.settings.distance}",
)


def outputs(size=24, dim=16, seed=0, dtype=torch.float32):
    return torch.randn(size, dim, dtype=dtype, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def gradient(value, x):
    return torch.autograd.grad(value, x)[0]


def test_listwise_is_one_minus_the_mean_of_the_definition():
    x, groups = outputs(), torch.arange(24) // 3
    value, number = defined_ap(normalize(x.double()), Relation(groups), "euclidean", 25)
    assert ListwiseAP.paper()(x, groups).item() == pytest.approx(1 - value.item() / number, abs=1e-6)


def test_default_is_squared_distance_with_eight_bins():
    x, groups = outputs(), torch.arange(24) // 3
    value, number = defined_ap(normalize(x.double()), Relation(groups), "squared", 8)
    assert ListwiseAP()(x, groups).item() == pytest.approx(1 - value.item() / number, abs=1e-6)


def test_binary_listwise_relaxes_signs_by_tanh():
    x, groups = outputs(), torch.arange(24) // 3
    value, number = defined_ap(x.double().tanh(), Relation(groups), "hamming", 16)
    assert ListwiseAP("hamming")(x, groups).item() == pytest.approx(1 - value.item() / number, abs=1e-6)


def test_straight_through_ranks_deployed_bits_with_the_gradient_of_tanh():
    x, groups = outputs(), torch.arange(24) // 3
    value, number = defined_ap(torch.where(x > 0, 1.0, -1.0).double(), Relation(groups), "hamming", 16)
    loss = ListwiseAP("hamming", straight_through=True)
    assert loss(x, groups).item() == pytest.approx(1 - value.item() / number, abs=1e-6)
    code = torch.where(x > 0, 1.0, -1.0).detach().requires_grad_()
    batch = GatheredBatch(code, code, Relation(groups))
    total, asked = listwise_average_precision(batch, distance="hamming", bins=16)
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
def test_groups_of_any_size_and_order_work_and_queries_without_match_are_counted(loss):
    groups = torch.tensor([4, 9, 4, -1, 4, 7, 7, 100] + [55] * 16)
    value = loss(outputs(), groups)
    assert value.isfinite()
    assert int(loss.skipped) == 3


@EACH
@pytest.mark.parametrize("size", [0, 1, 5])
def test_batch_without_any_match_has_loss_zero_and_gradient_zero(loss, size):
    x = outputs(size)
    value = loss(x, torch.arange(size))
    value.backward()
    assert value.item() == 0
    assert x.grad.abs().sum() == 0
    assert int(loss.skipped) == size


@EACH
def test_query_whose_distractors_are_all_ignored_has_loss_zero(loss):
    groups = torch.tensor([0, 0, 1, 1])
    everything = Relation(groups, None, torch.zeros(4, dtype=torch.long), torch.ones(1, 1, dtype=torch.bool))
    x = outputs(4)
    value = loss(x, everything)
    value.backward()
    # Without distractors AP is 1 up to the binning of the positives, and there is no triplet.
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


@pytest.mark.gpu
@EACH
def test_gpu_equals_cpu(loss, cuda):
    x, groups = outputs(dtype=torch.float64), torch.arange(24) // 3
    on_gpu = x.detach().to(cuda).requires_grad_()
    value, expected = loss(on_gpu, groups), loss(x, groups)
    assert value.device.type == "cuda"
    torch.testing.assert_close(value.cpu(), expected)
    torch.testing.assert_close(gradient(value, on_gpu).cpu(), gradient(expected, x))


@EACH
def test_wrong_input_is_an_error(loss):
    some, good = torch.zeros(3, 4), [0, 0, 1]
    with pytest.raises(ShapeError):
        loss(torch.zeros(3), good)
    groups = ([0, 1], torch.zeros(3), ["a", "b", "c"], None, object())
    for arguments in (*((some, wrong) for wrong in groups), (None, good), (object(), good), (some, good, (some,) * 3)):
        with pytest.raises(ArgumentError):
            loss(*arguments)


@EACH
def test_arrays_lists_and_indices_of_none_are_accepted(loss):
    x, groups = outputs(), torch.arange(24) // 3
    expected = loss(x, groups)
    assert loss(x, groups.tolist()) == loss(x, groups.numpy().astype(np.int32)) == expected
    assert loss(x, groups, None) == loss(x, groups, indices_tuple=None) == expected
    assert loss(x.detach().numpy(), groups) == loss(x.tolist(), groups) == expected


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        *((make, settings) for make in LOSSES.values() for settings in ({"distance": "cosine"}, {"chunk": 0})),
        *((HardestTriplet, {"margin": margin}) for margin in (math.nan, math.inf, 0.0, -1.0)),
        *(
            (ListwiseAP, settings)
            for settings in ({"bins": 0}, {"form": "exact"}, {"margin": -1.0}, {"margin": math.nan})
        ),
    ],
)
def test_wrong_settings_are_rejected_at_construction(make, settings):
    with pytest.raises(ArgumentError):
        make(**settings)


def looped_second_order(first, second):
    """The second-order term of SOSNet, point by point."""
    costs = []
    tables = [torch.cdist(view, view, compute_mode="donot_use_mm_for_euclid_dist") for view in (first, second)]
    for point in range(len(first)):
        near = set()
        for table in tables:
            others = [other for other in range(len(first)) if other != point]
            near |= set(sorted(others, key=lambda other: table[point, other].item())[:8])
        costs.append(sum((tables[0][point, other] - tables[1][point, other]) ** 2 for other in near) ** 0.5)
    return sum(costs) / len(costs)


def test_the_second_order_term_equals_a_loop():
    generator = torch.Generator().manual_seed(0)
    raw = torch.randn(40, 12, dtype=torch.float64, generator=generator).requires_grad_()
    groups = torch.arange(20).repeat(2)
    unit = normalize(raw)
    expected = looped_second_order(unit[:20], unit[20:])
    difference = second_order_difference(raw, groups)
    torch.testing.assert_close(difference, expected)
    gradients = [torch.autograd.grad(value, raw, retain_graph=True)[0] for value in (difference, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("points", [1, 2, 5])
def test_the_second_order_term_of_few_points_compares_each_with_all_others(points):
    raw = torch.randn(2 * points, 12, generator=torch.Generator().manual_seed(0))
    groups = torch.arange(points).repeat(2)
    tables = [(12 - view @ view.T) / 2 for view in raw.tanh().split(points)]
    apart = (tables[0] - tables[1]).fill_diagonal_(0).square().sum(1).sqrt().mean()
    torch.testing.assert_close(second_order_difference(raw, groups, "binary"), apart)


def test_the_second_order_term_compares_the_first_two_patches_of_each_group():
    """Groups may have other patches, and any order; a patch without a match is in no pair."""
    raw = torch.randn(12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    groups = torch.tensor([2, 0, 0, 5, 1, 0, 2, 1, 1, 2, 0, 2])
    unit = normalize(raw)
    expected = looped_second_order(unit[[1, 4, 0]], unit[[2, 7, 6]])
    torch.testing.assert_close(second_order_difference(raw, groups), expected)


@pytest.mark.parametrize("distance", ["squared", "euclidean", "hamming"])
def test_a_second_derivative_of_listwise_ap_is_refused(distance):
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
    with pytest.raises(ArgumentError):
        torch.autograd.grad(ListwiseAP(distance)(x, torch.arange(6) // 2), x, create_graph=True)


@pytest.mark.parametrize("length", [0.0, 1e-20])
@pytest.mark.parametrize("loss", [ListwiseAP("squared"), ListwiseAP("euclidean"), HardestTriplet()])
def test_a_descriptor_without_a_direction_has_no_gradient(loss, length):
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
    x[3] *= length
    x.requires_grad_()
    loss(x, torch.arange(8) // 2).backward()
    assert x.grad is not None
    assert not x.grad[3].any()
    assert 0 < x.grad.abs().max() < 10


def test_a_zero_activation_is_ranked_as_the_bit_0():
    relaxed = relax(torch.tensor([[0.0, -0.0, 1e-30, -1e-30]]), "hamming", straight_through=True)
    assert relaxed.tolist() == [[-1, -1, 1, -1]]
