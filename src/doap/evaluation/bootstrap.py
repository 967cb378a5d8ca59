"""How far chance may have moved a figure: the bootstrap, over queries, pairs of images or whatever was sampled."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from doap.errors import ArgumentError
from doap.evaluation.result import Estimate
from doap.random_streams import stream

SHARE = 0.95
DECIMALS = 6


def bootstrap_mean(
    values: ArrayLike, seed: int, *, clusters: NDArray[np.integer] | None = None, resamples: int = 400
) -> Estimate:
    """The mean of (N,) values and its interval.

    Args:
        values: one for each query, pair of images, ….
        seed: of the resampling.
        clusters: (N,) integers; values of one cluster are drawn or left out together, for they are not independent (the
            patches of one group, as queries). None is each on its own.
        resamples: how many.
    """
    values = np.asarray(values, np.float64)
    if values.ndim != 1 or not len(values):
        raise ArgumentError(f"values: expected one or more in a row, got shape {values.shape}")
    of = np.arange(len(values)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    # A mean of clusters is a ratio of sums: what each adds, and how many values that is.
    sums, counts = np.bincount(of, values), np.bincount(of).astype(np.float64)
    means = [float((weights @ sums) / (weights @ counts)) for weights in _resamples(len(sums), seed, resamples)]
    return _estimate(float(values.mean()), means, len(sums))


def bootstrap_interval(
    statistic: Callable[[NDArray[np.float64]], float], units: int, seed: int, resamples: int = 200
) -> Estimate:
    """Any statistic of weighted units and its interval.

    Args:
        statistic: of weights (units,), how often each unit counts; whole numbers from 0, summing to `units`.
        units: how many there are.
        seed: of the resampling.
        resamples: how many.
    """
    if units < 1:
        raise ArgumentError(f"units: expected 1 or more, got {units}")
    drawn = [statistic(weights) for weights in _resamples(units, seed, resamples)]
    return _estimate(statistic(np.ones(units)), drawn, units)


def _resamples(units: int, seed: int, number: int) -> Iterator[NDArray[np.float64]]:
    generator = stream(seed, "bootstrap")
    for _ in range(number):
        yield np.bincount(generator.integers(units, size=units), minlength=units).astype(np.float64)


def _estimate(value: float, resampled: list[float], units: int) -> Estimate:
    return Estimate(value, *middle(resampled), units, [round(one, DECIMALS) for one in resampled])


def middle(resampled: ArrayLike) -> tuple[float, float]:
    """Between which values 95 % of the resamples lie."""
    low, high = np.quantile(np.asarray(resampled, np.float64), [(1 - SHARE) / 2, (1 + SHARE) / 2])
    return float(low), float(high)
