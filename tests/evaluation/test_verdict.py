"""The rule of the verdict, and the intervals that it uses."""

from itertools import combinations

import numpy as np
import pytest

from doap.evaluation.bootstrap import bootstrap_mean
from doap.evaluation.comparison.pairs import neighbouring_pairs
from doap.evaluation.comparison.reconstruction import connected_photos
from doap.evaluation.comparison.stage import Stage, compare_metric, mean_over_photos
from doap.evaluation.comparison.verdict import decide
from doap.evaluation.result import DescriptorInfo

DIFFERENCES = {"better": 0.2, "worse": -0.2, "similar": 0.0}


def stage(name, outcome):
    """Return scores on eight photos where the candidate is better, worse or similar, or on three photos."""
    count = 3 if outcome == "undecided" else 8
    baseline = np.linspace(0.4, 0.6, count)
    wobble = 0.01 * (-1.0) ** np.arange(count)
    values = {"mine": (baseline + DIFFERENCES.get(outcome, 0.2) + wobble).tolist(), "sift": baseline.tolist()}
    items = [(number,) for number in range(count)]
    return Stage(name, items, {"AP": compare_metric(values, items, 0)}, f"{count} photos")


def verdict(pairs, views):
    descriptors = [DescriptorInfo(name, "real", 128, 512, "print", None) for name in ("mine", "sift")]
    return decide(pairs, views, descriptors, {"mine": 0.2, "sift": 0.1}, 8)


@pytest.mark.parametrize(
    ("pairs", "views", "answer"),
    [
        ("better", "better", "switch"),
        ("better", "similar", "switch"),
        ("better", "undecided", "switch"),
        ("better", "worse", "mixed"),
        ("similar", "better", "no difference"),
        ("similar", "similar", "no difference"),
        ("similar", "undecided", "no difference"),
        ("similar", "worse", "stay"),
        ("worse", "better", "mixed"),
        ("worse", "similar", "stay"),
        ("worse", "undecided", "stay"),
        ("worse", "worse", "stay"),
        ("undecided", "better", "switch"),
        ("undecided", "similar", "no difference"),
        ("undecided", "undecided", "no difference"),
        ("undecided", "worse", "stay"),
    ],
)
def test_rule_answers_all_cases(pairs, views, answer):
    given = stage("pairs", pairs), stage("views", views)
    assert [one.deciding.outcome for one in given] == [pairs, views]
    assert verdict(*given).answer == answer


def test_the_verdict_is_one_sentence_with_figures_and_cost():
    sentence = verdict(stage("pairs", "worse"), Stage("views", note="no view")).sentence
    assert sentence.startswith(
        "Stay with sift: on pairs, mine is worse than sift (AP 0.300 vs 0.500, difference −0.200, 95 % interval −0."
    )
    assert "; no view; " in sentence
    assert sentence.endswith("512 bytes (sift: 512), and describing a photo takes 2 times as long as with sift.")
    assert sentence.count(". ") == 0


def test_a_switch_based_on_synthetic_views_is_marked():
    sentence = verdict(stage("pairs", "undecided"), stage("views", "better")).sentence
    assert sentence.startswith("Switch to mine, based on synthetic views only: there are too few pairs to decide")


def test_the_candidate_is_compared_with_the_best_baseline():
    values = {"mine": [0.5] * 6, "poor": [0.1] * 6, "good": [0.9] * 6, "fair": [0.6] * 6}
    compared = compare_metric(values, [(number,) for number in range(6)], 0)
    assert compared.best_baseline == "good"
    assert compared.difference.value == pytest.approx(-0.4)
    assert compared.differences["poor"].value == pytest.approx(0.4)


@pytest.mark.parametrize(("count", "outcome"), [(5, "undecided"), (6, "better")])
def test_fewer_than_six_photos_decide_nothing_however_large_the_difference(count, outcome):
    items = [(number,) for number in range(count)]
    compared = compare_metric({"mine": [1.0] * count, "other": [0.0] * count}, items, 0)
    assert compared.outcome == outcome


def test_many_pairs_of_few_photos_decide_nothing():
    items = list(combinations(range(5), 2))
    assert compare_metric({"mine": [1.0] * 10, "other": [0.0] * 10}, items, 0).outcome == "undecided"


def test_interval_of_many_photos_equals_the_bootstrap_of_the_mean():
    values = np.random.default_rng(0).normal(size=400)
    ours = mean_over_photos(values.tolist(), [(number,) for number in range(400)], 3)
    theirs = bootstrap_mean(values, 3, resamples=1000)
    assert ours.value == pytest.approx(theirs.value)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=2e-3)


def test_a_pair_counts_as_often_as_both_its_photos_are_drawn():
    values, items = [1.0, 2.0, 4.0], [(0, 1), (0, 2), (1, 2)]
    table = dict(zip(items, values, strict=True))
    drawn = [0, 0, 2, 1]
    by_hand = np.mean([table[pair] for pair in map(sorted_pair, combinations(drawn, 2)) if pair in table])
    weights = np.bincount(drawn)
    products = [weights[one] * weights[other] for one, other in items]
    assert by_hand == pytest.approx(np.average(values, weights=products))


def sorted_pair(pair):
    return min(pair), max(pair)


@pytest.mark.parametrize("shared", [False, True])
def test_descriptors_that_differ_by_chance_are_rarely_distinguished(shared):
    """A 95 % interval excludes 0 in one of twenty cases; if pairs counted as independent, it would in half of them.

    Sixty trials cannot distinguish one of twenty from one of ten, so the bound is one of five.
    """
    random = np.random.default_rng(5)
    items = list(combinations(range(8), 2)) if shared else [(number,) for number in range(8)]
    decided = 0
    for seed in range(60):
        photo = random.normal(size=8)
        values = [float(photo[list(item)].sum() + 0.3 * random.normal()) for item in items]
        found = mean_over_photos(values, items, seed)
        decided += found.low > 0 or found.high < 0
    assert decided <= 12


def test_all_pairs_are_used_up_to_the_limit():
    assert sorted(neighbouring_pairs(5, 10)) == list(combinations(range(5), 2))
    assert neighbouring_pairs(1, 10) == []


def test_connected_photos_are_found():
    assert connected_photos([]) == []
    assert connected_photos([(5, 6), (1, 2), (0, 1)]) == [0, 1, 2]
    assert connected_photos([(number, number + 1) for number in range(30)]) == list(range(31))
