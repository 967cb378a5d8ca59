"""Bootstrap confidence intervals over queries, image pairs or other units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from doap._support.errors import ArgumentError
from doap._support.random_streams import stream
from doap.evaluation.result import Estimate

LEVEL = 0.95
"""Confidence level of all intervals."""
DECIMALS = 6
"""Decimals of the resamples that are stored in results."""
MIN_CLUSTERS = 3
"""Minimum number of independent units of an interval: resamples of two units only repeat their two values."""


def bootstrap_mean(
    values: ArrayLike, seed: int, *, clusters: NDArray[np.integer] | None = None, resamples: int = 400
) -> Estimate:
    """Estimate the mean of (N,) values with its confidence interval, if there are `MIN_CLUSTERS` values or clusters.

    >>> found = bootstrap_mean([0.0, 1.0, 1.0, 0.0], seed=0)
    >>> found.value, found.low, found.high
    (0.5, 0.0, 1.0)

    Args:
        values: One value for each query, image pair, ….
        seed: Random seed.
        clusters: (N,) integers; the values of a cluster are not independent and are resampled together,
            for example queries of one patch group. None treats every value as independent.
        resamples: Number of resamples.
    """
    values = np.asarray(values, np.float64)
    if values.ndim != 1 or not len(values):
        raise ArgumentError(f"values: expected a non-empty vector, got shape {values.shape}.")
    cluster = np.arange(len(values)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    # The mean over clusters of different sizes is a ratio of two sums.
    sums, counts = np.bincount(cluster, values), np.bincount(cluster).astype(np.float64)
    if len(sums) < MIN_CLUSTERS:
        return Estimate(float(values.mean()), None, None, len(sums))
    means = [float((weights @ sums) / (weights @ counts)) for weights in _resamples(len(sums), seed, resamples)]
    return _estimate(float(values.mean()), means, len(sums))


def bootstrap_interval(
    statistic: Callable[[NDArray[np.float64]], float],
    units: int,
    seed: int,
    resamples: int = 200,
    *,
    clusters: ArrayLike | None = None,
) -> Estimate:
    """Estimate one statistic, as `bootstrap_intervals` does."""
    return bootstrap_intervals(lambda weights: [statistic(weights)], units, seed, resamples, clusters=clusters)[0]


def bootstrap_intervals(
    statistics: Callable[[NDArray[np.float64]], Sequence[float]],
    units: int,
    seed: int,
    resamples: int = 200,
    *,
    clusters: ArrayLike | None = None,
) -> list[Estimate]:
    """Estimate statistics of weighted units with their confidence intervals, if there are `MIN_CLUSTERS` units.

    Args:
        statistics: Function of the weights (units,), how often each unit was drawn, that returns the value of each
            statistic. Weights are whole numbers that sum to `units`.
        units: Number of units.
        seed: Random seed.
        resamples: Number of resamples, the same ones for all statistics.
        clusters: (units,) labels, for example the scene of each image pair. A resample draws clusters with replacement,
            and then units within each of them; a cluster that is drawn twice is resampled twice. The estimate counts
            clusters as units. None treats every unit as independent.
    """
    if units < 1:
        raise ArgumentError(f"units: expected 1 or more, got {units}.")
    count = units if clusters is None else len(np.unique(clusters))
    if count < MIN_CLUSTERS:
        return [Estimate(value, None, None, count) for value in statistics(np.ones(units))]
    if clusters is None:
        weights_of_resamples = _resamples(units, seed, resamples)
    else:
        weights_of_resamples = _cluster_resamples(np.unique(clusters, return_inverse=True)[1], seed, resamples)
    drawn = zip(*(statistics(weights) for weights in weights_of_resamples), strict=True)
    return [_estimate(value, list(some), count) for value, some in zip(statistics(np.ones(units)), drawn, strict=True)]


def central_interval(resampled: ArrayLike) -> tuple[float, float]:
    """Return the limits of the central 95 % of the resamples."""
    low, high = np.quantile(np.asarray(resampled, np.float64), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _resamples(units: int, seed: int, number: int) -> Iterator[NDArray[np.float64]]:
    generator = stream(seed, "bootstrap")
    for _ in range(number):
        yield np.bincount(generator.integers(units, size=units), minlength=units).astype(np.float64)


def _cluster_resamples(cluster: NDArray[np.intp], seed: int, number: int) -> Iterator[NDArray[np.float64]]:
    """Yield weights (units,) of a two-stage bootstrap: clusters, then units within each drawn cluster."""
    generator = stream(seed, "bootstrap")
    members = [np.flatnonzero(cluster == label) for label in range(cluster.max() + 1)]
    for _ in range(number):
        weights = np.zeros(len(cluster))
        for label in generator.integers(len(members), size=len(members)):
            inside = members[label]
            weights[inside] += np.bincount(generator.integers(len(inside), size=len(inside)), minlength=len(inside))
        yield weights


def _estimate(value: float, resampled: list[float], units: int) -> Estimate:
    return Estimate(value, *central_interval(resampled), units, [round(one, DECIMALS) for one in resampled])
