"""Is this pair a match? FPR95 and Average Precision of lists of pairs, with intervals, curves and a histogram."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import accumulate
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.evaluation.bootstrap import bootstrap_interval
from doap.evaluation.result import Curve, Estimate, Figure, Histogram, Scores
from doap.functional.distance import pair_distances
from doap.functional.metrics import (
    SortedPairs,
    average_precision_of_counts,
    fpr_of_counts,
    precision_recall_curve,
    roc_curve,
)

PAIRS_AT_ONCE = 2**16
BINS = 64
POINTS = 200

Statistic = Callable[[Tensor, Tensor], float]
"""Of positives (T,) and negatives (T,) at each distinct distance, nearest first."""


def score_pairs(described: Tensor, positives: Tensor, negatives: Tensor, seed: int) -> Scores:
    """Verification on one list of pairs.

    Args:
        described: (N, D) float32 or (N, D/8) uint8.
        positives: (P, 2) rows of `described` that match.
        negatives: (P′, 2) rows that do not.
        seed: of the intervals, which are over pairs.
    """
    pairs = torch.cat([positives, negatives])
    distances, positive = distances_of_pairs(described, pairs), torch.arange(len(pairs)) < len(positives)
    return Scores(
        verification_figures({"all": SortedPairs(distances, positive)}, seed),
        verification_curves(distances, positive),
        distance_histogram(distances, positive, whole=described.dtype == torch.uint8),
    )


def distances_of_pairs(described: Tensor, pairs: Tensor) -> Tensor:
    """(P,) distances of pairs (P, 2) of rows of `described`; some pairs at a time, for float64 is used within."""
    return torch.cat([pair_distances(*described[part.T]) for part in pairs.split(PAIRS_AT_ONCE)])


def verification_figures(lists: Mapping[str, SortedPairs], seed: int) -> tuple[Figure, ...]:
    """FPR95 and AP of a list of pairs, or of several by name and in the mean; intervals are over pairs.

    FPR95 counts ties against the descriptor, for half of the pairs at a threshold cannot be accepted; what it would be
    with the luckiest order of ties, and with a random one, are figures of their own.
    """
    return (
        _figure("FPR95", "lower", lists, fpr_of_counts, seed),
        _figure("FPR95 optimistic", "lower", lists, lambda *counts: fpr_of_counts(*counts, ties="optimistic"), seed),
        _figure("FPR95 expected", "lower", lists, lambda *counts: fpr_of_counts(*counts, ties="expected"), seed),
        _figure("verification AP", "higher", lists, lambda *counts: float(average_precision_of_counts(*counts)), seed),
    )


def verification_curves(distances: Tensor, positive: Tensor, of: str = "") -> tuple[Curve, Curve]:
    """The precision-recall and the ROC curve of pairs; `of` is added to their names."""
    precision, recall, _ = precision_recall_curve(distances, positive)
    wrong, right, _ = roc_curve(distances, positive)
    return (
        thinned_curve(f"precision-recall{of}", "recall", "precision", recall, precision),
        # Good descriptors differ where hardly anything is wrong: a linear axis would show them as one corner.
        thinned_curve(f"ROC{of}", "false-positive rate", "true-positive rate", wrong, right, x_base=10),
    )


def thinned_curve(name: str, x: str, y: str, xs: Tensor, ys: Tensor, x_base: int | None = None) -> Curve:
    """A curve of at most `POINTS` of its points, as far apart along it as can be: a corner keeps its shape."""
    points = np.stack([xs.numpy(), ys.numpy()], axis=1)
    if x_base:
        points = points[points[:, 0] > 0]
    drawn = np.stack([np.log(points[:, 0]), points[:, 1]], axis=1) if x_base else points
    along = np.concatenate([[0.0], np.abs(np.diff(drawn, axis=0)).sum(axis=1).cumsum()])
    kept = np.unique(np.searchsorted(along, np.linspace(0, along[-1], POINTS)).clip(max=len(points) - 1))
    return Curve(name, x, y, [(float(a), float(b)) for a, b in points[kept]], x_base)


def distance_histogram(distances: Tensor, positive: Tensor, *, whole: bool) -> Histogram:
    """Shares of positive and of negative pairs in `BINS` bins of distances, or fewer.

    Args:
        distances: (P,).
        positive: (P,) bool.
        whole: distances are whole numbers; a bin then holds as many of them as any other, or there would be a comb.
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


def _figure(
    name: str, better: Literal["higher", "lower"], lists: Mapping[str, SortedPairs], statistic: Statistic, seed: int
) -> Figure:
    def of_all(weights: NDArray[np.float64]) -> float:
        return float(np.mean([of_one(pairs, part) for pairs, part in zip(lists.values(), split(weights), strict=True)]))

    def of_one(pairs: SortedPairs, weights: NDArray[np.float64]) -> float:
        return statistic(*pairs.counts(torch.from_numpy(weights)))

    def split(weights: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        return np.split(weights, list(accumulate(map(len, lists.values())))[:-1])

    total = bootstrap_interval(of_all, sum(map(len, lists.values())), seed)
    parts: dict[str, Estimate] = {}
    if len(lists) > 1:
        for part, pairs in lists.items():
            parts[part] = bootstrap_interval(partial(of_one, pairs), len(pairs), seed)
    return Figure(name, better, "pairs", total, parts)
