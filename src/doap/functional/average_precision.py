"""Average Precision of ranked lists: exact, with ties told honestly, and the relaxations that can be optimised.

Notation, for one query: c⁺ and c are the counts of positives and of all items in a bin (or in a tie), C⁺ and C their
running sums including that bin, N⁺ the number of positives. The query itself is never counted.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from doap.checks import check_choice, check_shape

APForm = Literal["simplified", "fastap"]
Ties = Literal["expected", "pessimistic", "optimistic"]


def average_precision(
    distances: Tensor,
    positive: Tensor,
    valid: Tensor | None = None,
    *,
    ties: Ties = "expected",
    without_positives: float = float("nan"),
) -> Tensor:
    """Exact Average Precision of each query, with a named policy for equal distances.

    Among equal distances the order is arbitrary, so AP is a random number. `expected` is its exact mean over all
    orders; `pessimistic` puts the positives of each tie last, `optimistic` first. On lists without ties the three are
    the textbook AP: the mean, over positives, of (positives up to its rank) / rank.

    >>> average_precision(torch.tensor([[0.1, 0.2, 0.3]]), torch.tensor([[True, False, True]]))
    tensor([0.8333], dtype=torch.float64)
    >>> average_precision(torch.zeros(1, 10), torch.arange(10)[None] == 0)  # a constant descriptor earns 0.29, not 1
    tensor([0.2929], dtype=torch.float64)

    Args:
        distances: (Q, N).
        positive: (Q, N) bool.
        valid: (Q, N) bool or None; False leaves an item out of that query's list.
        ties: what to do with equal distances.
        without_positives: the value given to a query that has none.

    Returns:
        (Q,) float64.
    """
    check_shape(distances, "Q N", name="distances")
    check_shape(positive, " ".join(str(size) for size in distances.shape), name="positive")
    check_choice(ties, get_args(Ties), name="ties")
    keep = torch.ones_like(positive) if valid is None else valid
    # Items left out go behind all others, where they cannot touch anyone's rank.
    distances = torch.where(keep, distances.double(), torch.inf)
    positive = positive & keep
    if ties != "expected":
        # A stable sort by relevance and then by distance orders each tie as the policy says.
        first = positive if ties == "optimistic" else ~positive
        distances, positive = _sort(first.logical_not().double(), distances, positive)[1:]
    distances, positive = _sort(distances, positive)
    hits = positive.double()
    rank = torch.arange(1, hits.shape[1] + 1, dtype=torch.float64, device=hits.device)
    gain = _expected_gain(distances, hits, rank) if ties == "expected" else hits * hits.cumsum(1) / rank
    found = hits.sum(1)
    return torch.where(found > 0, gain.sum(1) / found.clamp(min=1), without_positives)


def _sort(key: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    key, order = key.sort(dim=1, stable=True)
    return (key, *(other.gather(1, order) for other in others))


def _expected_gain(distances: Tensor, hits: Tensor, rank: Tensor) -> Tensor:
    """(Q, N) mean over the orders of each tie of [is positive]·precision, rank by rank.

    At the j-th place of a tie (from 0), given that a positive stands there (chance c⁺/c), each of the j before it is
    one of the c⁺−1 others with chance (c⁺−1)/(c−1).
    """
    place = torch.arange(hits.shape[1], device=hits.device).expand_as(hits)
    new = torch.ones_like(hits, dtype=torch.bool)
    new[:, 1:] = distances[:, 1:] != distances[:, :-1]
    last = torch.ones_like(new)
    last[:, :-1] = new[:, 1:]
    start = torch.where(new, place, 0).cummax(1).values
    end = torch.where(last, place, hits.shape[1]).flip(1).cummin(1).values.flip(1)
    running = torch.nn.functional.pad(hits.cumsum(1), (1, 0))
    before, upto = running.gather(1, start), running.gather(1, end + 1)
    in_tie, of_tie = (end - start + 1).double(), upto - before
    others = (of_tie - 1) / (in_tie - 1).clamp(min=1)
    return of_tie / in_tie * (before + 1 + (place - start) * others) / rank


def average_precision_by_counting(distances: Tensor, positive: Tensor, distractor: Tensor) -> Tensor:
    """What `average_precision` gives with expected ties, by counting instead of sorting.

    For queries with few positives and thousands of distractors: only how many of these are nearer than a positive, or
    as near, matters. With B of C nearer items positive, and c⁺ of c at its own distance, a positive's precision is the
    mean of (B + 1 + j·o) / (C + 1 + j) over the places j = 0…c−1 of the tie, o = (c⁺ − 1)/(c − 1); the sum of
    1 / (C + 1 + j) is a difference of two harmonic numbers, ψ(C + c + 1) − ψ(C + 1).

    Args:
        distances: (Q, N).
        positive: (Q, N) bool, at least one in each row.
        distractor: (Q, N) bool; an item that is neither is left out.

    Returns:
        (Q,) float64.
    """
    few = int(positive.sum(dim=1).max())
    near = distances.masked_fill(~positive, torch.inf).topk(few, largest=False).values
    strangers = distances.masked_fill(~distractor, torch.inf)
    nearer, tied = (
        torch.stack([compare(strangers, one[:, None]).count_nonzero(dim=1) for one in near.unbind(1)], dim=1)
        for compare in (torch.lt, torch.eq)
    )
    before = (near[:, None] < near[:, :, None]).sum(dim=2).double()
    beside = (near[:, None] == near[:, :, None]).sum(dim=2).double()
    upto, tie = before + nearer, beside + tied
    slope = (beside - 1) / (tie - 1).clamp(min=1)
    harmonic = torch.digamma(upto + tie + 1) - torch.digamma(upto + 1)
    precision = slope + (before + 1 - slope * (upto + 1)) * harmonic / tie
    # A row with fewer positives than others ends in infinite distances.
    real = near.isfinite()
    return (precision * real).sum(dim=1) / real.sum(dim=1)


def relaxed_average_precision(positives: Tensor, total: Tensor, *, form: APForm = "simplified") -> Tensor:
    """Average Precision from soft histograms, differentiable: what DOAP optimises.

    `simplified` ranks a bin's items at its middle: (1/N⁺) Σ c⁺ (C⁺ + C⁺₋₁ + 1) / (C + C₋₁ + 1).
    `fastap` ranks them at its end: (1/N⁺) Σ c⁺ C⁺ / C.
    For one positive exact ≥ simplified ≥ fastap; for more neither is a bound: behind one distractor, two positives that
    tie have 0.583, 0.6 and 0.667.

    Args:
        positives: (Q, K) soft counts of positives per bin, nearest bin first.
        total: (Q, K) soft counts of all items, positives included.
        form: which relaxation.

    Returns:
        (Q,); 0 for a query without positives.
    """
    numerator, denominator = _bin_precision(positives, total, form)
    return (positives * numerator / denominator).sum(1) / positives.sum(1).clamp(min=1)


def relaxed_average_precision_and_slopes(
    positives: Tensor, total: Tensor, *, form: APForm = "simplified"
) -> tuple[Tensor, Tensor, Tensor]:
    """`relaxed_average_precision` and its closed-form slopes, with N⁺ held fixed as soft counts conserve it.

    With n/t the precision of a bin, both sums of counts over the bins so far, moving one item into bin j changes n
    (for a positive) and t (for any item) in bin j and in all bins behind it.

    Returns:
        (Q,) AP, (Q, K) ∂AP/∂c⁺ and (Q, K) ∂AP/∂c; a positive moves both counts, so its slope is their sum.
    """
    numerator, denominator = _bin_precision(positives, total, form)
    precision = numerator / denominator
    number = positives.sum(1, keepdim=True).clamp(min=1)
    share = positives / number
    by_numerator = share / denominator
    by_positive = precision / number + _behind(by_numerator, form)
    return (share * precision).sum(1), by_positive, -_behind(by_numerator * precision, form)


def _bin_precision(positives: Tensor, total: Tensor, form: APForm) -> tuple[Tensor, Tensor]:
    """Numerator and denominator of each bin's precision; an empty start has denominator 1, never 0."""
    if form == "simplified":
        return 2 * positives.cumsum(1) - positives + 1, 2 * total.cumsum(1) - total + 1
    running = total.cumsum(1)
    # Bins ahead of the first item hold no positives either: any denominator will do, 0/0 will not.
    return positives.cumsum(1), torch.where(running > 0, running, 1)


def _behind(slope: Tensor, form: APForm) -> Tensor:
    """Carry each bin's slope to the counts it was made from: its own and those of all bins before."""
    suffix = slope.flip(1).cumsum(1).flip(1)
    return 2 * suffix - slope if form == "simplified" else suffix
