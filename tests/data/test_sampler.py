from __future__ import annotations

from functools import partial
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doap._support.errors import ArgumentError, DataError
from doap.data.sampler import (
    BatchPlan,
    GroupSampler,
    MixedSampler,
    RomeSampler,
    Sampler,
    SceneSampler,
    SourceSampler,
    hold_out,
    shard,
)
from oracles.memory_source import MemorySource, memory_source

two_sources = partial(SourceSampler, sources_per_batch=2)
SAMPLERS = [GroupSampler, two_sources, SceneSampler, RomeSampler]


@st.composite
def sources(draw: st.DrawFn) -> MemorySource:
    """Groups of 1 to 6 patches in two to five scenes; each scene has a group with a match."""
    scenes = draw(st.integers(2, 5))
    counts = draw(st.lists(st.integers(1, 6), min_size=0, max_size=30))
    ids = [draw(st.integers(0, scenes - 1)) for _ in counts]
    source_ids = [draw(st.integers(0, 2)) for _ in range(len(counts) + scenes)]
    return memory_source(counts + [2] * scenes, ids + list(range(scenes)), sources=source_ids)


def plans(sampler: Sampler) -> list[BatchPlan]:
    return [sampler.batch(step) for step in range(sampler.steps_per_epoch)]


def same(one: BatchPlan, other: BatchPlan) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("groups", "indices", "labels"))


@pytest.mark.parametrize("kind", SAMPLERS)
class TestEverySampler:
    @given(source=sources(), seed=st.integers(0, 9), per_group=st.integers(2, 6), more=st.integers(0, 20))
    def test_batches_have_whole_groups_once_and_no_patch_twice(
        self, kind: type[Sampler], source: MemorySource, seed: int, per_group: int, more: int
    ) -> None:
        sampler = kind(source, 3 * per_group + more, seed, per_group=per_group)
        for plan in plans(sampler):
            assert len(set(plan.groups.tolist())) == len(plan.groups) > 0
            assert len(set(plan.indices.tolist())) == len(plan.indices) <= sampler.batch_size
            for position, group in enumerate(plan.groups):
                mine = plan.indices[plan.labels == position]
                assert len(mine) == min(source.count[group], per_group) >= 2
                assert source.start[group] <= mine.min() <= mine.max() < source.start[group] + source.count[group]

    @given(source=sources(), seed=st.integers(0, 9))
    def test_a_batch_depends_on_seed_and_step_only(self, kind: type[Sampler], source: MemorySource, seed: int) -> None:
        busy, fresh = (kind(source, 18, seed, per_group=6) for _ in range(2))
        last = 2 * busy.steps_per_epoch
        for step in range(last):
            busy.batch(step)
        for step in (last - 1, 0):
            assert same(busy.batch(step), fresh.batch(step))

    def test_seeds_and_epochs_differ(self, kind: type[Sampler]) -> None:
        source = memory_source([4] * 60, [0, 1, 2] * 20)
        one, other = (kind(source, 24, seed) for seed in (0, 1))
        assert not same(one.batch(0), other.batch(0))
        assert not same(one.batch(0), one.batch(one.steps_per_epoch))

    def test_all_patches_of_a_large_group_are_drawn_eventually(self, kind: type[Sampler]) -> None:
        source = memory_source([9, 9, 9], [0, 1, 2])
        sampler = kind(source, 6, 0, per_group=2)
        seen = {index for step in range(100) for index in sampler.batch(step).indices.tolist()}
        assert seen == set(range(27))

    def test_a_batch_smaller_than_three_groups_is_rejected(self, kind: type[Sampler]) -> None:
        with pytest.raises(ArgumentError):
            kind(memory_source([4, 4], [0, 1]), 11, 0)

    def test_a_source_without_usable_groups_is_an_error(self, kind: type[Sampler]) -> None:
        with pytest.raises(DataError):
            kind(memory_source([1, 1], [0, 1]), 8, 0)


@pytest.mark.parametrize("kind", [GroupSampler, two_sources])
@given(source=sources(), seed=st.integers(0, 9), epoch=st.integers(0, 3), batch_size=st.integers(18, 60))
def test_an_epoch_has_every_group_that_can_match_once(
    kind: type[Sampler], source: MemorySource, seed: int, epoch: int, batch_size: int
) -> None:
    sampler = kind(source, batch_size, seed)
    first = epoch * sampler.steps_per_epoch
    seen = np.concatenate([sampler.batch(first + step).groups for step in range(sampler.steps_per_epoch)])
    assert sorted(seen) == np.flatnonzero(source.count >= 2).tolist()


def test_equal_groups_that_divide_the_batch_size_fill_the_batch() -> None:
    sizes = [len(plan.indices) for plan in plans(GroupSampler(memory_source([4] * 60, [0] * 60), 24, 0))]
    assert sizes == [24] * 10


@given(source=sources(), seed=st.integers(0, 9))
def test_the_batches_of_an_epoch_differ_by_less_than_two_groups(source: MemorySource, seed: int) -> None:
    sizes = [len(plan.indices) for plan in plans(GroupSampler(source, 18, seed))]
    assert max(sizes) - min(sizes) < 2 * 6


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_batch_has_the_requested_number_of_sources_in_equal_blocks(number: int) -> None:
    source = memory_source([2] * 480, [0, 1] * 240, sources=[0, 0, 1, 1, 2, 2] * 80)
    for plan in plans(SourceSampler(source, 40, 0, sources_per_batch=number)):
        keys = list(zip(source.scene_ids[plan.groups], source.source_ids[plan.groups], strict=True))
        assert len(set(keys)) <= number
        # Groups of a source are adjacent, in blocks of an equal share of the batch.
        assert all(len(set(keys[at : at + 20 // number])) == 1 for at in range(0, 20, 20 // number))


@pytest.mark.parametrize("number", [0, 11])
def test_number_of_sources_must_fit_in_a_batch(number: int) -> None:
    with pytest.raises(ArgumentError):
        SourceSampler(memory_source([4] * 60, [0] * 60), 40, 0, sources_per_batch=number)


def scenes_of(source: MemorySource, plan: BatchPlan) -> list[int]:
    return np.unique(source.scene_ids[plan.groups]).tolist()


@given(source=sources(), seed=st.integers(0, 9))
def test_an_epoch_of_two_scenes_per_batch_has_all_pairs_once(source: MemorySource, seed: int) -> None:
    met = [tuple(scenes_of(source, plan)) for plan in plans(SceneSampler(source, 18, seed))]
    assert sorted(met) == list(combinations(range(len(source.scene_names)), 2))


def test_half_of_a_batch_is_from_each_of_two_scenes() -> None:
    source = memory_source([4] * 100, [0, 1, 2, 3, 4] * 20)
    for plan in plans(SceneSampler(source, 48, 0)):
        _, share = np.unique(source.scene_ids[plan.groups[plan.labels]], return_counts=True)
        assert share.tolist() == [24, 24]


def test_a_scene_of_single_patches_is_not_sampled() -> None:
    source = memory_source([2, 1, 2, 2, 1], [0, 1, 2, 3, 1])
    met = [scenes_of(source, plan) for plan in plans(SceneSampler(source, 8, 0))]
    assert sorted(met) == [[0, 2], [0, 3], [2, 3]]


def test_one_scene_is_not_enough_for_pairs() -> None:
    with pytest.raises(DataError):
        SceneSampler(memory_source([2] * 4, [0] * 4), 12, 0)


@given(source=sources(), seed=st.integers(0, 9))
def test_the_kth_batch_of_rome_begins_with_the_kth_group(source: MemorySource, seed: int) -> None:
    sampler = RomeSampler(source, 18, seed)
    assert [int(plan.groups[0]) for plan in plans(sampler)] == np.flatnonzero(source.count >= 2).tolist()


def test_rome_fills_the_batch() -> None:
    assert {len(plan.indices) for plan in plans(RomeSampler(memory_source([4] * 30, [0] * 30), 24, 0))} == {24}


@given(source=sources(), seed=st.integers(0, 9), world=st.integers(1, 5))
def test_ranks_share_a_batch_by_whole_groups(source: MemorySource, seed: int, world: int) -> None:
    plan = GroupSampler(source, 60, seed).batch(0)
    parts = [shard(plan, rank, world) for rank in range(world)]
    assert sorted(np.concatenate(parts)) == list(range(len(plan.indices)))
    owners = [set(plan.labels[part].tolist()) for part in parts]
    assert sum(len(owner) for owner in owners) == len(plan.groups)


@given(source=sources(), seed=st.integers(0, 9), world=st.integers(1, 5))
def test_ranks_differ_by_no_more_than_the_largest_group(source: MemorySource, seed: int, world: int) -> None:
    plan = GroupSampler(source, 60, seed).batch(0)
    sizes = [len(shard(plan, rank, world)) for rank in range(world)]
    assert max(sizes) - min(sizes) <= np.bincount(plan.labels).max()
    assert min(sizes) > 0 or len(plan.groups) < world


def test_held_out_groups_are_never_in_a_batch():
    source = memory_source([3, 5, 2, 4] * 6, [0, 0, 1, 2] * 6)
    among = source.scene_ids != 1
    for sampler in (make(source, 30, 0, among=among) for make in SAMPLERS):
        drawn = np.concatenate([sampler.batch(step).groups for step in range(2 * sampler.steps_per_epoch)])
        assert set(drawn.tolist()) <= set(np.flatnonzero(among).tolist())


class TestMixedSampler:
    source = memory_source([4] * 90, [0] * 90, sources=[0] * 30 + [1, 2, 3] * 20)

    def test_tracks_have_the_requested_share(self) -> None:
        sampler = MixedSampler(self.source, 40, 0, tracks_share=0.3)
        for plan in plans(sampler):
            assert (plan.groups < 30).sum() == 3
            assert len(plan.indices) <= 40
            assert len(np.unique(plan.groups)) == len(plan.groups)

    def test_every_group_of_a_kind_is_used_before_any_is_repeated(self) -> None:
        sampler = MixedSampler(self.source, 40, 0, tracks_share=0.5)
        assert sampler.steps_per_epoch == 12
        views = np.concatenate([plan.groups[plan.groups >= 30] for plan in plans(sampler)])
        assert np.array_equal(np.sort(views), np.arange(30, 90))
        tracks = np.concatenate([sampler.batch(step).groups for step in range(6)])
        assert np.array_equal(np.sort(tracks[tracks < 30]), np.arange(30))

    def test_only_allowed_groups_are_used(self) -> None:
        among = np.arange(90) % 2 == 0
        for plan in plans(MixedSampler(self.source, 40, 0, among=among)):
            assert (plan.groups % 2 == 0).all()

    def test_a_set_without_tracks_is_an_error(self) -> None:
        with pytest.raises(DataError):
            MixedSampler(memory_source([4] * 60, [0] * 60, sources=[1] * 60), 40, 0)


@given(
    st.lists(st.integers(0, 5), min_size=2, max_size=40).filter(lambda ids: len(set(ids)) > 1), st.floats(0.01, 0.99)
)
def test_whole_scenes_are_held_out_and_some_are_left(scenes, share):
    source = memory_source([2] * len(scenes), scenes)
    held_out = hold_out(source, share, seed=0)
    assert 0 < held_out.sum() < len(held_out)
    assert not set(source.scene_ids[held_out]) & set(source.scene_ids[~held_out])


def test_the_share_is_reached_with_as_few_scenes_as_possible():
    source = memory_source([2] * 100, [number // 10 for number in range(100)])
    assert hold_out(source, 0.25, seed=0).sum() == 30
    assert np.array_equal(hold_out(source, 0.25, seed=0), hold_out(source, 0.25, seed=0))


def test_one_scene_cannot_be_split():
    with pytest.raises(DataError):
        hold_out(memory_source([2] * 4, [0] * 4), 0.1, seed=0)
