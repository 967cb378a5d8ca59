"""The rule, and the intervals that it looks at."""

from itertools import combinations

import numpy as np
import pytest

from doap.evaluation.bootstrap import bootstrap_mean
from doap.evaluation.compare.models import hanging_together
from doap.evaluation.compare.overlaps import neighbouring_pairs
from doap.evaluation.compare.stage import Stage, contest, mean_over_photos
from doap.evaluation.compare.verdict import decide
from doap.evaluation.result import DescriptorInfo

GAINS = {"ahead": 0.2, "behind": -0.2, "level": 0.0}


def stage(what, outcome):
    """Eight photos on which the candidate is better, worse or neither; or three, which tell nothing."""
    count = 3 if outcome == "unknown" else 8
    theirs = np.linspace(0.4, 0.6, count)
    wobble = 0.01 * (-1.0) ** np.arange(count)
    values = {"mine": (theirs + GAINS.get(outcome, 0.2) + wobble).tolist(), "sift": theirs.tolist()}
    items = [(number,) for number in range(count)]
    return Stage(what, items, {"AP": contest(values, items, 0)}, f"{count} photos")


def verdict(pairs, views):
    descriptors = [DescriptorInfo(name, "real", 128, 512, "print", None) for name in ("mine", "sift")]
    return decide(pairs, views, descriptors, {"mine": 0.2, "sift": 0.1}, 8)


@pytest.mark.parametrize(
    ("pairs", "views", "answer"),
    [
        ("ahead", "ahead", "switch"),
        ("ahead", "level", "switch"),
        ("ahead", "unknown", "switch"),
        ("ahead", "behind", "mixed"),
        ("level", "ahead", "no difference"),
        ("level", "level", "no difference"),
        ("level", "unknown", "no difference"),
        ("level", "behind", "stay"),
        ("behind", "ahead", "mixed"),
        ("behind", "level", "stay"),
        ("behind", "unknown", "stay"),
        ("behind", "behind", "stay"),
        ("unknown", "ahead", "switch"),
        ("unknown", "level", "no difference"),
        ("unknown", "unknown", "no difference"),
        ("unknown", "behind", "stay"),
    ],
)
def test_rule_answers_all_cases(pairs, views, answer):
    given = stage("pairs", pairs), stage("views", views)
    assert [one.deciding.outcome for one in given] == [pairs, views]
    assert verdict(*given).answer == answer


def test_sentence_is_one_and_has_the_figures_and_the_cost():
    said = verdict(stage("pairs", "behind"), Stage("views", note="no view")).sentence
    assert said.startswith("Stay with sift: mine is worse in pairs (AP 0.300 against 0.500 of sift, difference −0.200")
    assert "; no view; " in said
    assert said.endswith("512 bytes a descriptor against 512 and 2 times the time of sift to describe a photo.")
    assert said.count(". ") == 0


def test_switch_that_rests_on_made_up_views_says_so():
    said = verdict(stage("pairs", "unknown"), stage("views", "ahead")).sentence
    assert said.startswith("Switch to mine, by made-up views alone: mine is undecided, with so few of them, in pairs")


def test_rival_is_the_best_of_the_others():
    values = {"mine": [0.5] * 6, "poor": [0.1] * 6, "good": [0.9] * 6, "fair": [0.6] * 6}
    judged = contest(values, [(number,) for number in range(6)], 0)
    assert judged.rival == "good"
    assert judged.gain.value == pytest.approx(-0.4)
    assert judged.gains["poor"].value == pytest.approx(0.4)


@pytest.mark.parametrize(("count", "outcome"), [(5, "unknown"), (6, "ahead")])
def test_fewer_than_six_photos_decide_nothing_however_large_the_difference(count, outcome):
    items = [(number,) for number in range(count)]
    judged = contest({"mine": [1.0] * count, "other": [0.0] * count}, items, 0)
    assert judged.outcome == outcome


def test_many_pairs_of_few_photos_decide_nothing():
    items = list(combinations(range(5), 2))
    assert contest({"mine": [1.0] * 10, "other": [0.0] * 10}, items, 0).outcome == "unknown"


def test_interval_of_many_photos_is_that_of_their_mean():
    values = np.random.default_rng(0).normal(size=400)
    ours = mean_over_photos(values.tolist(), [(number,) for number in range(400)], 3)
    theirs = bootstrap_mean(values, 3, resamples=1000)
    assert ours.value == pytest.approx(theirs.value)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=2e-3)


def test_pair_counts_as_often_as_both_its_photos_are_drawn():
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
def test_descriptors_that_are_equal_but_for_chance_are_seldom_told_apart(shared):
    """One of twenty should be, by what an interval of 95 % means; pairs taken for independent would be every second.

    Sixty trials cannot tell one of twenty from one of ten, so the bound is one of five.
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


def test_all_pairs_are_chosen_if_they_are_no_more():
    assert sorted(neighbouring_pairs(5, 10)) == list(combinations(range(5), 2))
    assert neighbouring_pairs(1, 10) == []


def test_photos_that_hang_together_are_found():
    assert hanging_together([]) == []
    assert hanging_together([(5, 6), (1, 2), (0, 1)]) == [0, 1, 2]
    assert hanging_together([(number, number + 1) for number in range(30)]) == list(range(31))
