"""The exact Average Precision of rankings, also of ties. `doap.loss` has the one that is optimised.

c⁺ and c are the numbers of positives and of all items in a tie. The query itself is never counted.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from doap._support.checks import check_shape


def average_precision(
    distances: Tensor,
    positive: Tensor,
    valid: Tensor | None = None,
    *,
    without_positives: float = float("nan"),
) -> Tensor:
    """Return the exact Average Precision of each query: the exact mean over all orders of equal distances.

    Without ties this is the textbook AP: the mean over all positives of (positives up to its rank) / rank. Items at
    equal distances have no defined order, and AP depends on it.

    >>> average_precision(torch.tensor([[0.1, 0.2, 0.3]]), torch.tensor([[True, False, True]]))
    tensor([0.8333], dtype=torch.float64)
    >>> average_precision(torch.zeros(1, 10), torch.arange(10)[None] == 0)  # a constant descriptor scores 0.29, not 1
    tensor([0.2929], dtype=torch.float64)

    Args:
        distances: (Q, N).
        positive: (Q, N) bool.
        valid: (Q, N) bool; False removes an item from the ranking of that query. None keeps all items.
        without_positives: Value of a query without positives.
    """
    check_shape(distances, "Q N", name="distances")
    check_shape(positive, " ".join(str(size) for size in distances.shape), name="positive")
    keep = torch.ones_like(positive) if valid is None else valid
    # Removed items are ranked last, where they do not change the rank of any other item.
    ordered, order = torch.where(keep, distances.double(), torch.inf).sort(dim=1, stable=True)
    hits = (positive & keep).gather(1, order).double()
    rank = torch.arange(1, hits.shape[1] + 1, dtype=torch.float64, device=hits.device)
    found = hits.sum(1)
    gain = _expected_gain(ordered, hits, rank).sum(1)
    return torch.where(found > 0, gain / found.clamp(min=1), without_positives)


def _expected_gain(distances: Tensor, hits: Tensor, rank: Tensor) -> Tensor:
    """Mean of [is positive]·precision (Q, N) at each rank, over all orders of the ties.

    The j-th position of a tie (j from 0) holds a positive with probability c⁺/c. Given that, each of the j items
    before it in the tie is one of the c⁺ − 1 other positives with probability (c⁺ − 1)/(c − 1).
    """
    position = torch.arange(hits.shape[1], device=hits.device).expand_as(hits)
    is_first = torch.ones_like(hits, dtype=torch.bool)
    is_first[:, 1:] = distances[:, 1:] != distances[:, :-1]
    is_last = torch.ones_like(is_first)
    is_last[:, :-1] = is_first[:, 1:]
    start = torch.where(is_first, position, 0).cummax(1).values
    end = torch.where(is_last, position, hits.shape[1]).flip(1).cummin(1).values.flip(1)
    cumulative = torch.nn.functional.pad(hits.cumsum(1), (1, 0))
    positives_before = cumulative.gather(1, start)
    positives = cumulative.gather(1, end + 1) - positives_before
    items = (end - start + 1).double()
    other_positive = (positives - 1) / (items - 1).clamp(min=1)
    return positives / items * (positives_before + 1 + (position - start) * other_positive) / rank


def average_precision_by_counting(distances: Tensor, positive: Tensor, distractor: Tensor) -> Tensor:
    """Return `average_precision` with expected ties, by counting instead of sorting.

    It is fast for queries with few positives and thousands of distractors, because only the numbers of distractors
    nearer than a positive and as near as a positive are needed. Let B of the C nearer items be positive, and c⁺ of the
    c items at the same distance. The precision of a positive is the mean of (B + 1 + j·o) / (C + 1 + j) over the
    positions j = 0…c−1 of the tie, with o = (c⁺ − 1)/(c − 1). The sum of 1 / (C + 1 + j) is a difference of two
    harmonic numbers, ψ(C + c + 1) − ψ(C + 1).

    Each row has a positive. Items that are neither positive nor distractor are left out.
    """
    most_positives = int(positive.sum(dim=1).max())
    to_positives = distances.masked_fill(~positive, torch.inf).topk(most_positives, largest=False).values
    to_distractors = distances.masked_fill(~distractor, torch.inf)

    def count(compare: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        columns = [compare(to_distractors, one[:, None]).count_nonzero(dim=1) for one in to_positives.unbind(1)]
        return torch.stack(columns, dim=1)

    positives_nearer = (to_positives[:, None] < to_positives[:, :, None]).sum(dim=2).double()
    positives_tied = (to_positives[:, None] == to_positives[:, :, None]).sum(dim=2).double()
    nearer, tied = positives_nearer + count(torch.lt), positives_tied + count(torch.eq)
    other_positive = (positives_tied - 1) / (tied - 1).clamp(min=1)
    harmonic = torch.digamma(nearer + tied + 1) - torch.digamma(nearer + 1)
    precision = other_positive + (positives_nearer + 1 - other_positive * (nearer + 1)) * harmonic / tied
    # Rows with fewer positives than the row with the most end in infinite distances.
    exists = to_positives.isfinite()
    return (precision * exists).sum(dim=1) / exists.sum(dim=1)
