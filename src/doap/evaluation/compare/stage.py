"""What a stage of a comparison leaves: figures of all descriptors on the same items, and their paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from doap.evaluation.bootstrap import bootstrap_interval
from doap.evaluation.result import Estimate

Outcome = Literal["ahead", "behind", "level", "unknown"]

FEWEST = 6
"""Photos, and items, below which nothing is decided: five that all say the same would do so by chance in 1 of 16."""


@dataclass(frozen=True)
class Contest:
    """One figure, of which more is better: the candidate against each of the others, on the same items.

    Attributes:
        values: of each descriptor, the candidate first, one for each item.
        totals: their means; the intervals tell how photos differ, not how descriptors do.
        gains: the candidate minus each of the others: the mean over items of the paired difference.
        rival: the best of the others by its mean.
    """

    values: dict[str, list[float]]
    totals: dict[str, Estimate]
    gains: dict[str, Estimate]
    rival: str

    @property
    def gain(self) -> Estimate:
        """The candidate minus the best of the others."""
        return self.gains[self.rival]

    @property
    def outcome(self) -> Outcome:
        """Where the interval of the gain lies: above 0, below 0, or around it."""
        if min(self.gain.units, len(self.values[self.rival])) < FEWEST:
            return "unknown"
        return "ahead" if self.gain.low > 0 else "behind" if self.gain.high < 0 else "level"


@dataclass(frozen=True)
class Stage:
    """One way of judging.

    Attributes:
        what: it was judged on, in the plural.
        items: the photos of each item, by their number: one of a photo and its views, two of a pair.
        contests: by the name of the figure, the one that decides first; none where there was nothing to judge on.
        note: how many items there were, or why there were none.
    """

    what: str
    items: list[tuple[int, ...]] = field(default_factory=list)
    contests: dict[str, Contest] = field(default_factory=dict)
    note: str = ""

    @property
    def deciding(self) -> Contest | None:
        """The contest that the verdict looks at."""
        return next(iter(self.contests.values()), None)


def contest(values: Mapping[str, Sequence[float]], items: Sequence[tuple[int, ...]], seed: int) -> Contest:
    """Hold the first descriptor against the others.

    Args:
        values: by descriptor, n of each.
        items: n, the photos that each value is of.
        seed: of the resampling.
    """
    candidate, *others = values
    totals = {name: mean_over_photos(some, items, seed) for name, some in values.items()}
    apart = {name: np.subtract(values[candidate], values[name]).tolist() for name in others}
    gains = {name: mean_over_photos(some, items, seed) for name, some in apart.items()}
    rival = max(others, key=lambda name: totals[name].value)
    return Contest({name: list(some) for name, some in values.items()}, totals, gains, rival)


def mean_over_photos(values: Sequence[float], items: Sequence[tuple[int, ...]], seed: int) -> Estimate:
    """The mean of n values of items, with an interval by resampling photos.

    Pairs that share a photo are not independent, so it is photos that are drawn, and a pair counts as often as both of
    its photos together: w₀·w₁ times. Taken for independent, all pairs of 12 photos gave intervals that left out the
    truth in every second simulation. The percentiles of few photos are too narrow as well, and are stretched about
    the mean as Student's t is over the normal: t ≈ z·(1 + (z² + 1)/4f) with f = photos − 1 degrees of freedom.
    """
    measured = np.asarray(values, np.float64)
    photos, places = np.unique(np.asarray(items), return_inverse=True)
    places = places.reshape(len(items), -1)

    def mean(weights: NDArray[np.float64]) -> float:
        drawn = weights[places].prod(axis=1)
        # None of a few pairs may have been drawn.
        return float(drawn @ measured / drawn.sum()) if drawn.any() else float(measured.mean())

    found = bootstrap_interval(mean, len(photos), seed, resamples=1000)
    freedom = max(len(photos) - 1, 1)
    stretch = np.sqrt(1 + 1 / freedom) * (1 + (1.96**2 + 1) / (4 * freedom))
    low, high = (float(found.value + stretch * (end - found.value)) for end in (found.low, found.high))
    return replace(found, low=low, high=high, resampled=[])
