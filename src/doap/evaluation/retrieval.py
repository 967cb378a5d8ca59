"""Patch retrieval: exact Average Precision of queries among many distractors, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from doap._support.checks import check_shape
from doap._support.errors import ArgumentError
from doap.metrics.average_precision import average_precision_by_counting
from doap.metrics.distance import pair_distances, table_distances, widened
from doap.metrics.metrics import Area, average_precision_at_ranks, average_precision_of_counts
from doap.metrics.pairs import rows_at_a_time

APProtocol = Literal["tie-aware", "python", "matlab"]
"""How AP is computed: expected over random orders of ties, or as one of the two programs of HPatches does."""

AP_PROTOCOLS: tuple[APProtocol, ...] = ("tie-aware", "python", "matlab")
AREA: dict[APProtocol, Area] = {"python": "trapezoid", "matlab": "steps"}
"""How the two programs integrate the precision-recall curve."""


def precision_among(
    queries: Tensor, matches: Tensor, distractors: Tensor, protocols: Sequence[tuple[APProtocol, int]]
) -> Tensor:
    """Return the AP of each query, with its own matches, among distractors that all queries share.

    `python` and `matlab` rank matches before distractors of the same distance, because both programs list
    the matches first and then sort. Equal descriptors therefore score 1 there.

    Args:
        queries: (Q, D) float32 or (Q, D/8) uint8.
        matches: (Q, V, P, D): P matches of each query in each of V independent variants of the task.
        distractors: (N, D).
        protocols: W protocols, each with the number of distractors it uses, counted from the first.

    Returns:
        (Q, V, W) float64. Only a few rows of the (Q, N) distances are in memory at a time.
    """
    dim = check_shape(queries, "Q D", name="queries")["D"]
    check_shape(distractors, f"N {dim}", name="distractors")
    check_shape(matches, f"{len(queries)} V P {dim}", name="matches")
    queries, matches, distractors = widened(queries), widened(matches), widened(distractors)
    rows = rows_at_a_time(distractors)
    blocks = []
    for some, own in zip(queries.split(rows), matches.split(rows), strict=True):
        far = table_distances(some, distractors)
        near = pair_distances(some[:, None, None].expand_as(own).flatten(0, 2), own.flatten(0, 2))
        variants = near.view(own.shape[:3]).sort(dim=2).values.unbind(1)
        blocks.append(torch.stack([_by_protocol(variant, far, protocols) for variant in variants], dim=1))
    return torch.cat(blocks)


def precision_by_label(descriptors: Tensor, labels: Tensor, queries: Tensor, gallery: Tensor) -> Tensor:
    """Return the AP of queries in a gallery where equal labels match, expected over random orders of ties.

    A query that is in the gallery too is not retrieved by itself.

    Args:
        descriptors: (M, D) float32 or (M, D/8) uint8.
        labels: (M,) labels.
        queries: (Q,) rows of `descriptors`, each with a match in the gallery.
        gallery: (N,) rows of `descriptors`.

    Returns:
        (Q,) float64. Only a few rows of the (Q, N) distances are in memory at a time.
    """
    descriptors = widened(descriptors)
    searched = descriptors[gallery]
    blocks = []
    for rows in queries.split(rows_at_a_time(searched)):
        same = labels[rows, None] == labels[gallery]
        positive = same & (rows[:, None] != gallery)
        unmatched = int((~positive.any(dim=1)).sum())
        if unmatched:
            raise ArgumentError(
                f"queries: {unmatched} have no match in the gallery. Leave out queries without a match."
            )
        blocks.append(average_precision_by_counting(table_distances(descriptors[rows], searched), positive, ~same))
    return torch.cat(blocks)


def _by_protocol(near: Tensor, far: Tensor, protocols: Sequence[tuple[APProtocol, int]]) -> Tensor:
    """Return the AP (R, W) from sorted distances (R, P) to the matches and (R, N) to the distractors."""
    bounds = sorted({number for _, number in protocols})
    nearer, tied = (_count(near, far, bounds, compare) for compare in (torch.lt, torch.eq))
    precision = []
    for protocol, number in protocols:
        bound = bounds.index(number)
        if protocol == "tie-aware":
            precision.append(average_precision_of_counts(*_counts_by_distance(near, nearer[bound], tied[bound])))
        else:
            ranks = nearer[bound] + torch.arange(1, near.shape[1] + 1)
            precision.append(average_precision_at_ranks(ranks, near.shape[1], AREA[protocol]))
    return torch.stack(precision, dim=1)


def _count(near: Tensor, far: Tensor, bounds: Sequence[int], compare: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Count (B, R, P): for how many of the first distractors, up to each bound, `compare` holds with each match."""
    counts = []
    for part in far[:, : bounds[-1]].tensor_split(bounds[:-1], dim=1):
        # One match at a time: all at once would need an (R, P, N) table.
        columns = [compare(part, match[:, None]).count_nonzero(dim=1) for match in near.unbind(1)]
        counts.append(torch.stack(columns, 1))
    return torch.stack(counts).cumsum(0)


def _counts_by_distance(near: Tensor, nearer: Tensor, tied: Tensor) -> tuple[Tensor, Tensor]:
    """Return positives (R, 2P) and negatives (R, 2P), alternately between two matches and at a match.

    The first of several matches at one distance stands for all of them.
    """
    first = near.diff(prepend=near.new_full((len(near), 1), -1)) > 0
    equal_matches = (near[:, :, None] == near[:, None]).sum(dim=2)
    between = nearer.diff(prepend=nearer.new_zeros(len(near), 1))
    between[:, 1:] -= tied[:, :-1]
    positives = torch.stack([torch.zeros_like(equal_matches), equal_matches * first], dim=2)
    negatives = torch.stack([between * first, tied * first], dim=2)
    return positives.flatten(1).double(), negatives.flatten(1).double()
