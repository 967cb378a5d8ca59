"""Verification: FPR95 and Average Precision of labelled pairs, with intervals, curves and a histogram."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.evaluation.bootstrap import bootstrap_intervals
from doap.evaluation.result import Curve, Direction, Estimate, Figure, Histogram, Scores
from doap.metrics.distance import pair_distances
from doap.metrics.metrics import SortedPairs, average_precision_of_counts, fpr_of_counts, rates_at_thresholds

PAIRS_AT_ONCE = 2**16
BINS = 64
MAX_POINTS = 200
"""Maximum number of points of a curve."""

Statistic = Callable[[Tensor, Tensor], float]
"""Function of the numbers of positives (T,) and negatives (T,) at each distinct distance, nearest first."""


def verification_scores(
    descriptors: Tensor, positives: Tensor, negatives: Tensor, seed: int, *, scenes: NDArray[np.int64] | None = None
) -> Scores:
    """Score verification on one list of pairs (P, 2) of rows of descriptors (N, D).

    With the scene (N,) of each row, the bootstrap resamples scenes, and pairs within them, where a pair belongs to the
    scene of its first row. None treats pairs as independent.
    """
    pairs = torch.cat([positives, negatives])
    distances, positive = distances_of_pairs(descriptors, pairs), torch.arange(len(pairs)) < len(positives)
    clusters = None if scenes is None else scenes[pairs[:, 0].numpy()]
    return Scores(
        verification_figures({"all": SortedPairs(distances, positive)}, seed, clusters=clusters),
        verification_curves(distances, positive),
        distance_histogram(distances, positive, whole=descriptors.dtype == torch.uint8),
    )


def distances_of_pairs(descriptors: Tensor, pairs: Tensor) -> Tensor:
    """Return the distances (P,) of pairs (P, 2) of rows, computed in chunks because they use float64 inside."""
    return torch.cat([pair_distances(*descriptors[part.T]) for part in pairs.split(PAIRS_AT_ONCE)])


def verification_figures(
    lists: Mapping[str, SortedPairs], seed: int, *, clusters: NDArray[np.int64] | None = None
) -> tuple[Figure, ...]:
    """Return FPR95 and AP of one or more lists of pairs: the mean over the lists, and each list as a part.

    FPR95 counts ties against the descriptor, because a threshold accepts all pairs of one distance or none.
    `optimistic` (best order of ties) and `expected` (random order) are separate figures.

    Args:
        lists: Pairs by name.
        seed: Seed of the bootstrap.
        clusters: (P,) scene of each of the pairs of all lists, which are resampled first; None to resample pairs only.
    """
    statistics: dict[str, tuple[Direction, Statistic]] = {
        "FPR95": ("lower", fpr_of_counts),
        "FPR95 optimistic": ("lower", partial(fpr_of_counts, ties="optimistic")),
        "FPR95 expected": ("lower", partial(fpr_of_counts, ties="expected")),
        "verification AP": ("higher", lambda *counts: float(average_precision_of_counts(*counts))),
    }
    sizes = [len(pairs) for pairs in lists.values()]
    cuts = list(accumulate(sizes))[:-1]

    def of_list(pairs: SortedPairs, weights: NDArray[np.float64]) -> list[float]:
        # Drawing and counting the pairs takes longer than a statistic of the counts.
        counts = pairs.counts(torch.from_numpy(weights))
        return [statistic(*counts) for _, statistic in statistics.values()]

    def means_of_lists(weights: NDArray[np.float64]) -> list[float]:
        by_list = zip(lists.values(), np.split(weights, cuts), strict=True)
        means: list[float] = np.mean([of_list(pairs, part) for pairs, part in by_list], axis=0).tolist()
        return means

    totals = bootstrap_intervals(means_of_lists, sum(sizes), seed, clusters=clusters)
    parts: dict[str, list[Estimate]] = {}
    if len(lists) > 1:
        for part, pairs in lists.items():
            parts[part] = bootstrap_intervals(partial(of_list, pairs), len(pairs), seed)
    unit = "pairs" if clusters is None else "scenes"
    figures = []
    for row, (name, (better, _)) in enumerate(statistics.items()):
        of_parts = {part: estimates[row] for part, estimates in parts.items()}
        figures.append(Figure(name, better, unit, totals[row], of_parts, part_unit="pairs"))
    return tuple(figures)


def verification_curves(distances: Tensor, positive: Tensor, suffix: str = "") -> tuple[Curve, Curve]:
    """Return the precision-recall and the ROC curve of pairs; `suffix` is appended to their names."""
    precision, recall, false_positives = rates_at_thresholds(distances, positive)
    return (
        thinned_curve(f"precision-recall{suffix}", "recall", "precision", recall, precision),
        # Good descriptors differ at low false-positive rates, which a linear axis would hide.
        thinned_curve(f"ROC{suffix}", "false-positive rate", "true-positive rate", false_positives, recall, x_base=10),
    )


def thinned_curve(name: str, x: str, y: str, xs: Tensor, ys: Tensor, x_base: int | None = None) -> Curve:
    """Return a curve of at most `MAX_POINTS` points, evenly spaced along its length so that corners stay sharp."""
    points = np.stack([xs.numpy(), ys.numpy()], axis=1)
    if x_base:
        points = points[points[:, 0] > 0]
    drawn = np.stack([np.log(points[:, 0]), points[:, 1]], axis=1) if x_base else points
    length = np.concatenate([[0.0], np.abs(np.diff(drawn, axis=0)).sum(axis=1).cumsum()])
    positions = np.linspace(0, length[-1], MAX_POINTS)
    kept = np.unique(np.searchsorted(length, positions).clip(max=len(points) - 1))
    return Curve(name, x, y, [(float(a), float(b)) for a, b in points[kept]], x_base)


def distance_histogram(distances: Tensor, positive: Tensor, *, whole: bool) -> Histogram:
    """Return the histograms of the distances (P,) of positive and of negative pairs in at most `BINS` + 1 bins.

    Each bin covers equally many whole numbers if the distances are whole numbers.
    """
    largest = float(distances.max()) or 1.0
    if whole:
        step = int(largest) // BINS + 1
        edges = np.arange(0, largest + step + 1, step) - 0.5
    else:
        edges = np.linspace(0, largest, BINS + 1)
    shares = [
        np.histogram(distances[kind].double().numpy(), edges)[0] / int(kind.sum()) for kind in (positive, ~positive)
    ]
    return Histogram(edges.tolist(), *(share.tolist() for share in shares))
