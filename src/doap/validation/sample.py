"""A sample of a patch-group set: small enough to judge a describer on in seconds, the same each time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.data.batches import Batches
from doap.data.sampler import GroupSource, Integers, Sampler
from doap.errors import ArgumentError, DataError
from doap.random_streams import stream
from doap.types import Relation


@dataclass(frozen=True, eq=False)
class PatchSample:
    """Patches of some groups of a set, and pairs of them.

    Attributes:
        patches: (M, S, S) uint8, those of a group together.
        relation: who matches whom among them, and which pairs say nothing: see `Batches`, which makes it.
        positives: (P, 2) pairs of patches of one group, each once.
        negatives: (P, 2) pairs of patches that are distractors to each other.
        places: (M,) position in `scene_names` of the place that each patch is from.
        scene_names: all those of the set.
    """

    patches: NDArray[np.uint8]
    relation: Relation
    positives: Tensor
    negatives: Tensor
    places: Integers
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
        patches, relation = Batches(source, sampler, seed=seed, augment=False)[0]
        generator = stream(seed, "validation pairs")
        positives = _positive_pairs(relation.groups, pairs, generator)
        negatives = _negative_pairs(relation, pairs, generator)
        plan = sampler.batch(0)
        places = source.scene_ids[plan.groups][plan.labels].astype(np.int64)
        return cls(patches[:, 0].numpy(), relation, positives, negatives, places, source.scene_names)

    def __len__(self) -> int:
        return len(self.patches)

    @property
    def patch_size(self) -> int:
        """S."""
        return int(self.patches.shape[1])


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
        sequence = self.source.scene_ids[shuffled]
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
