"""Retrieval within a sample: every patch that has a match queries all the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.functional import table_distances
from doap.functional.average_precision import average_precision_by_counting
from doap.functional.distance import widened
from doap.functional.pairs import QueryPairs, rows_at_a_time
from doap.types import Relation
from doap.validation.sample import PatchSample


@dataclass(frozen=True, eq=False)
class Answers:
    """What each of Q queries was answered.

    Attributes:
        precision: (Q,) AP, ties by their expectation.
        triples: (Q, 3) the query, its nearest match and its nearest distractor.
        apart: (Q, 2) its distances to the two.
    """

    precision: NDArray[np.float64]
    triples: NDArray[np.int64]
    apart: NDArray[np.float32]


def retrieve(described: Tensor, relation: Relation) -> Answers:
    """Each item that has a match queries all others; memory is that of some rows of the (M, M) distances.

    Args:
        described: (M, D) float32 or (M, D/8) uint8.
        relation: of M items.
    """
    precision, triples, apart = [], [], []
    for rows, distances, positive, distractor in _blocks(described, relation):
        precision.append(average_precision_by_counting(distances, positive, distractor))
        nearest = [distances.masked_fill(~kind, torch.inf).min(dim=1) for kind in (positive, distractor)]
        triples.append(torch.stack([rows, *(one.indices for one in nearest)], dim=1))
        apart.append(torch.stack([one.values for one in nearest], dim=1))
    return Answers(*(torch.cat(parts).cpu().numpy() for parts in (precision, triples, apart)))


def hardest(answers: Answers, sample: PatchSample, number: int = 24) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The worst errors: a distractor much nearer to the query than any of its matches.

    Each group asks once, with the worst of its patches, so that one odd group does not fill the gallery.

    Returns:
        (n, 3) and (n, 2) of `answers`, the worst error first; fewer than `number` where there are fewer errors.
    """
    return foremost(answers, sample, number, wrong=True)


def foremost(
    answers: Answers, sample: PatchSample, number: int, *, wrong: bool
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Those that are most wrong, or most right: by the greatest margin, each group once."""
    triples, apart = answers.triples, answers.apart
    margin = (apart[:, 0] - apart[:, 1]) * (1 if wrong else -1)
    order = np.argsort(-margin, kind="stable")
    order = order[margin[order] > 0]
    groups = sample.relation.groups.numpy()[triples[order, 0]]
    chosen = order[np.sort(np.unique(groups, return_index=True)[1])][:number]
    return triples[chosen], apart[chosen]


def _blocks(described: Tensor, relation: Relation) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Some queries (R,) at a time, with (R, M) distances to all, and who of all is positive and who a distractor."""
    relation, described = relation.to(described.device), widened(described)
    asking = QueryPairs(relation, 0, len(described))
    for rows in asking.rows.split(rows_at_a_time(described)):
        same = relation.groups[rows, None] == relation.groups
        distractor = torch.ones_like(same)
        asking.fill_ignored(distractor, rows, False)
        positive = same.scatter(1, rows[:, None], False)
        yield rows, table_distances(described[rows], described), positive, distractor & ~same
