"""Which groups, and which of their patches, form a list.

A list is made of whole groups, never padded with copies. `batch(step)` is a function of the seed and the step alone, so
resuming, workers and ranks change nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from doap.errors import ArgumentError, DataError
from doap.random_streams import stream

Integers = NDArray[np.int64]


class GroupSource(Protocol):
    """Patches in G groups that lie one behind the other: what samplers, lists and mining ask of a set."""

    @property
    def start(self) -> Integers: ...  # (G,) first patch of each group

    @property
    def count(self) -> Integers: ...  # (G,) patches in each group

    @property
    def scene_ids(self) -> NDArray[np.int32]: ...  # (G,) positions in `scene_names`

    @property
    def source_ids(self) -> NDArray[np.int32]: ...  # (G,) which photo or model made each group

    @property
    def scene_names(self) -> Sequence[str]: ...

    @property
    def source_names(self) -> Sequence[str]: ...

    def gather(self, indices: Integers) -> NDArray[np.uint8]: ...  # (n,) -> (n, S, S)

    def ignored(self, groups: Integers) -> NDArray[Any]: ...  # (g,) -> (P, 2) positions in `groups`


def from_tracks(source: GroupSource) -> NDArray[np.bool_]:
    """(G,) which groups are tracks of a reconstruction; all others are of photos, one by one."""
    tracks = np.array([name.split(" ")[0] == "tracks" for name in source.source_names])
    return tracks[source.source_ids]


@dataclass(frozen=True)
class BatchPlan:
    """What a list is made of, before any pixel is read.

    Attributes:
        groups: (g,) the groups of the list, each once.
        indices: (m,) its patches, those of a group together.
        labels: (m,) position in `groups` of each patch's group, increasing.
    """

    groups: Integers
    indices: Integers
    labels: Integers


class Sampler(ABC):
    """What the samplers share: which groups may be used, and how a chosen group gives its patches.

    Args:
        source: the groups.
        batch_size: most patches in a list.
        seed: the seed of the run.
        per_group: most patches of a group in a list; a larger group gives that many, drawn anew each time.
        min_count: groups with fewer patches are left out; with one patch there is nothing to match.
        among: (G,) bool, the groups that may be used; None is all.
    """

    steps_per_epoch: int

    def __init__(
        self,
        source: GroupSource,
        batch_size: int,
        seed: int,
        *,
        per_group: int = 16,
        min_count: int = 2,
        among: NDArray[np.bool_] | None = None,
    ) -> None:
        if per_group < 1:
            raise ArgumentError(f"per_group: expected 1 or more, got {per_group}")
        self.source, self.batch_size, self.seed, self.per_group = source, batch_size, seed, per_group
        self.groups: Integers = np.flatnonzero((source.count >= min_count) & (True if among is None else among))
        if not len(self.groups):
            raise DataError(f"source: expected groups of {min_count} patches or more, got none; lower min_count")
        self.taken: Integers = np.minimum(source.count, per_group)
        sizes = self.taken[self.groups]
        self._smallest, self._largest = int(sizes.min()), int(sizes.max())
        if batch_size < 3 * self._largest:
            raise ArgumentError(
                f"batch_size: expected room for three groups, 3 × {self._largest}, got {batch_size}; lower per_group"
            )
        self._prepare()

    def _prepare(self) -> None:  # noqa: B027 - a sampler may have nothing to prepare
        """What a kind of sampler works out once, when the groups are known."""

    @abstractmethod
    def choose(self, step: int) -> Integers:
        """(g,) the groups of a list."""

    def batch(self, step: int) -> BatchPlan:
        """The list of a step; steps go on beyond the first epoch without end."""
        if step < 0:
            raise ArgumentError(f"step: expected 0 or more, got {step}")
        groups = self.choose(step)
        count = self.source.count[groups]
        labels = np.repeat(np.arange(len(groups)), count)
        within = np.arange(len(labels)) - np.repeat(count.cumsum() - count, count)
        # Sorting random keys inside each group shuffles it; its first places then draw without replacement.
        shuffled = np.lexsort((stream(self.seed, "patches", step).random(len(labels)), labels))
        kept = np.sort(shuffled[within < self.per_group])
        return BatchPlan(groups, self.source.start[groups][labels[kept]] + within[kept], labels[kept])

    def _fill(self, groups: Integers, room: int, generator: np.random.Generator) -> Integers:
        """Random ones of `groups`, up to the first that does not fit in `room` patches."""
        drawn: Integers = generator.choice(groups, min(len(groups), room // self._smallest), replace=False)
        return drawn[self.taken[drawn].cumsum() <= room]


class GroupSampler(Sampler):
    """An epoch has every group once, in random order, cut into lists of nearly equal size.

    The cuts are evenly spaced rather than each list filled to the brim: the number of lists is then the same in all
    epochs, whatever the order of ragged groups, and no epoch ends with a stump of a list.
    """

    def _prepare(self) -> None:
        sizes = self.taken[self.groups]
        unit = int(np.gcd.reduce(sizes))
        # A list takes the groups that begin between two cuts; the last of them may reach beyond the second. As a list
        # has room for three groups, cuts are further apart than any group is long, and no list is empty.
        spacing = self.batch_size // unit * unit - self._largest + unit
        self.steps_per_epoch = -(-int(sizes.sum()) // spacing)
        self._epoch, self._lists = -1, [self.groups]

    def choose(self, step: int) -> Integers:
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._lists = epoch, self._cut(self._shuffled(stream(self.seed, "epoch", epoch)))
        return self._lists[place]

    def _shuffled(self, generator: np.random.Generator) -> Integers:
        return generator.permutation(self.groups)

    def _cut(self, groups: Integers) -> list[Integers]:
        sizes = self.taken[groups]
        begin = sizes.cumsum() - sizes
        place = begin * self.steps_per_epoch // sizes.sum()
        return np.split(groups, np.searchsorted(place, np.arange(1, self.steps_per_epoch)))


class SourceSampler(GroupSampler):
    """An epoch has every group once; lists are of a few sources (photos or models), for distractors that look alike.

    The groups of each source are shuffled and cut into blocks, and the blocks of all sources are shuffled: a list is a
    few blocks in a row. Within one source other groups are known to be other points, so all of them count.
    """

    def __init__(
        self,
        source: GroupSource,
        batch_size: int,
        seed: int,
        *,
        sources_per_batch: int = 8,
        per_group: int = 16,
        min_count: int = 2,
        among: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(source, batch_size, seed, per_group=per_group, min_count=min_count, among=among)
        if not 1 <= sources_per_batch <= batch_size // self._largest:
            raise ArgumentError(
                f"sources_per_batch: expected 1 to {batch_size // self._largest}, as many as groups of {self._largest} "
                f"patches fit in a list, got {sources_per_batch}"
            )
        self._share = batch_size // sources_per_batch

    def _shuffled(self, generator: np.random.Generator) -> Integers:
        groups = super()._shuffled(generator)
        # Sources of two places may have one name.
        place, source = self.source.scene_ids[groups], self.source.source_ids[groups]
        groups = groups[np.lexsort((source, place))]
        place, source, sizes = self.source.scene_ids[groups], self.source.source_ids[groups], self.taken[groups]
        first = np.flatnonzero((np.diff(place, prepend=-1) != 0) | (np.diff(source, prepend=-1) != 0))
        number = np.repeat(np.arange(len(first)), np.diff(first, append=len(groups)))
        # Patches of the source before each group; a block begins where they pass a multiple of its size.
        before = sizes.cumsum() - sizes
        before -= before[first][number]
        _, block = np.unique(np.stack([number, before // self._share]), axis=1, return_inverse=True)
        return groups[np.argsort(generator.permutation(block.max() + 1)[block], kind="stable")]


class MixedSampler(Sampler):
    """Batches of which tracks of reconstructions are a given share, and groups of made-up views the rest.

    The two are gone through each at its own pace, each group once before any comes again; an epoch is the longer of the
    two.

    Args:
        tracks_share: of the patches of a list, between 0 and 1.
    """

    def __init__(
        self,
        source: GroupSource,
        batch_size: int,
        seed: int,
        *,
        tracks_share: float = 0.5,
        per_group: int = 16,
        min_count: int = 2,
        among: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(source, batch_size, seed, per_group=per_group, min_count=min_count, among=among)
        if not 0 < tracks_share < 1:
            raise ArgumentError(f"tracks_share: expected a share between 0 and 1, got {tracks_share}")
        tracks, allowed = from_tracks(source), True if among is None else among
        room = round(batch_size * tracks_share)
        self._parts = [
            GroupSampler(source, size, seed, per_group=per_group, min_count=min_count, among=kind & allowed)
            for size, kind in ((room, tracks), (batch_size - room, ~tracks))
        ]
        self.steps_per_epoch = max(part.steps_per_epoch for part in self._parts)

    def choose(self, step: int) -> Integers:
        return np.concatenate([part.choose(step) for part in self._parts])


class SceneSampler(Sampler):
    """Batches of a few sequences, an equal share of the patches from each, for distractors that look alike.

    With two sequences to a list an epoch is all pairs of sequences in random order (the paper's label mining, appendix
    C.2). With more, random others join each pair; with one, an epoch is each sequence once. A sequence with fewer
    patches than its share gives all it has.
    """

    def __init__(
        self,
        source: GroupSource,
        batch_size: int,
        seed: int,
        *,
        scenes_per_batch: int = 2,
        per_group: int = 16,
        min_count: int = 2,
        among: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(source, batch_size, seed, per_group=per_group, min_count=min_count, among=among)
        order = np.argsort(source.scene_ids[self.groups], kind="stable")
        first = np.unique(source.scene_ids[self.groups][order], return_index=True)[1]
        self._members = np.split(self.groups[order], first[1:])
        sequences = len(self._members)
        if not 1 <= scenes_per_batch <= sequences:
            raise ArgumentError(f"scenes_per_batch: expected 1 to {sequences}, all there are, got {scenes_per_batch}")
        self._share = batch_size // scenes_per_batch
        if self._share < self._largest:
            raise ArgumentError(
                f"scenes_per_batch: expected at most {batch_size // self._largest}, so that the largest group, of "
                f"{self._largest} patches, fits in a sequence's share of the list, got {scenes_per_batch}"
            )
        self._others = max(scenes_per_batch - 2, 0)
        self._fixed: Integers = np.arange(sequences)[:, None]
        if scenes_per_batch > 1:
            self._fixed = np.stack(np.triu_indices(sequences, 1), axis=1)
        self.steps_per_epoch = len(self._fixed)
        self._epoch, self._order = -1, self._fixed

    def choose(self, step: int) -> Integers:
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, stream(self.seed, "epoch", epoch).permutation(self._fixed)
        generator = stream(self.seed, "groups", step)
        fixed = self._order[place]
        others = generator.choice(np.delete(np.arange(len(self._members)), fixed), self._others, replace=False)
        chosen = np.concatenate([fixed, others])
        return np.concatenate([self._fill(self._members[one], self._share, generator) for one in chosen])


class RomeSampler(Sampler):
    """An epoch has as many lists as groups; the k-th begins with group k, and random others fill it.

    It is how the paper trains on small sets such as RomePatches (appendix D): an epoch sees each group many times.
    """

    def _prepare(self) -> None:
        self.steps_per_epoch = len(self.groups)

    def choose(self, step: int) -> Integers:
        place = step % self.steps_per_epoch
        first, others = self.groups[place : place + 1], np.delete(self.groups, place)
        room = self.batch_size - int(self.taken[first[0]])
        return np.concatenate([first, self._fill(others, room, stream(self.seed, "groups", step))])


def shard(plan: BatchPlan, rank: int, world: int) -> Integers:
    """(n,) positions in the list of the patches that one rank holds, increasing.

    Groups are dealt whole, one to each rank in turn, the largest first: ranks differ by no more patches than the
    largest group has, each gets its part of every sequence, and none is empty while there are groups enough.

    Args:
        plan: the list of all ranks together.
        rank: this one, from 0.
        world: how many ranks there are.
    """
    if not 0 <= rank < world:
        raise ArgumentError(f"rank: expected 0 to world - 1 = {world - 1}, got {rank}")
    dealt = np.argsort(-np.bincount(plan.labels, minlength=len(plan.groups)), kind="stable")
    owner = np.empty_like(dealt)
    owner[dealt] = np.arange(len(dealt)) % world
    return np.flatnonzero(owner[plan.labels] == rank)
