"""Training batches: patches, and which of them match."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from doap._support.errors import ArgumentError
from doap.data.augment import Augmentation
from doap.data.mining import Mined
from doap.data.sampler import BatchPlan, GroupSource, Integers, Sampler, shard
from doap.types import Relation


class Batches(Dataset[tuple[Tensor, Relation]]):
    """The batches of a run: `batches[step]` is M patches, uint8 (M, 1, S, S), and their `Relation`.

    Every step from 0 has a batch, also after the first epoch; `len` is the number of steps in an epoch. A batch depends
    only on the seed and the step, so a loader returns the same batches for any number of workers and any first step:

        DataLoader(batches, batch_size=None, sampler=range(first, last), num_workers=4)

    With several ranks, each returns its part of the batch; equal groups on different ranks match.

    Args:
        source: The groups.
        sampler: Chooses the groups of a batch.
        seed: Seed of the run.
        augmentation: Random changes of the patches; None for none.
        rank: Index of this rank, from 0.
        world: Number of ranks that share a batch.
        mined: Mined labels: pairs of patches of a scene to ignore, in addition to the groups that the source names.
        scene_distractors: Whether other groups of the same scene are distractors. Without them, as in the paper's
            HPatches models without label mining, only patches of other scenes are.
    """

    def __init__(
        self,
        source: GroupSource,
        sampler: Sampler,
        *,
        seed: int,
        augmentation: Augmentation | None = None,
        rank: int = 0,
        world: int = 1,
        mined: Mined | None = None,
        scene_distractors: bool = True,
    ) -> None:
        if not 0 <= rank < world:
            raise ArgumentError(f"rank: expected 0 to world - 1 = {world - 1}, got {rank}")
        self.source, self.sampler, self.seed, self.augmentation = source, sampler, seed, augmentation
        self.rank, self.world, self.mined = rank, world, mined
        self.scene_distractors = scene_distractors

    def __len__(self) -> int:
        return self.sampler.steps_per_epoch

    def __getitem__(self, step: int) -> tuple[Tensor, Relation]:
        plan = self.sampler.batch(step)
        own = shard(plan, self.rank, self.world)
        patches = torch.from_numpy(self.source.gather(plan.indices[own])).unsqueeze(1)
        if self.augmentation is not None:
            patches = self.augmentation.apply(patches, plan.labels, own, seed=self.seed, step=step)
        return patches, self._relation(plan, own)

    def _relation(self, plan: BatchPlan, own: Integers) -> Relation:
        """Return the matches and ignored pairs of a rank's patches.

        Two photos of one scene may show the same point, so groups of synthetic views of different photos ignore each
        other. Groups of one photo or of one model are known to be different points. The clusters of the relation are
        therefore the combinations of scene, source and, with label mining, appearance cluster.

        Args:
            plan: The batch of all ranks; clusters and ignored groups are the same on all of them.
            own: (n,) positions in the batch of this rank's patches.
        """
        groups = plan.groups[plan.labels]
        scene, source = self.source.scene_ids[groups], self.source.source_ids[groups]
        appearance = np.zeros_like(groups) if self.mined is None else self.mined.clusters[plan.indices]
        keys = np.stack([scene, source, appearance])
        clusters, cluster = np.unique(keys, axis=1, return_inverse=True)
        scene, source, appearance = clusters
        ignored = scene[:, None] == scene
        if self.scene_distractors:
            ignored &= source[:, None] != source
        if self.mined is not None:
            ignored |= self.mined.ignored(appearance)
        ignored_pairs = torch.from_numpy(self.source.ignored(plan.groups))
        items = torch.from_numpy(plan.labels[own])
        if not ignored.any():
            return Relation(items, ignored_pairs)
        return Relation(items, ignored_pairs, torch.from_numpy(cluster[own]), torch.from_numpy(ignored))
