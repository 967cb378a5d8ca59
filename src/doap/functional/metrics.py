"""Metrics of verification: is this pair a match? Pairs have a distance and a label."""

from __future__ import annotations

import math
from typing import get_args

import torch
from torch import Tensor

from doap.errors import ArgumentError, check_choice, check_shape
from doap.functional.average_precision import Ties


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
    positives, negatives = _split(distances, positive)
    check_choice(ties, get_args(Ties), name="ties")
    if not 0 < recall <= 1:
        raise ArgumentError(f"recall: expected a share in (0, 1], got {recall}")
    # The small number undoes 0.95·20 = 19.000000000000004, which would ask for one positive more.
    needed = math.ceil(recall * len(positives) - 1e-9)
    threshold = positives.kthvalue(needed).values
    below = int((negatives < threshold).sum())
    tied_negatives = int((negatives == threshold).sum())
    tied_positives = int((positives == threshold).sum())
    still_needed = needed - int((positives < threshold).sum())
    # Negatives ahead of the r-th of p positives in a random order of them and n negatives: n·r/(p + 1) on average.
    accepted = {
        "pessimistic": tied_negatives,
        "optimistic": 0,
        "expected": tied_negatives * still_needed / (tied_positives + 1),
    }[ties]
    return (below + accepted) / len(negatives)


def precision_recall_curve(distances: Tensor, positive: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Precision and recall when all pairs up to a threshold are accepted, one point for each distinct distance.

    Equal distances are accepted together, so the curve does not depend on the order of the input.

    Args:
        distances: (P,).
        positive: (P,) bool.

    Returns:
        precision (T,), recall (T,) and thresholds (T,), increasing in recall; float64.
    """
    _split(distances, positive)
    ordered, order = distances.double().sort()
    hits = positive[order].double().cumsum(0)
    last_of_tie = torch.ones_like(ordered, dtype=torch.bool)
    last_of_tie[:-1] = ordered[1:] != ordered[:-1]
    accepted = torch.arange(1, len(ordered) + 1, dtype=torch.float64, device=hits.device)
    return (hits / accepted)[last_of_tie], (hits / hits[-1])[last_of_tie], ordered[last_of_tie]


def _split(distances: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    pairs = check_shape(distances, "P", name="distances")["P"]
    check_shape(positive, str(pairs), name="positive")
    positives, negatives = distances[positive], distances[~positive]
    if not len(positives) or not len(negatives):
        raise ArgumentError(
            f"positive: expected pairs of both kinds, got {len(positives)} positive and {len(negatives)} negative"
        )
    return positives, negatives
