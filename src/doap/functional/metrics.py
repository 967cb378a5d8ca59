"""Metrics of verification: is this pair a match? Pairs have a distance and a label.

All of them follow from how many positives and negatives there are at each distinct distance, so none depends on the
order of the input.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from doap.checks import check_choice, check_shape
from doap.errors import ArgumentError
from doap.functional.average_precision import Ties

Area = Literal["steps", "trapezoid"]


class SortedPairs:
    """Pairs sorted by distance once, to be counted as often as wanted.

    Args:
        distances: (P,), smaller is more alike.
        positive: (P,) bool, some of each kind.

    Attributes:
        positive: (P,) float64, 1 or 0, nearest first; of equal distances the first given.
        thresholds: (T,) the distinct distances, increasing.
    """

    def __init__(self, distances: Tensor, positive: Tensor) -> None:
        pairs = check_shape(distances, "P", name="distances")["P"]
        check_shape(positive, str(pairs), name="positive")
        found = int(positive.sum())
        if found in (0, pairs):
            rule = "positive: expected pairs of both kinds"
            raise ArgumentError(f"{rule}, got {found} positive and {pairs - found} negative")
        ordered, order = distances.sort(stable=True)
        self.positive = positive[order].double()
        last = torch.ones_like(ordered, dtype=torch.bool)
        last[:-1] = ordered[1:] != ordered[:-1]
        self._last = last.nonzero()[:, 0]
        self.thresholds = ordered[self._last].double()

    def __len__(self) -> int:
        return len(self.positive)

    def counts(self, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Positives (T,) and negatives (T,) at each distinct distance, float64.

        Args:
            weights: (P,) how often each pair counts, in the order of `positive`; None is once.
        """
        times = torch.ones_like(self.positive) if weights is None else weights
        positives, total = (self._by_distance(number) for number in (times * self.positive, times))
        return positives, total - positives

    def _by_distance(self, number: Tensor) -> Tensor:
        upto = number.cumsum(0)[self._last]
        return upto.diff(prepend=upto.new_zeros(1))


def fpr_at_recall(distances: Tensor, positive: Tensor, *, recall: float = 0.95, ties: Ties = "pessimistic") -> float:
    """False-positive rate at the smallest threshold that accepts enough of the positives.

    Where that threshold falls among equal distances (Hamming distances always do), the pairs at it are accepted one by
    one until the recall is reached: negatives first (`pessimistic`, what accepting all of them costs), positives first
    (`optimistic`), or the mean over all orders (`expected`).

    >>> fpr_at_recall(torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([True, False, True, False]))
    0.5

    Args:
        distances: (P,), smaller is more alike.
        positive: (P,) bool.
        recall: share of the positives to accept, in (0, 1].
        ties: what to do with equal distances.

    Returns:
        False positives over all negatives.
    """
    return fpr_of_counts(*SortedPairs(distances, positive).counts(), recall=recall, ties=ties)


def fpr_of_counts(positives: Tensor, negatives: Tensor, *, recall: float = 0.95, ties: Ties = "pessimistic") -> float:
    """`fpr_at_recall` of pairs that are counted already: (T,) and (T,) at each distinct distance, nearest first."""
    check_choice(ties, get_args(Ties), name="ties")
    if not 0 < recall <= 1:
        raise ArgumentError(f"recall: expected a share in (0, 1], got {recall}")
    accepted = positives.cumsum(0)
    # The small number undoes 0.95·20 = 19.000000000000004, which would ask for one positive more.
    needed = math.ceil(recall * float(accepted[-1]) - 1e-9)
    at = int(torch.searchsorted(accepted, float(needed)))
    tied_positives, tied_negatives = float(positives[at]), float(negatives[at])
    still_needed = needed - (float(accepted[at]) - tied_positives)
    # Negatives ahead of the r-th of p positives in a random order of them and n negatives: n·r/(p + 1) on average.
    wrong = {
        "pessimistic": tied_negatives,
        "optimistic": 0,
        "expected": tied_negatives * still_needed / (tied_positives + 1),
    }[ties]
    return (float(negatives[:at].sum()) + wrong) / float(negatives.sum())


def average_precision_of_counts(
    positives: Tensor, negatives: Tensor, squares: Tensor | None = None, *, number: float | None = None
) -> Tensor:
    """Average Precision of lists that are counted already, with ties by their expectation.

    With P of a tie's c items positive, B of the C items ahead of it, a positive at its place j = 0…c−1 has a precision
    of (B + 1 + j·(P − 1)/(c − 1)) / (C + 1 + j) on average, as in `average_precision`. Here the sum over j is closed:
    Σ 1 / (C + 1 + j) is ψ(C + c + 1) − ψ(C + 1), so long ties cost nothing.

    An item may also be positive with a chance p only, each on its own, as the nearest of several that tie is right. P
    is then the sum of a tie's p, and P·(P − 1), which the sum over its positives has, becomes P² − Σp².

    Args:
        positives: (…, T) at each distinct distance, nearest first.
        negatives: (…, T).
        squares: (…, T) sums of p²; None where all p are 0 or 1.
        number: how many positives there are, found or not; None is those in the list.

    Returns:
        (…) float64.
    """
    total = positives + negatives
    upto, found = total.cumsum(-1), positives.cumsum(-1)
    ahead, found_ahead = upto - total, found - positives
    harmonic = torch.digamma(upto + 1) - torch.digamma(ahead + 1)
    both = (positives.square() - (positives if squares is None else squares)) / (total - 1).clamp(min=1)
    # A distance may be counted that no item is at: a resampled list has such.
    gain = (positives * (found_ahead + 1) * harmonic + both * (total - (ahead + 1) * harmonic)) / total.clamp(min=1)
    precision: Tensor = gain.sum(-1) / (found[..., -1] if number is None else number)
    return precision


def average_precision_of_chances(distances: Tensor, chances: Tensor, *, number: float | None = None) -> float:
    """Average Precision of answers that are right with a chance each, nearest first; ties by their expectation.

    Args:
        distances: (P,).
        chances: (P,) in 0…1.
        number: how many answers could be right; None is how many are, on average.

    Returns:
        0 where no answer can be right.
    """
    place = distances.unique(return_inverse=True)[1]
    chances = chances.double()
    right, squares, total = (torch.bincount(place, of) for of in (chances, chances.square(), torch.ones_like(chances)))
    return float(average_precision_of_counts(right, total - right, squares, number=number)) if right.any() else 0.0


def average_precision_at_ranks(ranks: Tensor, number: int, area: Area) -> Tensor:
    """Average Precision of lists whose order is settled, as two public programs have it.

    `steps` is the textbook's mean of the precision at each positive. `trapezoid` is the area under straight lines
    between the points of the precision-recall curve, which begins at recall 0 and precision 1: each positive counts
    the mean of the precision at its place and just before it, so it is never more than `steps`, and it is less as soon
    as a positive has a negative ahead of it.

    >>> average_precision_at_ranks(torch.tensor([[1, 3], [2, 3]]), 2, "steps")
    tensor([0.8333, 0.5833], dtype=torch.float64)
    >>> average_precision_at_ranks(torch.tensor([[1, 3], [2, 3]]), 2, "trapezoid")
    tensor([0.7917, 0.4167], dtype=torch.float64)

    Args:
        ranks: (…, F) of the positives that are in a list, from 1, increasing.
        number: how many positives there are, in the list or not.
        area: which of the two.

    Returns:
        (…) float64.
    """
    check_choice(area, get_args(Area), name="area")
    ranks = ranks.double()
    hits = torch.arange(1, ranks.shape[-1] + 1, dtype=torch.float64, device=ranks.device)
    precision = hits / ranks
    if area == "trapezoid":
        before = torch.where(ranks > 1, (hits - 1) / (ranks - 1).clamp(min=1), 1)
        precision = (precision + before) / 2
    return precision.sum(-1) / number


def precision_recall_curve(distances: Tensor, positive: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Precision and recall when all pairs up to a threshold are accepted, one point for each distinct distance.

    Args:
        distances: (P,).
        positive: (P,) bool.

    Returns:
        precision (T,), recall (T,) and thresholds (T,), increasing in recall; float64.
    """
    pairs = SortedPairs(distances, positive)
    hits, wrong = (number.cumsum(0) for number in pairs.counts())
    return hits / (hits + wrong), hits / hits[-1], pairs.thresholds


def roc_curve(distances: Tensor, positive: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Shares of the negatives and of the positives up to a threshold, one point for each distinct distance.

    Args:
        distances: (P,).
        positive: (P,) bool.

    Returns:
        False-positive rate (T,), true-positive rate (T,) and thresholds (T,), increasing; float64.
    """
    pairs = SortedPairs(distances, positive)
    hits, wrong = (number.cumsum(0) for number in pairs.counts())
    return wrong / wrong[-1], hits / hits[-1], pairs.thresholds
