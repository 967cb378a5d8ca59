"""Metrics of patch verification, where each pair of patches has a distance and a label (match or not).

All metrics are functions of the numbers of positives and negatives at each distinct distance, so they do not depend on
the order of the input.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from doap._support.checks import check_choice, check_shape
from doap._support.errors import ArgumentError

Ties = Literal["expected", "pessimistic", "optimistic"]
Area = Literal["steps", "trapezoid"]


class SortedPairs:
    """Pairs sorted by distance once, to be counted many times with different weights.

    Args:
        distances: (P,); smaller means more similar.
        positive: (P,) bool, with positives and negatives.

    Attributes:
        positive: (P,) float64, 1 or 0, nearest first; equal distances keep their order.
    """

    def __init__(self, distances: Tensor, positive: Tensor) -> None:
        pairs = check_shape(distances, "P", name="distances")["P"]
        check_shape(positive, str(pairs), name="positive")
        found = int(positive.sum())
        if found in (0, pairs):
            rule = "positive: expected pairs of both kinds"
            raise ArgumentError(f"{rule}, got {found} positive and {pairs - found} negative")
        ordered, self._order = distances.sort(stable=True)
        self.positive = positive[self._order].double()
        last = torch.ones_like(ordered, dtype=torch.bool)
        last[:-1] = ordered[1:] != ordered[:-1]
        self._last = last.nonzero()[:, 0]

    def __len__(self) -> int:
        return len(self.positive)

    def counts(self, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the numbers of positives (T,) and negatives (T,) at each distinct distance, float64.

        Each pair counts 1, or its weight in (P,) weights, which are in the order in which the pairs were given.
        """
        times = torch.ones_like(self.positive) if weights is None else weights[self._order]
        positives, total = (self._by_distance(number) for number in (times * self.positive, times))
        return positives, total - positives

    def _by_distance(self, number: Tensor) -> Tensor:
        upto = number.cumsum(0)[self._last]
        return upto.diff(prepend=upto.new_zeros(1))


def fpr_at_recall(distances: Tensor, positive: Tensor, *, recall: float = 0.95, ties: Ties = "pessimistic") -> float:
    """Return the false-positive rate at the smallest threshold that reaches a recall (FPR95 by default).

    Several pairs may be at exactly that threshold, as Hamming distances usually are. They are accepted one by one
    until the recall is reached: negatives first (`pessimistic`, the rate when all of them are accepted), positives
    first (`optimistic`), or in all orders, averaged (`expected`).

    >>> fpr_at_recall(torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([True, False, True, False]))
    0.5

    Args:
        distances: (P,); smaller means more similar.
        positive: (P,) bool.
        recall: Fraction of the positives to accept, in (0, 1].
        ties: Policy for equal distances.
    """
    return fpr_of_counts(*SortedPairs(distances, positive).counts(), recall=recall, ties=ties)


def fpr_of_counts(positives: Tensor, negatives: Tensor, *, recall: float = 0.95, ties: Ties = "pessimistic") -> float:
    """Return `fpr_at_recall` from the counts (T,) and (T,) of `SortedPairs.counts`, nearest distance first."""
    check_choice(ties, get_args(Ties), name="ties")
    if not 0 < recall <= 1:
        raise ArgumentError(f"recall: expected a fraction in (0, 1], got {recall}")
    accepted = positives.cumsum(0)
    # Without the small number, 0.28·25 = 7.000000000000001 would require one positive too many.
    needed = math.ceil(recall * float(accepted[-1]) - 1e-9)
    at = int(torch.searchsorted(accepted, float(needed)))
    tied_positives, tied_negatives = float(positives[at]), float(negatives[at])
    still_needed = needed - (float(accepted[at]) - tied_positives)
    # In a random order of p positives and n negatives, n·r/(p + 1) negatives precede the r-th positive on average.
    wrong = {
        "pessimistic": tied_negatives,
        "optimistic": 0,
        "expected": tied_negatives * still_needed / (tied_positives + 1),
    }[ties]
    return (float(negatives[:at].sum()) + wrong) / float(negatives.sum())


def average_precision_of_counts(
    positives: Tensor, negatives: Tensor, squares: Tensor | None = None, *, number: float | None = None
) -> Tensor:
    """Return the Average Precision of counted pairs, with ties by their expectation.

    Let a tie have c items, P of them positive, and let C items precede it, B of them positive. A positive at position
    j = 0…c−1 of the tie has an expected precision of (B + 1 + j·(P − 1)/(c − 1)) / (C + 1 + j), as in
    `average_precision`. The sum over j has a closed form, since Σ 1 / (C + 1 + j) = ψ(C + c + 1) − ψ(C + 1).

    An item may also be positive with a probability p, independently of the others. P is then the sum of p over the
    tie, and the number of ordered pairs of positives, P·(P − 1), becomes P² − Σp².

    Args:
        positives, negatives: (…, T) numbers at each distinct distance, nearest first.
        squares: (…, T) sums of p²; None if every p is 0 or 1.
        number: Number of positives, retrieved or not. None counts the retrieved ones.
    """
    total = positives + negatives
    upto, found = total.cumsum(-1), positives.cumsum(-1)
    before, found_before = upto - total, found - positives
    harmonic = torch.digamma(upto + 1) - torch.digamma(before + 1)
    positive_pairs = positives.square() - (positives if squares is None else squares)
    other_positive = positive_pairs / (total - 1).clamp(min=1)
    gain = positives * (found_before + 1) * harmonic + other_positive * (total - (before + 1) * harmonic)
    # A bootstrap sample may have no item at some of the distances.
    gain = gain / total.clamp(min=1)
    precision: Tensor = gain.sum(-1) / (found[..., -1] if number is None else number)
    return precision


def average_precision_of_chances(distances: Tensor, chances: Tensor, *, number: float | None = None) -> float:
    """Return the Average Precision of answers at distances (P,) that are correct with probabilities (P,).

    `number` answers could be correct; None means the expected number of correct ones. The value is 0 if none can be.
    """
    index = distances.unique(return_inverse=True)[1]
    chances = chances.double()
    correct = torch.bincount(index, chances)
    squares = torch.bincount(index, chances.square())
    total = torch.bincount(index, torch.ones_like(chances))
    if not correct.any():
        return 0.0
    return float(average_precision_of_counts(correct, total - correct, squares, number=number))


def average_precision_at_ranks(ranks: Tensor, number: int, area: Area) -> Tensor:
    """Return the Average Precision of rankings without ties, as two public programs define it.

    `steps` is the textbook definition, the mean of the precision at each positive. `trapezoid` is the area under
    straight lines between the points of the precision-recall curve, which begins at recall 0 and precision 1. A
    positive then contributes the mean of the precisions at its rank and just before it. The value is at most that of
    `steps`, and smaller if any positive is ranked behind a negative.

    >>> average_precision_at_ranks(torch.tensor([[1, 3], [2, 3]]), 2, "steps")
    tensor([0.8333, 0.5833], dtype=torch.float64)
    >>> average_precision_at_ranks(torch.tensor([[1, 3], [2, 3]]), 2, "trapezoid")
    tensor([0.7917, 0.4167], dtype=torch.float64)

    Args:
        ranks: (…, F) ranks of the retrieved positives, from 1, increasing.
        number: Number of positives, retrieved or not.
        area: Definition of AP.
    """
    check_choice(area, get_args(Area), name="area")
    ranks = ranks.double()
    hits = torch.arange(1, ranks.shape[-1] + 1, dtype=torch.float64, device=ranks.device)
    precision = hits / ranks
    if area == "trapezoid":
        before = torch.where(ranks > 1, (hits - 1) / (ranks - 1).clamp(min=1), 1)
        precision = (precision + before) / 2
    return precision.sum(-1) / number


def rates_at_thresholds(distances: Tensor, positive: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return precision (T,), recall (T,) and false-positive rate (T,) at each distinct one of distances (P,)."""
    hits, wrong = (number.cumsum(0) for number in SortedPairs(distances, positive).counts())
    return hits / (hits + wrong), hits / hits[-1], wrong / wrong[-1]
