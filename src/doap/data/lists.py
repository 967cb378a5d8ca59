"""The lists a network is trained on: patches, and who matches whom among them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from doap.data.augment import change_light, flip_and_rotate
from doap.data.mining import Mined
from doap.data.random_streams import stream
from doap.data.sampler import GroupSource, Integers, ListPlan, Sampler, shard
from doap.errors import ArgumentError
from doap.types import Relation


class Lists(Dataset[tuple[Tensor, Relation]]):
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
        rank: int = 0,
        world: int = 1,
        mined: Mined | None = None,
    ) -> None:
        if not 0 <= rank < world:
            raise ArgumentError(f"rank: expected 0 to world - 1 = {world - 1}, got {rank}")
        self.source, self.sampler, self.seed, self.augment = source, sampler, seed, augment
        self.gain, self.offset, self.rank, self.world, self.mined = gain, offset, rank, world, mined

    def __len__(self) -> int:
        return self.sampler.steps_per_epoch

    def __getitem__(self, step: int) -> tuple[Tensor, Relation]:
        plan = self.sampler.batch(step)
        own = shard(plan, self.rank, self.world)
        patches = torch.from_numpy(self.source.gather(plan.indices[own])).unsqueeze(1)
        if self.augment:
            patches = flip_and_rotate(patches, plan.labels, stream(self.seed, "turn", step), own)
        if self.gain or self.offset:
            light = stream(self.seed, "light", step)
            patches = change_light(patches, plan.labels, light, own, gain=self.gain, offset=self.offset)
        return patches, self._relation(plan, own)

    def _relation(self, plan: ListPlan, own: Integers) -> Relation:
        groups = torch.from_numpy(plan.labels[own])
        pairs = self.source.ignored(plan.groups)
        if self.mined is None and self.world == 1:
            return Relation(groups, ignored_pairs=torch.from_numpy(item_pairs(pairs, plan.labels)))
        # Each group its own cluster: ranks share this table, while positions in the list cannot name another rank's.
        size = len(plan.groups)
        table = np.zeros((size, size), dtype=bool) if self.mined is None else self.mined.ignored(plan.groups)
        table[pairs[:, 0], pairs[:, 1]] = table[pairs[:, 1], pairs[:, 0]] = True
        return Relation(groups, clusters=groups, ignored_clusters=torch.from_numpy(table))


def item_pairs(pairs: NDArray[np.integer], labels: Integers) -> Integers:
    """Pairs of groups (p, 2) as pairs of their items (P, 2), positions in the list.

    >>> item_pairs(np.array([[0, 1]]), np.array([0, 0, 1, 2])).tolist()
    [[0, 2], [1, 2]]

    Args:
        pairs: (p, 2) values of `labels`.
        labels: (M,) group of each item, increasing.
    """
    size = np.bincount(labels)
    first = size.cumsum() - size
    one, other = pairs.T
    number = size[one] * size[other]
    pair = np.repeat(np.arange(len(pairs)), number)
    # The n-th of a pair of groups with a and b items is (n div b, n mod b).
    nth = np.arange(len(pair)) - np.repeat(number.cumsum() - number, number)
    row, column = np.divmod(nth, size[other][pair])
    return np.stack([first[one][pair] + row, first[other][pair] + column], axis=1)
