"""The one-pass listwise AP: equality with the definition, invariances and edge cases."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from doap.loss import HardestTriplet, ListwiseAP
from doap.loss.gathered_batch import GatheredBatch, relax
from doap.loss.kernel import listwise_average_precision
from doap.types import Relation
from oracles.listwise import defined_ap

CASES = [(distance, form) for distance in ("euclidean", "squared", "hamming") for form in ("simplified", "fastap")]


def paper_ap(queries, gallery, relation, *, first=0, **options):
    """Return the sum of AP with the settings of the paper, or others, and the number of queries."""
    options = {"distance": "euclidean", "bins": 25, **options}
    return listwise_average_precision(GatheredBatch(queries, gallery, relation, first), **options)


def descriptors(size, dim, distance, seed, dtype=torch.float32):
    raw = torch.randn(size, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (raw.tanh() if distance == "hamming" else normalize(raw)).to(dtype)


def ragged_relation(size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randint(0, size // 3, (size,), generator=generator)
    pairs = torch.randint(0, size // 3, (size // 2, 2), generator=generator)
    table = torch.rand(4, 4, generator=generator) < 0.3
    return Relation(groups, pairs, torch.randint(0, 4, (size,), generator=generator), table | table.T)


def outputs(kind, distance, size, generator):
    """Outputs (size, 16) of a network, float64; all but the random ones have many equal distances."""
    if kind == "random":
        return torch.randn(size, 16, dtype=torch.float64, generator=generator)
    if kind == "duplicates":
        few = torch.randn(3, 16, dtype=torch.float64, generator=generator)
        return few[torch.randint(0, 3, (size,), generator=generator)]
    # Codes of 16 bits; the distances of the shorter ones are bin centres of 8 bins.
    codes = torch.randint(0, 2, (size, 16), generator=generator).double() * 2 - 1
    return codes if distance == "hamming" else codes[:, :4]


@given(
    case=st.sampled_from(CASES),
    kind=st.sampled_from(["random", "duplicates", "codes"]),
    size=st.integers(3, 40),
    bins=st.sampled_from([1, 8, 25]),
    margin=st.sampled_from([0.0, 0.3, 1.0]),
    straight_through=st.booleans(),
    chunk=st.sampled_from([None, 7]),
    seed=st.integers(0, 2**31),
)
def test_value_and_gradient_equal_the_definition(case, kind, size, bins, margin, straight_through, chunk, seed):
    """Groups of any size, pairs ignored by groups and by clusters, ties, and queries without a match."""
    (distance, form), relation = case, ragged_relation(size, seed)
    raw = outputs(kind, distance, size, torch.Generator().manual_seed(seed)).requires_grad_()
    # One bin per bit for integer distances.
    if distance == "hamming" and straight_through:
        bins = 16
    options = {"bins": bins, "form": form, "margin": margin}
    loss = ListwiseAP(distance, **options, straight_through=straight_through, chunk=chunk)
    expected, queries = defined_ap(relax(raw, distance, straight_through), relation, distance, **options)
    expected = 1 - expected / queries if queries else expected * 0
    value = loss(raw, relation)
    assert int(loss.skipped) == size - queries
    torch.testing.assert_close(value, expected)
    gradients = [torch.autograd.grad(one, raw)[0] for one in (value, expected)]
    # Rounding errors between equal descriptors are multiplied by the large slope of the root.
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("distance", "form"), CASES)
def test_in_float32_value_and_gradient_are_close_to_the_definition(distance, form):
    relation = ragged_relation(90)
    x = descriptors(90, 16, distance, seed=1).requires_grad_()
    bins = 16 if distance == "hamming" else 25
    value, asked = paper_ap(x, x, relation, distance=distance, bins=bins, form=form)
    precise = x.detach().double().requires_grad_()
    expected, number = defined_ap(precise, relation, distance, bins, form)
    assert value.item() / number == pytest.approx(expected.item() / number, abs=1e-5)
    gradient, precise_gradient = (
        torch.autograd.grad(one, leaf)[0] for one, leaf in ((value / asked, x), (expected / number, precise))
    )
    torch.testing.assert_close(gradient.double(), precise_gradient, rtol=0, atol=1e-5)


def test_a_margin_penalises_matches_that_are_only_just_nearer():
    # The match is at squared distance 0.1, the distractor at 0.4: in different bins of width 0.04.
    angles = torch.tensor([0.0, 0.317, 0.644])
    x = torch.stack([angles.cos(), angles.sin()], dim=1)
    relation = Relation(torch.tensor([0, 0, 1]))
    value = {
        margin: paper_ap(x[:1], x, relation, distance="squared", bins=100, margin=margin)[0].item()
        for margin in (0.0, 0.2, 0.5)
    }
    assert value[0.0] == value[0.2] == 1
    assert value[0.5] < 0.8


def test_a_distractor_at_the_largest_distance_still_has_a_gradient():
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]], requires_grad=True)
    value, _ = paper_ap(x[:1], x, Relation(torch.tensor([0, 0, 1])), distance="squared", bins=8)
    # Nearer to the query, it would be ranked before the match, which is as far away.
    assert torch.autograd.grad(value, x)[0][2, 0] < 0


def test_the_farthest_match_stays_inside_the_bins_with_a_large_margin():
    """The margin is 100 bins: float32 rounds the position of opposite descriptors up to the last bin centre."""
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    relation = Relation(torch.tensor([0, 0, 1]))
    value, _ = paper_ap(x, x, relation, distance="squared", bins=8, margin=50.0)
    # The distractor is ranked before the match, so the AP of both queries is 1/2.
    assert value.item() == pytest.approx(1, abs=1e-4)
    assert torch.autograd.grad(value, x)[0].isfinite().all()


@given(st.integers(2, 5), st.integers(2, 4), st.integers(2, 40), st.sampled_from(["simplified", "fastap"]))
def test_ap_is_one_if_all_positives_are_two_bins_nearer(groups, size, bins, form):
    # Equal within a group and orthogonal between groups: √2/2 of the range apart.
    bins = max(bins, 3)
    x = torch.eye(groups).repeat_interleave(size, dim=0)
    relation = Relation(torch.arange(groups).repeat_interleave(size))
    value, asked = paper_ap(x, x, relation, bins=bins, form=form)
    assert asked == groups * size
    # Simplified AP ranks the positives of a bin at its middle, so n of them have (n + 1)/(n + 1) = 1.
    assert value.item() / int(asked) == pytest.approx(1, abs=1e-6)


@pytest.mark.slow
@settings(max_examples=200)
@given(
    st.lists(
        st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=3, max_size=3),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from(CASES),
    st.integers(0, 2**31),
)
def test_no_finite_input_gives_nan_or_infinity(rows, case, seed):
    distance, form = case
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randint(0, 3, (len(rows),), generator=generator)
    for loss in (ListwiseAP(distance, form=form), HardestTriplet(distance=distance)):
        x = torch.tensor(rows, dtype=torch.float32, requires_grad=True)
        value = loss(x, groups)
        value.backward()
        assert value.isfinite()
        assert x.grad.isfinite().all()


def test_autograd_stores_one_gradient_for_each_descriptor():
    x = descriptors(64, 8, "euclidean", 0).requires_grad_()
    value, _ = paper_ap(x, x, Relation(torch.arange(64) // 2), chunk=8)
    assert [tuple(saved.shape) for saved in value.grad_fn.saved_tensors] == [(64, 8)] * 2


def test_sums_over_parts_of_the_queries_add_up():
    relation = ragged_relation(40)
    x = descriptors(40, 8, "euclidean", 0, torch.float64)
    whole, asked = paper_ap(x, x, relation)
    parts = [paper_ap(x[a:b], x, relation, first=a) for a, b in ((0, 13), (13, 40))]
    torch.testing.assert_close(sum(value for value, _ in parts), whole)
    assert sum(number for _, number in parts) == asked
