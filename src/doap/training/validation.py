"""How good is a describer on patches it was not trained on? Mean Average Precision, FPR95, and its worst errors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from doap.data.lists import Lists
from doap.data.random_streams import stream
from doap.data.sampler import GroupSource, Integers, Sampler
from doap.errors import ArgumentError, DataError
from doap.functional import fpr_at_recall, hamming, unpack_bits
from doap.functional.average_precision import average_precision_by_counting
from doap.functional.pairs import QueryPairs, rows_at_a_time
from doap.peers import Describer
from doap.types import Relation

PATCHES_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class ValidationSet:
    """A sample of the groups of a set: small enough to judge a describer on in seconds, the same each time.

    Attributes:
        patches: (M, S, S) uint8, those of a group together.
        relation: who matches whom among them, and which pairs say nothing: see `Lists`, which makes it.
        positives: (P, 2) pairs of patches of one group, each once.
        negatives: (P, 2) pairs of patches that are distractors to each other.
    """

    patches: NDArray[np.uint8]
    relation: Relation
    positives: Tensor
    negatives: Tensor

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
    ) -> ValidationSet:
        """Draw groups, as many from each sequence as far as they go, and pairs of their patches.

        Args:
            source: the groups; those of one patch are left out.
            groups: how many; all, where the source has fewer.
            per_group: most patches of a group, 2 or more.
            pairs: most positive pairs, and most negative ones. There may be fewer positives than that in the sample;
                they are not repeated, since FPR95 does not depend on how many there are of each kind.
            seed: decides all that is drawn.
            among: (G,) bool, the groups that may be drawn; None is all.
        """
        if groups < 2 or per_group < 2 or pairs < 1:
            raise ArgumentError(
                f"groups, per_group and pairs: expected 2, 2 and 1 or more, got {groups}, {per_group} and {pairs}"
            )
        sampler = _EvenSampler(source, groups, seed, per_group, among)
        patches, relation = Lists(source, sampler, seed=seed, augment=False)[0]
        generator = stream(seed, "validation pairs")
        positives = _positive_pairs(relation.groups, pairs, generator)
        return cls(patches[:, 0].numpy(), relation, positives, _negative_pairs(relation, pairs, generator))

    def __len__(self) -> int:
        return len(self.patches)

    @property
    def patch_size(self) -> int:
        """S."""
        return int(self.patches.shape[1])


@dataclass(frozen=True)
class Judgement:
    """What a describer is worth on a validation set.

    Attributes:
        map: mean Average Precision where each patch queries all the others; ties count by their expectation.
        fpr95: false positives among the negative pairs where 95 % of the positive ones are accepted; ties count
            against the describer.
        fpr95_expected: the same with ties by their expectation; it differs for binary describers.
        seconds: that it took to describe the patches and to judge the descriptors.
    """

    map: float
    fpr95: float
    fpr95_expected: float
    seconds: float


def judge(describer: Describer, validation_set: ValidationSet) -> Judgement:
    """Retrieval and verification on one set. Memory is that of some rows of the (M, M) distances, never all."""
    begin = time.perf_counter()
    described = _describe(describer, validation_set)
    precision = [average_precision_by_counting(*block[1:]) for block in _blocks(described, validation_set.relation)]
    pairs = torch.cat([validation_set.positives, validation_set.negatives]).to(described.device)
    apart = _apart(described[pairs[:, 0]], described[pairs[:, 1]])
    is_positive = torch.arange(len(pairs), device=apart.device) < len(validation_set.positives)
    return Judgement(
        map=float(torch.cat(precision).mean()),
        fpr95=fpr_at_recall(apart, is_positive),
        fpr95_expected=fpr_at_recall(apart, is_positive, ties="expected"),
        seconds=time.perf_counter() - begin,
    )


def hardest(
    describer: Describer, validation_set: ValidationSet, number: int = 24
) -> tuple[Integers, NDArray[np.float32]]:
    """The worst errors, for a gallery: a distractor much nearer to the query than any of its matches.

    Each group asks once, with the worst of its patches, so that one odd group does not fill the gallery.

    Returns:
        (n, 3) patches: the query, its nearest match, its nearest distractor; the worst error first. There are fewer
        than `number` where the describer made fewer errors. And (n, 2), the distances of the query to the other two.
    """
    described = _describe(describer, validation_set)
    found, apart = [], []
    for rows, distances, positive, distractor in _blocks(described, validation_set.relation):
        nearest = [distances.masked_fill(~kind, torch.inf).min(dim=1) for kind in (positive, distractor)]
        found.append(torch.stack([rows, *(one.indices for one in nearest)], dim=1))
        apart.append(torch.stack([one.values for one in nearest], dim=1))
    triples, gaps = torch.cat(found).cpu().numpy(), torch.cat(apart).cpu().numpy()
    mistake = gaps[:, 0] - gaps[:, 1]
    order = np.argsort(-mistake, kind="stable")
    order = order[mistake[order] > 0]
    first = np.unique(validation_set.relation.groups.numpy()[triples[order, 0]], return_index=True)[1]
    worst = order[np.sort(first)[:number]]
    return triples[worst], gaps[worst]


class _EvenSampler(Sampler):
    """One list: the sequences give a group each in turn, until there are enough."""

    steps_per_epoch = 1

    def __init__(
        self, source: GroupSource, groups: int, seed: int, per_group: int, among: NDArray[np.bool_] | None
    ) -> None:
        super().__init__(source, max(groups, 3) * per_group, seed, per_group=per_group, among=among)
        self.number = groups

    def choose(self, step: int) -> Integers:
        shuffled = stream(self.seed, "validation", step).permutation(self.groups)
        sequence = self.source.sequence_ids[shuffled]
        order = np.argsort(sequence, kind="stable")
        size = np.unique(sequence, return_counts=True)[1]
        turn = np.empty_like(order)
        turn[order] = np.arange(len(order)) - np.repeat(size.cumsum() - size, size)
        return np.sort(shuffled[np.argsort(turn, kind="stable")[: self.number]])


def _positive_pairs(groups: Tensor, number: int, generator: np.random.Generator) -> Tensor:
    """(P, 2) items of one group; groups lie together, so its members are each other's neighbours at some distance."""
    largest = int(groups.bincount().max())
    first = [(groups[step:] == groups[:-step]).nonzero()[:, 0] for step in range(1, largest)]
    pairs = torch.cat([torch.stack([one, one + step], dim=1) for step, one in enumerate(first, start=1)])
    return pairs[torch.from_numpy(generator.permutation(len(pairs))[:number])]


def _negative_pairs(relation: Relation, number: int, generator: np.random.Generator) -> Tensor:
    """(P, 2) items that are distractors to each other, as many as there are among four times as many random pairs."""
    pairs = torch.from_numpy(generator.integers(len(relation), size=(4 * number, 2)))
    of_group = relation.groups[pairs]
    wanted = of_group[:, 0] != of_group[:, 1]
    if relation.clusters is not None and relation.ignored_clusters is not None:
        wanted &= ~relation.ignored_clusters[tuple(relation.clusters[pairs].T)]
    if relation.ignored_pairs is not None:
        keys, ignored = (
            one.min(dim=1).values * len(relation) + one.max(dim=1).values for one in (of_group, relation.ignored_pairs)
        )
        wanted &= ~torch.isin(keys, ignored)
    if not wanted.any():
        raise DataError("source: expected groups that are distractors to each other, got none; add another place")
    return pairs[wanted][:number]


def _describe(describer: Describer, validation_set: ValidationSet) -> Tensor:
    """(M, D), or (M, D/8) packed; patches of another size are resampled, bilinearly and without aliasing."""
    size = describer.patch_size
    parts = []
    for part in torch.from_numpy(validation_set.patches).unsqueeze(1).split(PATCHES_AT_ONCE):
        patches = part.float() / 255
        if size != validation_set.patch_size:
            patches = interpolate(patches, (size, size), mode="bilinear", antialias=True, align_corners=False)
        parts.append(describer.describe(patches))
    described = torch.cat(parts)
    return described if describer.kind == "binary" else described.double()


def _blocks(described: Tensor, relation: Relation) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Some queries (R,) at a time, with (R, M) distances to all, and who of all is positive and who a distractor."""
    relation = relation.to(described.device)
    asking = QueryPairs(relation, 0, len(described))
    for rows in asking.rows.split(rows_at_a_time(described)):
        same = relation.groups[rows, None] == relation.groups
        distractor = torch.ones_like(same)
        asking.fill_ignored(distractor, rows, False)
        positive = same.scatter(1, rows[:, None], False)
        yield rows, _distances(described[rows], described), positive, distractor & ~same


def _distances(queries: Tensor, gallery: Tensor) -> Tensor:
    """(Q, N) float32: Hamming for packed bits; else Euclidean, for vectors of any length, as a flat patch may have 0.

    Distances are rounded to a millionth, which is what float32 can tell of unit vectors: a describer that has collapsed
    to one point must tie, not be ranked by rounding.
    """
    if gallery.dtype == torch.uint8:
        return hamming(queries, gallery).float()
    squared = queries.square().sum(1, keepdim=True) + gallery.square().sum(1) - 2 * queries @ gallery.T
    return squared.clamp(min=0).sqrt().round(decimals=6).float()


def _apart(one: Tensor, other: Tensor) -> Tensor:
    """(P,) distances of pairs, as `_distances` has them."""
    if one.dtype == torch.uint8:
        return unpack_bits(one ^ other).sum(dim=1).float()
    distances: Tensor = torch.linalg.vector_norm(one - other, dim=1)
    return distances.round(decimals=6).float()
