"""The rule of the verdict, and the intervals that it uses."""

from itertools import combinations

import numpy as np
import pytest

from doap.evaluation.bootstrap import bootstrap_mean
from doap.evaluation.comparison.pairs import connected_photos
from doap.evaluation.comparison.verdict import Stage, decide, photo_figure
from doap.evaluation.result import DescriptorInfo


def stage(items, **values):
    return Stage(
        "pairs", f"{len(items)} pairs", {name: (photo_figure("AP", v, items, 0),) for name, v in values.items()}
    )


def single(count):
    return [(number,) for number in range(count)]


@pytest.mark.parametrize(
    ("items", "shift", "answer"),
    [
        (single(8), 0.2, "switch"),
        (single(8), -0.2, "stay"),
        (single(8), 0.0, "no difference"),
        # Fewer than six photos or pairs decide nothing, however large the difference.
        (single(6), 1.0, "switch"),
        (single(5), 1.0, "undecided"),
        (list(combinations(range(5), 2)), 1.0, "undecided"),
        ([(0, 1), (2, 3), (4, 5)], 1.0, "undecided"),
    ],
)
def test_the_interval_of_the_difference_decides(items, shift, answer):
    baseline = np.linspace(0.4, 0.6, len(items))
    values = baseline + shift + 0.01 * (-1.0) ** np.arange(len(items))
    descriptors = [DescriptorInfo(name, "real", 128, 512, "print", None) for name in ("mine", "sift")]
    verdict = decide(stage(items, mine=values, sift=baseline), descriptors, {"mine": 0.2, "sift": 0.1})
    assert verdict.answer == answer
    assert verdict.sentence.endswith(
        "512 bytes (sift: 512), and describing a photo takes 2 times as long as with sift."
    )


def test_the_candidate_is_compared_with_the_best_baseline():
    compared = stage(single(6), mine=[0.5] * 6, poor=[0.1] * 6, good=[0.9] * 6, fair=[0.6] * 6)
    assert compared.best_baseline == "good"
    assert compared.difference.value == pytest.approx(-0.4)


def test_interval_of_many_photos_equals_the_bootstrap_of_the_mean():
    values = np.random.default_rng(0).normal(size=400)
    ours = photo_figure("", values.tolist(), single(400), 3).total
    theirs = bootstrap_mean(values, 3, resamples=1000)
    assert ours.value == pytest.approx(theirs.value)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=2e-3)


def test_the_interval_of_a_difference_is_that_of_the_differences():
    random = np.random.default_rng(0)
    items = list(combinations(range(9), 2))
    mine, other = random.normal(1, 1, len(items)), random.normal(0, 1, len(items))
    found = stage(items, mine=mine, other=other).difference
    assert found.interval == pytest.approx(photo_figure("", mine - other, items, 0).total.bounds, abs=1e-5)


@pytest.mark.parametrize("shared", [False, True])
def test_descriptors_that_differ_by_chance_are_rarely_distinguished(shared):
    """A 95 % interval excludes 0 in one of twenty cases; if pairs counted as independent, it would in half of them.

    Sixty trials cannot distinguish one of twenty from one of ten, so the bound is one of five.
    """
    random = np.random.default_rng(5)
    items = list(combinations(range(8), 2)) if shared else single(8)
    decided = 0
    for seed in range(60):
        photo = random.normal(size=8)
        values = [float(photo[list(item)].sum() + 0.3 * random.normal()) for item in items]
        found = photo_figure("", values, items, seed).total
        decided += found.low > 0 or found.high < 0
    assert decided <= 12


def test_connected_photos_are_found():
    assert connected_photos([]) == []
    assert connected_photos([(5, 6), (1, 2), (0, 1)]) == [0, 1, 2]
    assert connected_photos([(number, number + 1) for number in range(30)]) == list(range(31))
