from functools import partial
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doap._support.errors import ArgumentError, DataError
from doap.data.sampler import (
    GroupSampler,
    MixedSampler,
    RomeSampler,
    SceneSampler,
    SourceSampler,
    hold_out,
    shard,
)
from oracles.memory_source import memory_source

two_sources = partial(SourceSampler, sources_per_batch=2)
SAMPLERS = [GroupSampler, two_sources, SceneSampler, RomeSampler]
SEEDS = st.integers(0, 9)


@st.composite
def sources(draw):
    """Groups of 1 to 6 patches in two to five scenes; each scene has a group with a match."""
    scenes = draw(st.integers(2, 5))
    counts = draw(st.lists(st.integers(1, 6), min_size=0, max_size=30))
    ids = [draw(st.integers(0, scenes - 1)) for _ in counts]
    source_ids = [draw(st.integers(0, 2)) for _ in range(len(counts) + scenes)]
    return memory_source(counts + [2] * scenes, ids + list(range(scenes)), sources=source_ids)


def plans(sampler):
    return [sampler.batch(step) for step in range(sampler.steps_per_epoch)]


def same(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("groups", "indices", "labels"))


@pytest.mark.parametrize("kind", SAMPLERS)
class TestEverySampler:
    @given(source=sources(), seed=SEEDS, per_group=st.integers(2, 6), more=st.integers(0, 20))
    def test_batches_have_whole_groups_once_and_no_patch_twice(self, kind, source, seed, per_group, more):
        sampler = kind(source, 3 * per_group + more, seed, per_group=per_group)
        for plan in plans(sampler):
            assert len(set(plan.groups.tolist())) == len(plan.groups) > 0
            assert len(set(plan.indices.tolist())) == len(plan.indices) <= sampler.batch_size
            for position, group in enumerate(plan.groups):
                mine = plan.indices[plan.labels == position]
                assert len(mine) == min(source.count[group], per_group) >= 2
                assert source.start[group] <= mine.min() <= mine.max() < source.start[group] + source.count[group]

    @given(source=sources(), seed=SEEDS)
    def test_a_batch_depends_on_seed_and_step_only(self, kind, source, seed):
        busy, fresh = (kind(source, 18, seed, per_group=6) for _ in range(2))
        last = 2 * busy.steps_per_epoch
        for step in range(last):
            busy.batch(step)
        for step in (last - 1, 0):
            assert same(busy.batch(step), fresh.batch(step))

    def test_seeds_and_epochs_differ(self, kind):
        source = memory_source([4] * 60, [0, 1, 2] * 20)
        one, other = (kind(source, 24, seed) for seed in (0, 1))
        assert not same(one.batch(0), other.batch(0))
        assert not same(one.batch(0), one.batch(one.steps_per_epoch))

    def test_all_patches_of_a_large_group_are_drawn_eventually(self, kind):
        sampler = kind(memory_source([9, 9, 9], [0, 1, 2]), 6, 0, per_group=2)
        seen = {index for step in range(100) for index in sampler.batch(step).indices.tolist()}
        assert seen == set(range(27))

    def test_held_out_groups_are_never_in_a_batch(self, kind):
        source = memory_source([3, 5, 2, 4] * 6, [0, 0, 1, 2] * 6)
        among = source.scene_ids != 1
        for plan in plans(kind(source, 30, 0, among=among)):
            assert among[plan.groups].all()

    def test_small_batches_and_sources_without_usable_groups_are_refused(self, kind):
        with pytest.raises(ArgumentError):
            kind(memory_source([4, 4], [0, 1]), 11, 0)
        with pytest.raises(DataError):
            kind(memory_source([1, 1], [0, 1]), 8, 0)


@pytest.mark.parametrize("kind", [GroupSampler, two_sources])
@given(source=sources(), seed=SEEDS, epoch=st.integers(0, 3), batch_size=st.integers(18, 60))
def test_an_epoch_has_every_group_that_can_match_once(kind, source, seed, epoch, batch_size):
    sampler = kind(source, batch_size, seed)
    first = epoch * sampler.steps_per_epoch
    seen = np.concatenate([sampler.batch(first + step).groups for step in range(sampler.steps_per_epoch)])
    assert sorted(seen) == np.flatnonzero(source.count >= 2).tolist()


@given(source=sources(), seed=SEEDS)
def test_the_batches_of_an_epoch_differ_by_less_than_two_groups(source, seed):
    sizes = [len(plan.indices) for plan in plans(GroupSampler(source, 18, seed))]
    assert max(sizes) - min(sizes) < 2 * 6


@pytest.mark.parametrize("kind", [GroupSampler, RomeSampler])
def test_equal_groups_that_divide_the_batch_size_fill_the_batch(kind):
    assert {len(plan.indices) for plan in plans(kind(memory_source([4] * 60, [0] * 60), 24, 0))} == {24}


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_batch_has_the_requested_number_of_sources_in_equal_blocks(number):
    source = memory_source([2] * 480, [0, 1] * 240, sources=[0, 0, 1, 1, 2, 2] * 80)
    for plan in plans(SourceSampler(source, 40, 0, sources_per_batch=number)):
        keys = list(zip(source.scene_ids[plan.groups], source.source_ids[plan.groups], strict=True))
        assert len(set(keys)) <= number
        # Groups of a source are adjacent, in blocks of an equal share of the batch.
        assert all(len(set(keys[at : at + 20 // number])) == 1 for at in range(0, 20, 20 // number))


@given(source=sources(), seed=SEEDS)
def test_an_epoch_of_scenes_has_all_pairs_once(source, seed):
    met = [tuple(np.unique(source.scene_ids[plan.groups]).tolist()) for plan in plans(SceneSampler(source, 18, seed))]
    assert sorted(met) == list(combinations(range(len(source.scene_names)), 2))


def test_half_of_a_batch_is_from_each_of_two_scenes():
    source = memory_source([4] * 100, [0, 1, 2, 3, 4] * 20)
    for plan in plans(SceneSampler(source, 48, 0)):
        _, share = np.unique(source.scene_ids[plan.groups[plan.labels]], return_counts=True)
        assert share.tolist() == [24, 24]


def test_a_scene_of_single_patches_is_not_sampled_and_one_scene_is_not_enough():
    source = memory_source([2, 1, 2, 2, 1], [0, 1, 2, 3, 1])
    assert {scene for plan in plans(SceneSampler(source, 8, 0)) for scene in source.scene_ids[plan.groups]} == {0, 2, 3}
    with pytest.raises(DataError):
        SceneSampler(memory_source([2] * 4, [0] * 4), 12, 0)


@given(source=sources(), seed=SEEDS)
def test_the_kth_batch_of_rome_begins_with_the_kth_group(source, seed):
    first = [int(plan.groups[0]) for plan in plans(RomeSampler(source, 18, seed))]
    assert first == np.flatnonzero(source.count >= 2).tolist()


@given(source=sources(), seed=SEEDS, world=st.integers(1, 5))
def test_ranks_share_a_batch_by_whole_groups_almost_equally(source, seed, world):
    plan = GroupSampler(source, 60, seed).batch(0)
    parts = [shard(plan, rank, world) for rank in range(world)]
    assert sorted(np.concatenate(parts)) == list(range(len(plan.indices)))
    assert sum(len(set(plan.labels[part].tolist())) for part in parts) == len(plan.groups)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= np.bincount(plan.labels).max()
    assert min(sizes) > 0 or len(plan.groups) < world


class TestMixedSampler:
    source = memory_source([4] * 90, [0] * 90, sources=[0] * 30 + [1, 2, 3] * 20)

    def test_tracks_have_the_requested_share(self):
        for plan in plans(MixedSampler(self.source, 40, 0, tracks_share=0.3)):
            assert (plan.groups < 30).sum() == 3
            assert len(plan.indices) <= 40

    def test_every_group_of_a_kind_is_used_before_any_is_repeated(self):
        sampler = MixedSampler(self.source, 40, 0, tracks_share=0.5)
        assert sampler.steps_per_epoch == 12
        views = np.concatenate([plan.groups[plan.groups >= 30] for plan in plans(sampler)])
        assert np.array_equal(np.sort(views), np.arange(30, 90))
        tracks = np.concatenate([sampler.batch(step).groups for step in range(6)])
        assert np.array_equal(np.sort(tracks[tracks < 30]), np.arange(30))

    def test_held_out_groups_are_not_used_and_both_kinds_are_needed(self):
        for plan in plans(MixedSampler(self.source, 40, 0, among=np.arange(90) % 2 == 0)):
            assert (plan.groups % 2 == 0).all()
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


def test_the_last_groups_of_each_source_of_a_single_scene_are_held_out():
    held_out = hold_out(memory_source([2] * 45, [0] * 45, sources=[0, 1, 0] * 15), 0.1, seed=0)
    assert np.flatnonzero(held_out).tolist() == [41, 42, 43, 44]
    with pytest.raises(DataError):
        hold_out(memory_source([2] * 4, [0] * 4), 0.1, seed=0)
