"""The verdict of a comparison: switch, stay, no difference or undecided.

The 95 % interval of the difference between the candidate and the best baseline decides, in verified inliers on pairs of
photos that overlap, never the mean. A reconstruction is a single number without an interval; it is reported but does
not decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from doap.evaluation.bootstrap import bootstrap_interval
from doap.evaluation.report.table import Difference, compare
from doap.evaluation.result import DescriptorInfo, Estimate, Figure

Answer = Literal["switch", "stay", "no difference", "undecided"]
MIN_ITEMS = 6
"""Minimum number of photos, and of items, for a decision: five would agree by chance in 1 of 16 cases."""


@dataclass(frozen=True)
class Verdict:
    """The answer, a title, and the reasons with the figures."""

    answer: Answer
    title: str
    reasons: list[str]

    @property
    def sentence(self) -> str:
        """Title and reasons in one sentence."""
        return f"{self.title}: {'; '.join(self.reasons)}."


@dataclass(frozen=True)
class Stage:
    """A part of a comparison: its name, a note on what was used or why nothing was, and the figures.

    The candidate is the first descriptor, and the first of its figures decides. Without data, there are no figures.
    """

    name: str
    note: str
    figures: dict[str, tuple[Figure, ...]] = field(default_factory=dict)

    @property
    def best_baseline(self) -> str:
        """Baseline with the highest mean of the first figure."""
        return max([*self.figures][1:], key=lambda name: self.figures[name][0].total.value)

    @property
    def difference(self) -> Difference:
        """Candidate minus the best baseline."""
        candidate = self.figures[next(iter(self.figures))][0]
        return compare(candidate.total, self.figures[self.best_baseline][0].total, candidate.better)


def photo_figure(name: str, values: Sequence[float], items: Sequence[tuple[int, ...]], seed: int) -> Figure:
    """Return the mean of n values as a figure, with an interval from resampling the photos of each value.

    Pairs that share a photo are not independent. Photos are therefore resampled, and a pair counts w₀·w₁ times if
    its photos were drawn w₀ and w₁ times. In simulations with all pairs of 12 photos, intervals that treated pairs as
    independent missed the true mean in half of the cases. Percentiles of few photos are too narrow as well. They
    are stretched about the mean by the ratio of Student's t to the normal quantile, t ≈ z·(1 + (z² + 1)/4f), with
    f = photos − 1 degrees of freedom.
    """
    measured = np.asarray(values, np.float64)
    photos, photo_of_item = np.unique(np.asarray(items), return_inverse=True)
    photo_of_item = photo_of_item.reshape(len(items), -1)
    if min(len(photos), len(items)) < MIN_ITEMS:
        return Figure(name, "higher", "photos", Estimate(float(measured.mean()), None, None, len(photos)))

    def mean(weights: NDArray[np.float64]) -> float:
        times = weights[photo_of_item].prod(axis=1)
        # A resample of few photos may contain none of the pairs.
        return float(times @ measured / times.sum()) if times.any() else float(measured.mean())

    found = bootstrap_interval(mean, len(photos), seed, resamples=1000)
    freedom = len(photos) - 1
    stretch = np.sqrt(1 + 1 / freedom) * (1 + (1.96**2 + 1) / (4 * freedom))

    def stretched(value: float) -> float:
        return float(found.value + stretch * (value - found.value))

    low, high = map(stretched, found.bounds)
    resampled = [round(stretched(one), 6) for one in found.resampled]
    return Figure(name, "higher", "photos", replace(found, low=low, high=high, resampled=resampled))


def decide(pairs: Stage, descriptors: Sequence[DescriptorInfo], seconds: Mapping[str, float]) -> Verdict:
    """Apply the rule to the figures on pairs that overlap; `seconds` is the time to describe the same keypoints."""
    if not pairs.figures:
        return Verdict("undecided", "No decision", [pairs.note])
    candidate, baseline = descriptors[0], next(one for one in descriptors if one.name == pairs.best_baseline)
    rule: dict[str, tuple[Answer, str]] = {
        "better": ("switch", f"Switch to {candidate.name}"),
        "worse": ("stay", f"Stay with {baseline.name}"),
        "similar": ("no difference", f"No significant difference between {candidate.name} and {baseline.name}"),
        "untested": (
            "undecided",
            f"Too few pairs of photos overlap to decide between {candidate.name} and {baseline.name}",
        ),
    }
    found = pairs.difference
    value, *ends = (f"{'−' if one < 0 else '+'}{abs(one):,.1f}" for one in (found.value, *(found.interval or ())))
    means = " and ".join(
        f"{pairs.figures[one.name][0].total.value:,.1f} with {one.name}" for one in (candidate, baseline)
    )
    interval = f" (95 % interval {' to '.join(ends)})" if ends else ""
    ratio = f"{seconds[candidate.name] / seconds[baseline.name]:.2g}"
    duration = "as long" if ratio == "1" else f"{ratio} times as long"
    reasons = [
        f"{pairs.figures[candidate.name][0].name} in a pair: {means}, a difference of {value}{interval}",
        pairs.note,
        f"a descriptor of {candidate.name} takes {candidate.bytes:,} bytes ({baseline.name}: {baseline.bytes:,}), and "
        f"describing a photo takes {duration} as with {baseline.name}",
    ]
    return Verdict(*rule[found.outcome], reasons)
