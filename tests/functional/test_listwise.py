"""The one-pass listwise AP: equality with the dense oracle, invariances and edge cases."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from doap.errors import ArgumentError, ShapeError
from doap.functional import listwise_average_precision
from doap.types import Relation
from oracles.listwise import dense_listwise

paper_ap = partial(listwise_average_precision, distance="euclidean", bins=25)
CASES = [(distance, form) for distance in ("euclidean", "squared", "hamming") for form in ("simplified", "fastap")]


def descriptors(size, dim, distance, seed, dtype=torch.float32):
    raw = torch.randn(size, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (raw.tanh() if distance == "hamming" else normalize(raw)).to(dtype)


def ragged_relation(size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randint(0, size // 3, (size,), generator=generator)
    pairs = torch.randint(0, size // 3, (size // 2, 2), generator=generator)
    table = torch.rand(4, 4, generator=generator) < 0.3
    return Relation(groups, pairs, torch.randint(0, 4, (size,), generator=generator), table | table.T)


@pytest.mark.parametrize(("distance", "form"), CASES)
@pytest.mark.parametrize("chunk", [7, 256])
def test_value_and_gradient_equal_the_dense_oracle(distance, form, chunk):
    relation = ragged_relation(90)
    x = descriptors(90, 16, distance, seed=1).requires_grad_()
    bins = 16 if distance == "hamming" else 25
    value, asked = listwise_average_precision(x, x, relation, distance=distance, bins=bins, form=form, chunk=chunk)
    gradient = torch.autograd.grad(value / asked, x)[0]
    precise = x.detach().double().requires_grad_()
    expected, number = dense_listwise(precise, relation, distance, bins, form)
    expected_gradient = torch.autograd.grad(expected / number, precise)[0]
    assert int(asked) == number
    assert value.item() / number == pytest.approx(expected.item() / number, abs=1e-5)
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("distance", "form"), CASES)
@pytest.mark.parametrize("margin", [0.0, 0.3, 1.0])
def test_a_memory_and_a_margin_equal_the_dense_oracle(distance, form, margin):
    relation = ragged_relation(90)
    x = descriptors(90, 16, distance, seed=1, dtype=torch.float64)
    batch, memory = x[:30].clone().requires_grad_(), x[30:]
    options = {"distance": distance, "bins": 16, "form": form, "margin": margin}
    value, asked = listwise_average_precision(batch, batch, relation, memory=memory, chunk=7, **options)
    gradient = torch.autograd.grad(value, batch)[0]
    again = x[:30].clone().requires_grad_()
    expected, number = dense_listwise(torch.cat([again, memory]), relation, queries=30, **options)
    assert int(asked) == number
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, again)[0])


def test_a_margin_penalises_matches_that_are_only_just_nearer():
    # The match is at squared distance 0.1, the distractor at 0.4: in different bins of width 0.04.
    angles = torch.tensor([0.0, 0.317, 0.644])
    x = torch.stack([angles.cos(), angles.sin()], dim=1)
    relation = Relation(torch.tensor([0, 0, 1]))
    value = {
        margin: listwise_average_precision(x[:1], x, relation, distance="squared", bins=100, margin=margin)[0].item()
        for margin in (0.0, 0.2, 0.5)
    }
    assert value[0.0] == value[0.2] == 1
    assert value[0.5] < 0.8


def test_a_distractor_at_the_largest_distance_still_has_a_gradient():
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]], requires_grad=True)
    value, _ = listwise_average_precision(x[:1], x, Relation(torch.tensor([0, 0, 1])), distance="squared", bins=8)
    # Nearer to the query, it would be ranked before the match, which is as far away.
    assert torch.autograd.grad(value, x)[0][2, 0] < 0


def test_the_farthest_match_stays_inside_the_bins_with_a_large_margin():
    """The margin is 100 bins: float32 rounds the position of opposite descriptors up to the last bin centre."""
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    relation = Relation(torch.tensor([0, 0, 1]))
    value, _ = listwise_average_precision(x, x, relation, distance="squared", bins=8, margin=50.0)
    # The distractor is ranked before the match, so the AP of both queries is 1/2.
    assert value.item() == pytest.approx(1, abs=1e-4)
    assert torch.autograd.grad(value, x)[0].isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": torch.zeros(3, 4)}, "3 items of the gallery and 3 of the memory, got 3"),
        ({"margin": -1.0}, "margin: expected a distance of 0 or more"),
        ({"margin": float("nan")}, "margin: expected a distance of 0 or more"),
    ],
)
def test_wrong_memories_and_margins_are_refused(options, message):
    x = torch.eye(4)[:3]
    with pytest.raises(ArgumentError, match=message):
        paper_ap(x, x, Relation(torch.tensor([0, 0, 1])), **options)


@pytest.mark.slow
@pytest.mark.parametrize(("distance", "form"), CASES)
@pytest.mark.parametrize("chunk", [5, 256])
def test_gradient_passes_gradcheck(distance, form, chunk):
    relation = ragged_relation(14, seed=2)
    raw = torch.randn(14, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).requires_grad_()

    def relaxed_ap(raw):
        x = raw.tanh() if distance == "hamming" else normalize(raw)
        return listwise_average_precision(x, x, relation, distance=distance, form=form, bins=5, chunk=chunk)[0]

    assert torch.autograd.gradcheck(relaxed_ap, raw)


@given(st.integers(2, 24), st.integers(1, 30), st.integers(0, 2**31))
def test_chunk_size_does_not_change_the_result(size, chunk, seed):
    generator = torch.Generator().manual_seed(seed)
    relation = Relation(torch.randint(0, size // 2 + 1, (size,), generator=generator))
    x = descriptors(size, 4, "euclidean", seed, torch.float64).requires_grad_()
    whole = paper_ap(x, x, relation, chunk=size)[0]
    parts = paper_ap(x, x, relation, chunk=chunk)[0]
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close(torch.autograd.grad(parts, x), torch.autograd.grad(whole, x))


@given(st.integers(2, 30), st.integers(0, 2**31))
def test_order_of_the_batch_does_not_matter(size, seed):
    generator = torch.Generator().manual_seed(seed)
    relation = ragged_relation(size + 4, seed)
    order = torch.randperm(size + 4, generator=generator)
    shuffled = Relation(
        relation.groups[order], relation.ignored_pairs, relation.clusters[order], relation.ignored_clusters
    )
    x = descriptors(size + 4, 6, "euclidean", seed, torch.float64)
    value, asked = paper_ap(x, x, relation)
    same, same_asked = paper_ap(x[order], x[order], shuffled)
    torch.testing.assert_close(same, value)
    assert asked == same_asked


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
    from doap.losses import HardestTriplet, ListwiseAP

    distance, form = case
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randint(0, 3, (len(rows),), generator=generator)
    for loss in (ListwiseAP(distance, form=form), HardestTriplet(distance=distance)):
        x = torch.tensor(rows, dtype=torch.float32, requires_grad=True)
        value = loss(x, groups)
        value.backward()
        assert value.isfinite()
        assert x.grad.isfinite().all()


def test_sums_over_parts_of_the_queries_add_up():
    relation = ragged_relation(40)
    x = descriptors(40, 8, "euclidean", 0, torch.float64)
    whole, asked = paper_ap(x, x, relation)
    parts = [paper_ap(x[a:b], x, relation, first=a) for a, b in ((0, 13), (13, 40))]
    torch.testing.assert_close(sum(value for value, _ in parts), whole)
    assert sum(number for _, number in parts) == asked


def test_query_is_never_its_own_match():
    x = descriptors(6, 4, "euclidean", 0)
    value, asked = paper_ap(x, x, Relation(torch.arange(6)))
    assert (value.item(), int(asked)) == (0, 0)


def test_ignored_distractors_do_not_count():
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    groups = torch.tensor([0, 0, 1])
    worse, _ = paper_ap(x, x, Relation(groups))
    spared, _ = paper_ap(x, x, Relation(groups, torch.tensor([[1, 0], [7, 1]])))
    assert worse.item() < 2
    assert spared.item() == pytest.approx(2)


def test_autograd_stores_the_descriptors_and_one_gradient_for_each():
    x = descriptors(64, 8, "euclidean", 0).requires_grad_()
    value, _ = paper_ap(x, x, Relation(torch.arange(64) // 2), chunk=8)
    assert [tuple(saved.shape) for saved in value.grad_fn.saved_tensors] == [(64, 8)] * 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"distance": "cosine"}, "distance: expected one of euclidean, squared, hamming, got 'cosine'"),
        ({"form": "exact"}, "form: expected one of simplified, fastap, got 'exact'"),
        ({"chunk": 0}, "chunk: expected 1 row or more, got 0"),
        ({"bins": 0}, "bins: expected 1 or more, got 0"),
        ({"first": 1}, "first: expected 0 to 0 so that queries are gallery items, got 1"),
    ],
)
def test_wrong_arguments_raise_named_errors(arguments, message):
    x = torch.zeros(4, 2)
    with pytest.raises(ArgumentError, match=message):
        paper_ap(x, x, Relation(torch.zeros(4, dtype=torch.long)), **arguments)


def test_wrong_sizes_raise_named_errors():
    x = torch.zeros(4, 2)
    with pytest.raises(ArgumentError, match="relation: expected the 4 items of the gallery, got 3 items"):
        paper_ap(x, x, Relation(torch.zeros(3, dtype=torch.long)))
    with pytest.raises(ShapeError, match=r"gallery: expected \(N, 2\), got \(4, 3\)"):
        paper_ap(x, torch.zeros(4, 3), Relation(torch.zeros(4, dtype=torch.long)))
