"""A reproducible sample of a patch-group set, small enough to validate a descriptor in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap._support.errors import ArgumentError, DataError
from doap._support.random_streams import stream
from doap.data.batches import Batches
from doap.data.sampler import GroupSource, Integers, Sampler
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
        if groups < 2 or per_group < 2 or pairs < 1:
            raise ArgumentError(
                f"groups, per_group and pairs: expected at least 2, 2 and 1, got {groups}, {per_group} and {pairs}."
            )
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

    @property
    def patch_size(self) -> int:
        """Side S of the patches, in pixels."""
        return int(self.patches.shape[1])


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
        scene = self.source.scene_ids[shuffled]
        by_scene = np.argsort(scene, kind="stable")
        size = np.unique(scene, return_counts=True)[1]
        # Rank of each group within its scene: rank 0 of every scene is drawn first, then rank 1, ….
        rank = np.empty_like(by_scene)
        rank[by_scene] = np.arange(len(by_scene)) - np.repeat(size.cumsum() - size, size)
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
