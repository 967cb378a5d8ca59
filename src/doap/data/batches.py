"""The lists a network is trained on: patches, and who matches whom among them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from doap.data.augment import change_light, flip_and_rotate, move_frames, wear
from doap.data.mining import Mined
from doap.data.sampler import BatchPlan, GroupSource, Integers, Sampler, shard
from doap.errors import ArgumentError
from doap.random_streams import stream
from doap.types import Relation


class Batches(Dataset[tuple[Tensor, Relation]]):
    """`lists[step]` is a list of M patches, uint8 (M, 1, S, S), and their `Relation`.

    Any step from 0 has its list, beyond the first epoch too; `len` is the number of steps in an epoch. A step's list
    depends on nothing but the seed, so a loader gives the same ones with any number of workers, from any step:

        DataLoader(lists, batch_size=None, sampler=range(first, last), num_workers=4)

    Over several ranks each gives its part of the list; equal groups on different ranks match.

    Args:
        source: the groups.
        sampler: which of them form a list.
        seed: the seed of the run.
        augment: flip and rotate, a whole group alike.
        gain: light changes per patch, see `change_light`; 0 leaves it.
        offset: likewise.
        noise: of the frames, per patch, see `move_frames`; 0 leaves them.
        blur, grain, jpeg: wear of the pixels, per patch, see `wear`; 0 leaves them.
        rank: this process, from 0.
        world: how many processes share a list.
        mined: in-sequence pairs to ignore, beside those that the source names.
    """

    def __init__(
        self,
        source: GroupSource,
        sampler: Sampler,
        *,
        seed: int,
        augment: bool = True,
        gain: float = 0.0,
        offset: float = 0.0,
        noise: float = 0.0,
        blur: float = 0.0,
        grain: float = 0.0,
        jpeg: float = 0.0,
        rank: int = 0,
        world: int = 1,
        mined: Mined | None = None,
    ) -> None:
        if not 0 <= rank < world:
            raise ArgumentError(f"rank: expected 0 to world - 1 = {world - 1}, got {rank}")
        self.source, self.sampler, self.seed, self.augment = source, sampler, seed, augment
        self.gain, self.offset, self.noise, self.rank, self.world, self.mined = gain, offset, noise, rank, world, mined
        self.wear = {"blur": blur, "grain": grain, "jpeg": jpeg}

    def __len__(self) -> int:
        return self.sampler.steps_per_epoch

    def __getitem__(self, step: int) -> tuple[Tensor, Relation]:
        plan = self.sampler.batch(step)
        own = shard(plan, self.rank, self.world)
        patches = torch.from_numpy(self.source.gather(plan.indices[own])).unsqueeze(1)
        if self.augment:
            patches = flip_and_rotate(patches, plan.labels, stream(self.seed, "turn", step), own)
        if self.noise:
            patches = move_frames(patches, plan.labels, stream(self.seed, "frames", step), own, noise=self.noise)
        if self.gain or self.offset:
            light = stream(self.seed, "light", step)
            patches = change_light(patches, plan.labels, light, own, gain=self.gain, offset=self.offset)
        if any(self.wear.values()):
            patches = wear(patches, plan.labels, stream(self.seed, "wear", step), own, **self.wear)
        return patches, self._relation(plan, own)

    def _relation(self, plan: BatchPlan, own: Integers) -> Relation:
        """Who matches whom, the same on all ranks: pairs of groups, and kinds of groups that cannot be told apart.

        A kind is a place, a source within it and, where labels are mined, a cluster. Two photos of one place may show
        one spot, so groups that were made of them one by one ignore each other; in one photo, or in one model, they
        are known to be different points.
        """
        mined = np.zeros_like(plan.groups) if self.mined is None else self.mined.clusters[plan.groups]
        keys = np.stack([self.source.scene_ids[plan.groups], self.source.source_ids[plan.groups], mined])
        kinds, first, kind = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        place, source, _ = kinds
        ignored = (place[:, None] == place) & (source[:, None] != source)
        if self.mined is not None:
            ignored |= self.mined.ignored(plan.groups[first])
        pairs = torch.from_numpy(self.source.ignored(plan.groups))
        groups = torch.from_numpy(plan.labels[own])
        if not ignored.any():
            return Relation(groups, pairs)
        return Relation(groups, pairs, torch.from_numpy(kind[plan.labels[own]]), torch.from_numpy(ignored))
