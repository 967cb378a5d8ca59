"""Verification metrics."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_curve as sklearn_curve

from doap.errors import ArgumentError
from doap.functional import fpr_at_recall, precision_recall_curve
from oracles.ranking import enumerated_fpr


@st.composite
def tied_pairs(draw):
    size = draw(st.integers(2, 7))
    distances = draw(st.lists(st.integers(0, 3).map(float), min_size=size, max_size=size))
    positive = draw(st.lists(st.booleans(), min_size=size, max_size=size).filter(lambda p: any(p) and not all(p)))
    return distances, positive, draw(st.sampled_from([0.5, 0.8, 0.95, 1.0]))


@given(tied_pairs())
def test_fpr_equals_accepting_pairs_one_by_one_over_all_orders(pairs):
    distances, positive, recall = pairs
    for policy, value in enumerated_fpr(distances, positive, recall).items():
        ours = fpr_at_recall(torch.tensor(distances), torch.tensor(positive), recall=recall, ties=policy)
        assert ours == pytest.approx(value, abs=1e-12)


def test_rounding_does_not_ask_for_one_positive_more():
    distances = torch.arange(40.0)
    positive = distances < 20
    positive[19], positive[20] = False, True
    assert fpr_at_recall(distances, positive) == 0


def test_curve_equals_scikit_learn_on_untied_pairs():
    generator = torch.Generator().manual_seed(0)
    distances = torch.randperm(100, generator=generator).double()
    positive = torch.rand(100, generator=generator) < 0.3
    precision, recall, thresholds = precision_recall_curve(distances, positive)
    their_precision, their_recall, _ = sklearn_curve(positive.numpy(), -distances.numpy())
    torch.testing.assert_close(precision, torch.from_numpy(their_precision[:-1][::-1].copy()))
    torch.testing.assert_close(recall, torch.from_numpy(their_recall[:-1][::-1].copy()))
    assert (thresholds.diff() > 0).all()


def test_curve_accepts_equal_distances_together():
    precision, recall, thresholds = precision_recall_curve(torch.zeros(4), torch.tensor([True, False, False, True]))
    assert (precision.tolist(), recall.tolist(), thresholds.tolist()) == ([0.5], [1.0], [0.0])


@pytest.mark.parametrize("label", [True, False])
def test_pairs_of_one_kind_are_refused(label):
    with pytest.raises(ArgumentError, match="expected pairs of both kinds"):
        fpr_at_recall(torch.rand(3), torch.full((3,), label))


def test_recall_outside_its_range_is_refused():
    with pytest.raises(ArgumentError, match=r"recall: expected a share in \(0, 1\], got 95"):
        fpr_at_recall(torch.rand(2), torch.tensor([True, False]), recall=95)
