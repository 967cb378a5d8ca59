"""Retrieval within a sample: every patch that has a match is a query, all other patches are the gallery."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.evaluation.validation.sample import PatchSample
from doap.metrics import table_distances
from doap.metrics.average_precision import average_precision_by_counting
from doap.metrics.distance import widened
from doap.metrics.pairs import QueryPairs, rows_at_a_time
from doap.types import Relation


@dataclass(frozen=True, eq=False)
class RetrievalResult:
    """Retrieval of Q queries.

    Attributes:
        average_precision: (Q,) expected AP over random orders of ties.
        triplets: (Q, 3) indices of the query, its nearest match and its nearest distractor.
        distances: (Q, 2) from the query to these two.
    """

    average_precision: NDArray[np.float64]
    triplets: NDArray[np.int64]
    distances: NDArray[np.float32]


def retrieve(descriptors: Tensor, relation: Relation) -> RetrievalResult:
    """Query all other items with each item that has a match, a few rows of the (M, M) distances at a time.

    Args:
        descriptors: (M, D) float32 or (M, D/8) uint8.
        relation: Relation of the M items.
    """
    precision, triplets, apart = [], [], []
    for rows, distances, positive, distractor in _blocks(descriptors, relation):
        precision.append(average_precision_by_counting(distances, positive, distractor))
        nearest = [distances.masked_fill(~kind, torch.inf).min(dim=1) for kind in (positive, distractor)]
        triplets.append(torch.stack([rows, *(one.indices for one in nearest)], dim=1))
        apart.append(torch.stack([one.values for one in nearest], dim=1))
    return RetrievalResult(*(torch.cat(parts).cpu().numpy() for parts in (precision, triplets, apart)))


def hardest(
    result: RetrievalResult, sample: PatchSample, number: int = 24
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the worst errors: queries with a distractor much nearer than any match.

    Only the worst patch of each group is returned, so that one odd group does not fill the gallery.

    Returns:
        Triplets (n, 3) and distances (n, 2) of `result`, the worst error first; n ≤ `number`.
    """
    margin = result.distances[:, 0] - result.distances[:, 1]
    order = np.argsort(-margin, kind="stable")
    order = order[margin[order] > 0]
    groups = sample.relation.groups.numpy()[result.triplets[order, 0]]
    first_of_group = np.sort(np.unique(groups, return_index=True)[1])
    chosen = order[first_of_group][:number]
    return result.triplets[chosen], result.distances[chosen]


def _blocks(descriptors: Tensor, relation: Relation) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield R query indices, their (R, M) distances, and (R, M) masks of positives and of distractors."""
    relation, descriptors = relation.to(descriptors.device), widened(descriptors)
    queries = QueryPairs(relation, 0, len(descriptors))
    for rows in queries.rows.split(rows_at_a_time(descriptors)):
        same = relation.groups[rows, None] == relation.groups
        distractor = torch.ones_like(same)
        queries.fill_ignored(distractor, rows, False)
        positive = same.scatter(1, rows[:, None], False)
        yield rows, table_distances(descriptors[rows], descriptors), positive, distractor & ~same
