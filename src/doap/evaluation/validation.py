"""Validation of a descriptor on held-out patches, in seconds: a reproducible sample of a set, and its scores.

In retrieval, every patch that has a match is a query, and all other patches of the sample are searched.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap._support.errors import DataError
from doap._support.random_streams import stream
from doap.data.batches import Batches
from doap.data.sampler import GroupSource, Integers, Sampler, rank_within
from doap.describer import PatchDescriber
from doap.metrics import fpr_at_recall, pair_distances, table_distances
from doap.metrics.average_precision import average_precision_by_counting
from doap.metrics.distance import widened
from doap.metrics.pairs import QueryPairs, rows_at_a_time
from doap.pipeline import describe_patches
from doap.types import Relation


@dataclass(frozen=True, eq=False)
class PatchSample:
    """Patches of some groups of a set, and pairs of them.

    Attributes:
        patches: (M, S, S) uint8; the patches of a group are adjacent.
        relation: Relation of the patches, including the ignored pairs; see `Batches`.
        positives: (P, 2) pairs of patches of one group, each once.
        negatives: (P, 2) pairs of patches that are distractors to each other.
        scene_ids: (M,) index into `scene_names` of each patch.
        scene_names: All scenes of the set.
    """

    patches: NDArray[np.uint8]
    relation: Relation
    positives: Tensor
    negatives: Tensor
    scene_ids: Integers
    scene_names: Sequence[str]

    @classmethod
    def draw(
        cls,
        source: GroupSource,
        groups: int = 2000,
        per_group: int = 4,
        pairs: int = 50_000,
        seed: int = 0,
        *,
        among: NDArray[np.bool_] | None = None,
    ) -> PatchSample:
        """Draw groups evenly over the scenes, and pairs of their patches.

        Args:
            source: Groups to draw from; groups of one patch are left out.
            groups: Number of groups; all of them if the source has fewer.
            per_group: Maximum number of patches per group, at least 2.
            pairs: Maximum number of positive pairs and of negative pairs. The sample may have fewer
                positive pairs; they are not repeated, because FPR95 does not depend on the ratio.
            seed: Random seed.
            among: (G,) bool, the groups that may be drawn; None for all.
        """
        sampler = _EvenSampler(source, groups, seed, per_group, among)
        patches, relation = Batches(source, sampler, seed=seed)[0]
        generator = stream(seed, "validation pairs")
        positives = _positive_pairs(relation.groups, pairs, generator)
        negatives = _negative_pairs(relation, pairs, generator)
        plan = sampler.batch(0)
        scene_ids = source.scene_ids[plan.groups][plan.labels].astype(np.int64)
        return cls(patches[:, 0].numpy(), relation, positives, negatives, scene_ids, source.scene_names)

    def __len__(self) -> int:
        return len(self.patches)


class _EvenSampler(Sampler):
    """A single batch of groups drawn from the scenes in turn."""

    steps_per_epoch = 1

    def __init__(
        self, source: GroupSource, groups: int, seed: int, per_group: int, among: NDArray[np.bool_] | None
    ) -> None:
        super().__init__(source, max(groups, 3) * per_group, seed, per_group=per_group, among=among)
        self.number = groups

    def choose(self, step: int) -> Integers:
        shuffled = stream(self.seed, "validation", step).permutation(self.groups)
        # Rank 0 of every scene is drawn first, then rank 1, ….
        rank = rank_within(self.source.scene_ids[shuffled])
        return np.sort(shuffled[np.argsort(rank, kind="stable")[: self.number]])


def _positive_pairs(groups: Tensor, number: int, generator: np.random.Generator) -> Tensor:
    """Draw (P, 2) pairs of items of one group; the items of a group are adjacent."""
    largest = int(groups.bincount().max())
    pairs_by_step = []
    for step in range(1, largest):
        first = (groups[step:] == groups[:-step]).nonzero()[:, 0]
        pairs_by_step.append(torch.stack([first, first + step], dim=1))
    pairs = torch.cat(pairs_by_step)
    return pairs[torch.from_numpy(generator.permutation(len(pairs))[:number])]


def _negative_pairs(relation: Relation, number: int, generator: np.random.Generator) -> Tensor:
    """Draw (P, 2) pairs of mutual distractors from four times as many random pairs."""
    pairs = torch.from_numpy(generator.integers(len(relation), size=(4 * number, 2)))
    groups = relation.groups[pairs]
    distractors = groups[:, 0] != groups[:, 1]
    if relation.clusters is not None and relation.ignored_clusters is not None:
        distractors &= ~relation.ignored_clusters[tuple(relation.clusters[pairs].T)]
    if relation.ignored_pairs is not None:
        drawn, ignored = (_unordered_keys(one, len(relation)) for one in (groups, relation.ignored_pairs))
        distractors &= ~torch.isin(drawn, ignored)
    if not distractors.any():
        raise DataError("source: expected groups that are distractors to each other, got none. Add another scene.")
    return pairs[distractors][:number]


def _unordered_keys(pairs: Tensor, size: int) -> Tensor:
    """Return one integer (P,) for each unordered pair (P, 2) of integers below `size`."""
    return pairs.min(dim=1).values * size + pairs.max(dim=1).values


@dataclass(frozen=True, eq=False)
class RetrievalResult:
    """AP (Q,) of queries, rows (Q, 3) of query, nearest match and nearest distractor, and distances (Q, 2) to these."""

    average_precision: NDArray[np.float64]
    triplets: NDArray[np.int64]
    distances: NDArray[np.float32]


def retrieve(descriptors: Tensor, relation: Relation) -> RetrievalResult:
    """Query all others of M items with each that has a match, a few rows of the (M, M) distances at a time."""
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


@dataclass(frozen=True)
class ValidationScores:
    """Scores of a descriptor on held-out patches.

    Attributes:
        map: Mean Average Precision with each patch as a query, expected over random orders of ties.
        fpr95: False-positive rate at 95 % recall; ties count against the descriptor.
        fpr95_expected: The same, expected over random orders of ties; it differs for binary descriptors.
        seconds: Time to describe the patches and to compute the scores.
    """

    map: float
    fpr95: float
    fpr95_expected: float
    seconds: float


def validate(describer: PatchDescriber, sample: PatchSample) -> ValidationScores:
    """Score retrieval and verification on a sample; the (M, M) distances are never held in memory at once."""
    begin = time.perf_counter()
    descriptors = describe_patches(describer, sample.patches)
    precision = retrieve(descriptors, sample.relation).average_precision
    pairs = torch.cat([sample.positives, sample.negatives])
    distances = pair_distances(descriptors[pairs[:, 0]], descriptors[pairs[:, 1]])
    is_positive = torch.arange(len(pairs)) < len(sample.positives)
    return ValidationScores(
        map=float(precision.mean()),
        fpr95=fpr_at_recall(distances, is_positive),
        fpr95_expected=fpr_at_recall(distances, is_positive, ties="expected"),
        seconds=time.perf_counter() - begin,
    )
