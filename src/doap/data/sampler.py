"""Samplers: which groups, and which patches of them, form a training batch.

A batch consists of whole groups and is never padded with copies. `batch(step)` depends on the seed and the step only,
so resuming, data-loading workers and ranks do not change it.

A new sampler is one subclass of `Sampler` with its `Settings` and one line in `SAMPLERS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from doap._support.errors import ArgumentError, DataError
from doap._support.random_streams import stream
from doap._support.settings import StrictModel

Integers = NDArray[np.int64]


class GroupSource(Protocol):
    """Patches in G groups, stored one group after the other: the interface that samplers, batches and mining need."""

    @property
    def start(self) -> Integers: ...  # (G,) first patch of each group

    @property
    def count(self) -> Integers: ...  # (G,) number of patches in each group

    @property
    def scene_ids(self) -> NDArray[np.int32]: ...  # (G,) indices into `scene_names`

    @property
    def source_ids(self) -> NDArray[np.int32]: ...  # (G,) indices into `source_names`: the photo or model of each group

    @property
    def scene_names(self) -> Sequence[str]: ...

    @property
    def source_names(self) -> Sequence[str]: ...

    def gather(self, indices: Integers) -> NDArray[np.uint8]: ...  # (n,) -> (n, S, S)

    def ignored(self, groups: Integers) -> NDArray[Any]: ...  # (g,) -> (P, 2) indices into `groups`


def from_tracks(source: GroupSource) -> NDArray[np.bool_]:
    """Return (G,) bool: True for tracks of a reconstruction, False for groups of synthetic views of a photo."""
    is_track = np.array([name.split(" ")[0] == "tracks" for name in source.source_names])
    return is_track[source.source_ids]


@dataclass(frozen=True)
class BatchPlan:
    """The groups and patches of a batch, before any pixel is read.

    Attributes:
        groups: (g,) groups of the batch, without duplicates.
        indices: (m,) patches of the batch; patches of a group are adjacent.
        labels: (m,) index into `groups` of each patch, increasing.
    """

    groups: Integers
    indices: Integers
    labels: Integers


class Sampler(ABC):
    """Base class of the samplers: which groups may be used, and which patches of a chosen group.

    Args:
        source: The groups.
        batch_size: Maximum number of patches in a batch.
        seed: Seed of the run.
        per_group: Maximum number of patches per group in a batch; patches of a larger group are drawn at random.
        among: (G,) bool, the groups that may be used; None allows all.
        settings: Values of `Settings`; wrong ones raise an `ArgumentError`.

    Attributes:
        Settings: Model of the settings of this sampler and their defaults.
        steps_per_epoch: Number of batches in an epoch.
    """

    Settings: ClassVar[type[StrictModel]] = StrictModel
    steps_per_epoch: int

    def __init__(
        self,
        source: GroupSource,
        batch_size: int,
        seed: int,
        *,
        per_group: int = 16,
        among: NDArray[np.bool_] | None = None,
        **settings: Any,
    ) -> None:
        self.settings = self.Settings.check(**settings)
        if per_group < 1:
            raise ArgumentError(f"per_group: expected 1 or more, got {per_group}")
        self.source, self.batch_size, self.seed = source, batch_size, seed
        self.per_group = per_group
        self.allowed = np.ones(len(source.count), dtype=bool) if among is None else among
        # A group of one patch has no match.
        self.groups: Integers = np.flatnonzero((source.count >= 2) & self.allowed)
        if not len(self.groups):
            raise DataError("source: expected groups of 2 patches or more, got none; build the set from more photos")
        self.taken: Integers = np.minimum(source.count, per_group)
        sizes = self.taken[self.groups]
        self._smallest, self._largest = int(sizes.min()), int(sizes.max())
        if batch_size < 3 * self._largest:
            raise ArgumentError(
                f"batch_size: expected at least three groups, 3 × {self._largest}, got {batch_size}; lower per_group"
            )
        self._prepare()

    def _prepare(self) -> None:  # noqa: B027 - some samplers have nothing to prepare
        """Compute what the sampler needs once, after the usable groups are known."""

    @abstractmethod
    def choose(self, step: int) -> Integers:
        """Return the groups (g,) of a batch."""

    def batch(self, step: int) -> BatchPlan:
        """Return the batch of a step; steps continue after the first epoch."""
        groups = self.choose(step)
        count = self.source.count[groups]
        labels = np.repeat(np.arange(len(groups)), count)
        first_of_group = np.repeat(count.cumsum() - count, count)
        within_group = np.arange(len(labels)) - first_of_group
        # Sorting by random keys shuffles each group; its first `per_group` patches are a draw without replacement.
        keys = stream(self.seed, "patches", step).random(len(labels))
        shuffled = np.lexsort((keys, labels))
        drawn = np.sort(shuffled[within_group < self.per_group])
        labels = labels[drawn]
        indices = self.source.start[groups][labels] + within_group[drawn]
        return BatchPlan(groups, indices, labels)

    def _fill(self, groups: Integers, patches: int, generator: np.random.Generator) -> Integers:
        """Draw random groups until the next one would exceed a number of patches."""
        enough = min(len(groups), patches // self._smallest)
        drawn: Integers = generator.choice(groups, enough, replace=False)
        return drawn[self.taken[drawn].cumsum() <= patches]


class GroupSampler(Sampler):
    """Random groups: an epoch has every group once, in random order, split into batches of nearly equal size.

    The splits are evenly spaced. Filling each batch to the limit instead would make the number of batches depend on
    the order of the groups, and the last batch of an epoch could be tiny.
    """

    def _prepare(self) -> None:
        sizes = self.taken[self.groups]
        unit = int(np.gcd.reduce(sizes))
        # A batch has the groups that begin between two splits, and the last of them may extend beyond the second one.
        # A batch holds three groups or more, so splits are further apart than any group is long: no batch is empty.
        largest_batch = self.batch_size // unit * unit
        spacing = largest_batch - self._largest + unit
        self.steps_per_epoch = -(-int(sizes.sum()) // spacing)
        self._epoch, self._batches = -1, [self.groups]

    def choose(self, step: int) -> Integers:
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            order = self._shuffled(stream(self.seed, "epoch", epoch))
            self._epoch, self._batches = epoch, self._split(order)
        return self._batches[position]

    def _shuffled(self, generator: np.random.Generator) -> Integers:
        return generator.permutation(self.groups)

    def _split(self, groups: Integers) -> list[Integers]:
        sizes = self.taken[groups]
        patches_before = sizes.cumsum() - sizes
        batch = patches_before * self.steps_per_epoch // sizes.sum()
        splits = np.searchsorted(batch, np.arange(1, self.steps_per_epoch))
        return np.split(groups, splits)


class SourceSampler(GroupSampler):
    """Batches from a few sources (photos or models), whose patches are similar and therefore hard distractors.

    An epoch has every group once. The groups of each source are shuffled and split into blocks, and the blocks of all
    sources are shuffled; a batch is a few consecutive blocks. Different groups of one source are different points, so
    all of them are distractors for each other.
    """

    class Settings(StrictModel):
        sources_per_batch: int = Field(8, ge=1, description="photos or models per batch")

    settings: Settings

    def _prepare(self) -> None:
        super()._prepare()
        number, limit = self.settings.sources_per_batch, self.batch_size // self._largest
        if number > limit:
            raise ArgumentError(
                f"sources_per_batch: expected 1 to {limit}, the number of groups of {self._largest} patches that fit "
                f"in a batch, got {number}"
            )
        self._block_size = self.batch_size // number

    def _shuffled(self, generator: np.random.Generator) -> Integers:
        groups = super()._shuffled(generator)
        # Bring the groups of each source together. Sources of different scenes may have the same name.
        scene, source = self.source.scene_ids[groups], self.source.source_ids[groups]
        by_source = np.lexsort((source, scene))
        groups, scene, source = groups[by_source], scene[by_source], source[by_source]
        new_source = (np.diff(scene, prepend=-1) != 0) | (np.diff(source, prepend=-1) != 0)
        first = np.flatnonzero(new_source)
        run = np.repeat(np.arange(len(first)), np.diff(first, append=len(groups)))
        # Split each source into blocks: a block begins where the patches before a group pass a multiple of its size.
        sizes = self.taken[groups]
        patches_before = sizes.cumsum() - sizes
        patches_before -= patches_before[first][run]
        block_keys = np.stack([run, patches_before // self._block_size])
        _, block = np.unique(block_keys, axis=1, return_inverse=True)
        # Shuffle the blocks of all sources.
        position = generator.permutation(block.max() + 1)[block]
        return groups[np.argsort(position, kind="stable")]


class MixedSampler(Sampler):
    """Batches with a given share of tracks of reconstructions; the rest are groups of synthetic views.

    Each of the two kinds is sampled by its own `GroupSampler`. An epoch is the longer of their epochs.
    """

    class Settings(StrictModel):
        tracks_share: float = Field(0.5, gt=0, lt=1, description="share of the patches that come from tracks")

    settings: Settings

    def _prepare(self) -> None:
        is_track = from_tracks(self.source)
        track_patches = round(self.batch_size * self.settings.tracks_share)
        view_patches = self.batch_size - track_patches
        self._parts = [
            GroupSampler(self.source, patches, self.seed, per_group=self.per_group, among=kind & self.allowed)
            for patches, kind in ((track_patches, is_track), (view_patches, ~is_track))
        ]
        self.steps_per_epoch = max(part.steps_per_epoch for part in self._parts)

    def choose(self, step: int) -> Integers:
        return np.concatenate([part.choose(step) for part in self._parts])


class SceneSampler(Sampler):
    """Batches from two scenes, with half of the patches from each, as in the paper's label mining (appendix C.2).

    An epoch is all pairs of scenes in random order. A scene with fewer patches than its half contributes all of them.
    """

    def _prepare(self) -> None:
        scene = self.source.scene_ids[self.groups]
        by_scene = np.argsort(scene, kind="stable")
        first = np.unique(scene[by_scene], return_index=True)[1]
        self._members = np.split(self.groups[by_scene], first[1:])
        if len(self._members) < 2:
            raise DataError(f"source: expected groups of at least two scenes, got {len(self._members)}")
        self._pairs: Integers = np.stack(np.triu_indices(len(self._members), 1), axis=1)
        self.steps_per_epoch = len(self._pairs)
        self._epoch, self._order = -1, self._pairs

    def choose(self, step: int) -> Integers:
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, stream(self.seed, "epoch", epoch).permutation(self._pairs)
        generator = stream(self.seed, "groups", step)
        share = self.batch_size // 2
        return np.concatenate([self._fill(self._members[scene], share, generator) for scene in self._order[position]])


class RomeSampler(Sampler):
    """Batches that begin with each group in turn and are filled with random ones: the k-th begins with group k.

    An epoch has as many batches as groups and shows each group many times. The paper trains on small sets such as
    RomePatches this way (appendix D).
    """

    def _prepare(self) -> None:
        self.steps_per_epoch = len(self.groups)

    def choose(self, step: int) -> Integers:
        position = step % self.steps_per_epoch
        first = self.groups[position : position + 1]
        others = np.delete(self.groups, position)
        free = self.batch_size - int(self.taken[first[0]])
        return np.concatenate([first, self._fill(others, free, stream(self.seed, "groups", step))])


SAMPLERS: dict[str, type[Sampler]] = {
    "groups": GroupSampler,
    "mixed": MixedSampler,
    "sources": SourceSampler,
    "scenes": SceneSampler,
    "rome": RomeSampler,
}
"""Samplers by the name that recipes use."""


def shard(plan: BatchPlan, rank: int, world: int) -> Integers:
    """Return the positions (n,) in the batch of the patches that one rank processes, increasing.

    Whole groups are dealt to the ranks in turn, the largest first. The ranks differ by at most the size of the largest
    group, and no rank is empty if there are as many groups as ranks.
    """
    sizes = np.bincount(plan.labels, minlength=len(plan.groups))
    largest_first = np.argsort(-sizes, kind="stable")
    owner = np.empty_like(largest_first)
    owner[largest_first] = np.arange(len(largest_first)) % world
    return np.flatnonzero(owner[plan.labels] == rank)


def rank_within(keys: NDArray[np.integer[Any]]) -> Integers:
    """Return the position (n,) of each item among the items with an equal key (n,).

    >>> rank_within(np.array([3, 5, 3, 3])).tolist()
    [0, 0, 1, 2]
    """
    by_key, size = np.argsort(keys, kind="stable"), np.unique(keys, return_counts=True)[1]
    rank = np.empty_like(by_key)
    rank[by_key] = np.arange(len(keys)) - np.repeat(size.cumsum() - size, size)
    return rank


def hold_out(source: GroupSource, share: float, seed: int) -> NDArray[np.bool_]:
    """Return (G,) bool, True for the groups to hold out, about a share of all.

    Whole random scenes are held out because photos of one scene show the same points. At least one scene is held out
    and at least one is left. A single scene is divided: the last groups of each source are held out, because COLMAP
    numbers its points in the order of the photos in which it finds them.
    """
    sizes = np.bincount(source.scene_ids, minlength=len(source.scene_names))
    scenes = stream(seed, "held-out scenes").permutation(np.flatnonzero(sizes))
    if len(scenes) > 1:
        number = np.searchsorted(sizes[scenes].cumsum(), share * sizes.sum()) + 1
        return np.isin(source.scene_ids, scenes[: min(number, len(scenes) - 1)])
    size = np.bincount(source.source_ids)[source.source_ids]
    held_out: NDArray[np.bool_] = rank_within(source.source_ids) >= (1 - share) * size
    if not held_out.any():
        raise DataError(
            f"source: expected enough groups to hold out {share:g} of them, got {len(held_out)}; set data.validation "
            "instead, or build the set from more photos"
        )
    return held_out
