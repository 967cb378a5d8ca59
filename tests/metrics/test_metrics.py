"""Verification metrics."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_curve as sklearn_curve
from sklearn.metrics import roc_curve as sklearn_roc

from doap._support.errors import ArgumentError
from doap.metrics import average_precision, fpr_at_recall
from doap.metrics.metrics import (
    SortedPairs,
    average_precision_at_ranks,
    average_precision_of_chances,
    average_precision_of_counts,
    fpr_of_counts,
    rates_at_thresholds,
)
from oracles.areas import settled_ap
from oracles.ranking import enumerated_ap, enumerated_fpr, textbook_ap


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


@pytest.mark.parametrize("values", [10, 1000])
def test_rates_equal_scikit_learn_with_and_without_ties(values):
    generator = torch.Generator().manual_seed(0)
    distances = torch.randint(values, (200,), generator=generator).double()
    positive = torch.rand(200, generator=generator) < 0.3
    precision, recall, wrong = rates_at_thresholds(distances, positive)
    their_precision, their_recall, _ = sklearn_curve(positive.numpy(), -distances.numpy())
    their_wrong, _, _ = sklearn_roc(positive.numpy(), -distances.numpy(), drop_intermediate=False)
    # The curves of scikit-learn have a point where nothing is accepted.
    np.testing.assert_allclose(precision, their_precision[:-1][::-1])
    np.testing.assert_allclose(recall, their_recall[:-1][::-1])
    np.testing.assert_allclose(wrong, their_wrong[1:])


def test_pairs_of_one_kind_and_a_recall_or_area_outside_its_range_are_rejected():
    for label in (True, False):
        with pytest.raises(ArgumentError):
            fpr_at_recall(torch.rand(3), torch.full((3,), label))
    with pytest.raises(ArgumentError):
        fpr_at_recall(torch.rand(2), torch.tensor([True, False]), recall=95)
    with pytest.raises(ArgumentError):
        average_precision_at_ranks(torch.tensor([1]), 1, "square")


@given(tied_pairs())
def test_precision_of_counts_is_the_mean_over_all_orders_of_ties(pairs):
    distances, positive, _ = pairs
    counts = SortedPairs(torch.tensor(distances), torch.tensor(positive)).counts()
    assert float(average_precision_of_counts(*counts)) == pytest.approx(enumerated_ap(distances, positive)["expected"])


def test_precision_of_counts_accepts_many_rankings_at_once():
    positives, negatives = torch.tensor([[1.0, 0, 2], [0, 3, 0]]), torch.tensor([[0.0, 4, 1], [1, 1, 0]])
    one_by_one = [average_precision_of_counts(*each) for each in zip(positives, negatives, strict=True)]
    torch.testing.assert_close(average_precision_of_counts(positives, negatives), torch.stack(one_by_one))


@given(tied_pairs(), st.data())
def test_weighted_pairs_equal_copies_of_pairs(pairs, data):
    distances, positive, recall = pairs
    given_pairs = list(zip(distances, positive, strict=True))
    times = [data.draw(st.integers(0, 3)) + (index in (0, len(given_pairs) - 1)) for index in range(len(given_pairs))]
    copies = [pair for pair, number in zip(given_pairs, times, strict=True) for _ in range(number)]
    if len({label for _, label in copies}) < 2:
        return
    sorted_pairs = SortedPairs(torch.tensor(distances), torch.tensor(positive))
    counts = sorted_pairs.counts(torch.tensor(times, dtype=torch.float64))
    apart, match = (torch.tensor(column) for column in zip(*copies, strict=True))
    assert float(average_precision_of_counts(*counts)) == pytest.approx(
        float(average_precision(apart[None], match[None]))
    )
    assert fpr_of_counts(*counts, recall=recall) == pytest.approx(fpr_at_recall(apart, match, recall=recall))


@pytest.mark.parametrize("distances", [[0.0, 0, 0, 1], [0, 1, 1, 2], [3, 2, 1, 0], [0, 0, 1, 1]])
def test_precision_of_chances_is_the_mean_over_all_outcomes_and_orders(distances):
    chances = [0.5, 0.25, 1.0, 0.0]
    mean = 0.0
    for right in itertools.product([False, True], repeat=4):
        probability = np.prod([chance if hit else 1 - chance for chance, hit in zip(chances, right, strict=True)])
        if probability and any(right):
            # All four count as positives, retrieved or not.
            mean += probability * enumerated_ap(distances, list(right))["expected"] * sum(right) / 4
    ours = average_precision_of_chances(torch.tensor(distances), torch.tensor(chances), number=4)
    assert ours == pytest.approx(mean)


def test_precision_of_chances_is_zero_if_no_answer_can_be_correct():
    assert average_precision_of_chances(torch.rand(5), torch.zeros(5)) == 0


@given(st.lists(st.booleans(), min_size=1, max_size=12).filter(any), st.integers(0, 3))
def test_areas_equal_the_oracle_and_trapezoid_is_at_most_steps(ranked, unfound):
    number = sum(ranked) + unfound
    ranks = torch.tensor(ranked).nonzero()[:, 0] + 1
    steps, trapezoid = (float(average_precision_at_ranks(ranks, number, area)) for area in ("steps", "trapezoid"))
    assert steps == pytest.approx(settled_ap(ranked, number, "matlab"))
    assert steps == pytest.approx(textbook_ap(ranked) * sum(ranked) / number)
    assert trapezoid == pytest.approx(settled_ap(ranked, number, "python"))
    last = len(ranked) - ranked[::-1].index(True)
    assert trapezoid == pytest.approx(steps) if all(ranked[:last]) else trapezoid < steps


@pytest.mark.parametrize(("percent", "positives"), [(7, 100), (14, 50), (28, 25), (55, 100), (95, 20)])
def test_rounding_does_not_require_one_positive_too_many(percent, positives):
    """28 % of 25 are 7 positives, but 0.28·25 is a little more than 7 in floating point."""
    needed = percent * positives // 100
    distances = torch.cat([torch.arange(positives), torch.tensor([needed - 0.5])])
    positive = torch.arange(positives + 1) < positives
    assert fpr_at_recall(distances, positive, recall=percent / 100) == 0
