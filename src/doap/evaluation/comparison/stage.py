"""A stage of a comparison: metrics of all descriptors on the same items, and their paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from doap.evaluation.bootstrap import bootstrap_interval
from doap.evaluation.result import Estimate

Outcome = Literal["better", "worse", "similar", "undecided"]

MIN_ITEMS = 6
"""Minimum number of photos, and of items, for a decision: five would agree by chance in 1 of 16 cases."""


@dataclass(frozen=True)
class MetricComparison:
    """One metric, where higher is better: the candidate against each baseline on the same items.

    Attributes:
        values: One value per item for each descriptor, the candidate first.
        means: Mean of each descriptor. Its interval shows how photos differ, not how descriptors differ.
        differences: Candidate minus each baseline: mean over items of the paired difference.
        best_baseline: Baseline with the highest mean.
    """

    values: dict[str, list[float]]
    means: dict[str, Estimate]
    differences: dict[str, Estimate]
    best_baseline: str

    @property
    def difference(self) -> Estimate:
        """Candidate minus the best baseline."""
        return self.differences[self.best_baseline]

    @property
    def outcome(self) -> Outcome:
        """Whether the interval of the difference lies above 0, below 0 or around 0."""
        if min(self.difference.units, len(self.values[self.best_baseline])) < MIN_ITEMS:
            return "undecided"
        low, high = self.difference.bounds
        if low > 0:
            return "better"
        return "worse" if high < 0 else "similar"

    def format(self, value: float) -> str:
        """Format a value of this metric: one decimal for counts, three for shares."""
        largest = max(mean.value for mean in self.means.values())
        return f"{value:,.1f}" if largest >= 10 else f"{value:.3f}"


@dataclass(frozen=True)
class Stage:
    """One part of a comparison.

    Attributes:
        name: What the descriptors were compared on, in the plural.
        items: Indices of the photos of each item: one for the views of a photo, two for a pair.
        metrics: Comparison by metric, the deciding metric first; empty if there are no items.
        note: Number of items, or why there are none.
    """

    name: str
    items: list[tuple[int, ...]] = field(default_factory=list)
    metrics: dict[str, MetricComparison] = field(default_factory=dict)
    note: str = ""

    @property
    def deciding(self) -> MetricComparison | None:
        """Comparison of the metric that the verdict uses."""
        return next(iter(self.metrics.values()), None)


def compare_metric(
    values: Mapping[str, Sequence[float]], items: Sequence[tuple[int, ...]], seed: int
) -> MetricComparison:
    """Compare the first descriptor with the others.

    Args:
        values: n values for each descriptor.
        items: Photos of each of the n values.
        seed: Seed of the bootstrap.
    """
    candidate, *baselines = values
    means = {name: mean_over_photos(some, items, seed) for name, some in values.items()}
    paired = {name: np.subtract(values[candidate], values[name]).tolist() for name in baselines}
    differences = {name: mean_over_photos(some, items, seed) for name, some in paired.items()}
    best_baseline = max(baselines, key=lambda name: means[name].value)
    return MetricComparison({name: list(some) for name, some in values.items()}, means, differences, best_baseline)


def mean_over_photos(values: Sequence[float], items: Sequence[tuple[int, ...]], seed: int) -> Estimate:
    """Estimate the mean of n values, with an interval from resampling photos.

    Pairs that share a photo are not independent. Photos are therefore resampled, and a pair counts w₀·w₁ times if
    its photos were drawn w₀ and w₁ times. In simulations with all pairs of 12 photos, intervals that treated pairs as
    independent missed the true mean in half of the cases. Percentiles of few photos are too narrow as well. They
    are stretched about the mean by the ratio of Student's t to the normal quantile, t ≈ z·(1 + (z² + 1)/4f), with
    f = photos − 1 degrees of freedom.
    """
    measured = np.asarray(values, np.float64)
    photos, photo_of_item = np.unique(np.asarray(items), return_inverse=True)
    photo_of_item = photo_of_item.reshape(len(items), -1)

    def mean(weights: NDArray[np.float64]) -> float:
        times = weights[photo_of_item].prod(axis=1)
        # A resample of few photos may contain none of the pairs.
        return float(times @ measured / times.sum()) if times.any() else float(measured.mean())

    found = bootstrap_interval(mean, len(photos), seed, resamples=1000)
    if found.low is None:
        return found
    freedom = len(photos) - 1
    stretch = np.sqrt(1 + 1 / freedom) * (1 + (1.96**2 + 1) / (4 * freedom))
    low, high = (float(found.value + stretch * (end - found.value)) for end in found.bounds)
    return replace(found, low=low, high=high, resampled=[])
