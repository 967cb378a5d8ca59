"""Exact Average Precision, also of ties."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from doap._support.errors import ShapeError
from doap.metrics import average_precision
from doap.metrics.average_precision import average_precision_by_counting
from oracles.ranking import enumerated_ap, textbook_ap


@st.composite
def tied_rankings(draw, longest=7):
    size = draw(st.integers(2, longest))
    distances = draw(st.lists(st.integers(0, 3).map(float), min_size=size, max_size=size))
    positive = draw(st.lists(st.booleans(), min_size=size, max_size=size).filter(any))
    return distances, positive


def test_exact_ap_equals_scikit_learn_without_ties():
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        distances = torch.randperm(200, generator=generator).double()[None]
        positive = torch.rand(1, 200, generator=generator) < 0.1
        expected = average_precision_score(positive[0].numpy(), -distances[0].numpy())
        assert average_precision(distances, positive).item() == pytest.approx(expected, abs=1e-12)


@given(tied_rankings())
def test_tied_ap_equals_enumeration_over_all_orders(tied):
    distances, positive = tied
    ours = average_precision(torch.tensor([distances]), torch.tensor([positive]))
    assert ours.item() == pytest.approx(enumerated_ap(distances, positive)["expected"], abs=1e-12)


@pytest.mark.slow
@given(st.lists(tied_rankings(longest=20), min_size=1, max_size=4), st.integers(0, 99))
def test_counting_equals_sorting(rankings, seed):
    size = min(len(distances) for distances, _ in rankings)
    distances, positive = (torch.tensor([one[part][:size] for one in rankings]) for part in (0, 1))
    positive[:, 0] |= ~positive.any(dim=1)
    distractor = ~positive & (torch.rand(positive.shape, generator=torch.Generator().manual_seed(seed)) < 0.7)
    counted = average_precision_by_counting(distances, positive, distractor)
    torch.testing.assert_close(counted, average_precision(distances, positive, positive | distractor))


@given(tied_rankings(longest=20), st.randoms())
def test_gallery_order_does_not_matter(tied, random):
    order = list(range(len(tied[0])))
    random.shuffle(order)
    distances, positive = torch.tensor([tied[0]]), torch.tensor([tied[1]])
    same = average_precision(distances[:, order], positive[:, order])
    assert same.item() == pytest.approx(average_precision(distances, positive).item(), abs=1e-12)


def test_removed_items_do_not_change_the_rank_of_other_items():
    distances = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    positive = torch.tensor([[False, True, False, True]])
    valid = torch.tensor([[False, True, True, True]])
    value = average_precision(distances, positive, valid).item()
    assert value == pytest.approx(textbook_ap([True, False, True]), abs=1e-12)


def test_query_without_positives_has_the_requested_value():
    distances, none = torch.rand(2, 5), torch.zeros(2, 5, dtype=torch.bool)
    assert average_precision(distances, none).isnan().all()
    assert (average_precision(distances, none, without_positives=0.0) == 0).all()


def test_a_wrong_shape_is_an_error():
    with pytest.raises(ShapeError):
        average_precision(torch.rand(2, 3), torch.zeros(3, 2, dtype=torch.bool))
