"""Patch retrieval: the Average Precision of queries among many distractors, exact and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from doap.checks import check_shape
from doap.errors import ArgumentError
from doap.functional.average_precision import average_precision_by_counting
from doap.functional.distance import pair_distances, table_distances, widened
from doap.functional.metrics import Area, average_precision_at_ranks, average_precision_of_counts
from doap.functional.pairs import rows_at_a_time

APProtocol = Literal["tie-aware", "python", "matlab"]
"""How a list becomes a number: with ties by their expectation, or as a program of HPatches does it."""

FORMS: tuple[APProtocol, ...] = ("tie-aware", "python", "matlab")
AREA: dict[APProtocol, Area] = {"python": "trapezoid", "matlab": "steps"}


def precision_among(
    queries: Tensor, matches: Tensor, distractors: Tensor, ways: Sequence[tuple[APProtocol, int]]
) -> Tensor:
    """AP of each query, whose matches are its own, among distractors that all queries share.

    `python` and `matlab` put the matches ahead of the distractors that tie with them, for this is the order in which
    both programs write the list that they sort: equal descriptors score 1 there.

    Args:
        queries: (Q, D) float32 or (Q, D/8) uint8.
        matches: (Q, V, P, D): P matches of each query, in each of V variants of the task that are apart.
        distractors: (N, D).
        ways: W forms, each with the number of distractors it looks at, the first of them.

    Returns:
        (Q, V, W) float64. Memory is that of some rows of the (Q, N) distances.
    """
    dim = check_shape(queries, "Q D", name="queries")["D"]
    check_shape(distractors, f"N {dim}", name="distractors")
    check_shape(matches, f"{len(queries)} V P {dim}", name="matches")
    queries, matches, distractors = widened(queries), widened(matches), widened(distractors)
    blocks = []
    for some, theirs in zip(*(one.split(rows_at_a_time(distractors)) for one in (queries, matches)), strict=True):
        far = table_distances(some, distractors)
        near = pair_distances(some[:, None, None].expand_as(theirs).flatten(0, 2), theirs.flatten(0, 2))
        variants = near.view(theirs.shape[:3]).sort(dim=2).values.unbind(1)
        blocks.append(torch.stack([_by_ways(variant, far, ways) for variant in variants], dim=1))
    return torch.cat(blocks)


def precision_by_label(described: Tensor, labels: Tensor, queries: Tensor, gallery: Tensor) -> Tensor:
    """AP of queries in a gallery where an equal label means match, with ties by their expectation.

    A query that is in the gallery too is left out of its own list.

    Args:
        described: (M, D) float32 or (M, D/8) uint8.
        labels: (M,).
        queries: (Q,) rows of `described`, each with a match in the gallery.
        gallery: (N,) rows of `described`.

    Returns:
        (Q,) float64. Memory is that of some rows of the (Q, N) distances.
    """
    described = widened(described)
    among = described[gallery]
    blocks = []
    for rows in queries.split(rows_at_a_time(among)):
        same = labels[rows, None] == labels[gallery]
        positive = same & (rows[:, None] != gallery)
        lonely = int((~positive.any(dim=1)).sum())
        if lonely:
            raise ArgumentError(
                f"queries: expected a match in the gallery for each, got {lonely} without; leave them out"
            )
        blocks.append(average_precision_by_counting(table_distances(described[rows], among), positive, ~same))
    return torch.cat(blocks)


def _by_ways(near: Tensor, far: Tensor, ways: Sequence[tuple[APProtocol, int]]) -> Tensor:
    """(R, W) AP from distances (R, P) to the matches, nearest first, and (R, N) to the distractors."""
    bounds = sorted({number for _, number in ways})
    nearer, tied = (_count(near, far, bounds, compare) for compare in (torch.lt, torch.eq))
    precision = []
    for form, number in ways:
        upto = bounds.index(number)
        if form == "tie-aware":
            precision.append(average_precision_of_counts(*_counts(near, nearer[upto], tied[upto])))
        else:
            ranks = nearer[upto] + torch.arange(1, near.shape[1] + 1)
            precision.append(average_precision_at_ranks(ranks, near.shape[1], AREA[form]))
    return torch.stack(precision, dim=1)


def _count(near: Tensor, far: Tensor, bounds: Sequence[int], compare: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """(B, R, P) how many of the distractors up to each bound compare so with each match."""
    parts = far[:, : bounds[-1]].tensor_split(bounds[:-1], dim=1)
    # One match at a time: all at once would be a table of (R, P, N).
    counts = [
        torch.stack([compare(part, one[:, None]).count_nonzero(dim=1) for one in near.unbind(1)], 1) for part in parts
    ]
    return torch.stack(counts).cumsum(0)


def _counts(near: Tensor, nearer: Tensor, tied: Tensor) -> tuple[Tensor, Tensor]:
    """Positives (R, 2P) and negatives (R, 2P) at each place of a list: between two matches, and at a match.

    Of matches that tie, the first stands for all.
    """
    first = near.diff(prepend=near.new_full((len(near), 1), -1)) > 0
    beside = (near[:, :, None] == near[:, None]).sum(dim=2)
    between = nearer.diff(prepend=nearer.new_zeros(len(near), 1))
    between[:, 1:] -= tied[:, :-1]
    positives = torch.stack([torch.zeros_like(beside), beside * first], dim=2)
    negatives = torch.stack([between * first, tied * first], dim=2)
    return positives.flatten(1).double(), negatives.flatten(1).double()
