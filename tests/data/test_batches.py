from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from doap.data.batches import Batches
from doap.data.mining import Mined
from doap.data.sampler import GroupSampler, RomeSampler, SceneSampler
from doap.errors import ArgumentError
from doap.types import Relation
from oracles.listwise import relation_tables
from oracles.memory_source import MemorySource, memory_source

# CI may have one core, and newer Pythons warn of forking beside torch's threads; neither matters to what is tested.
with_workers = pytest.mark.filterwarnings("ignore:This DataLoader will create", "ignore:.*multi-threaded.*fork")


@pytest.fixture
def source() -> MemorySource:
    never = [(0, 1), (1, 2), (3, 20), (5, 4), (7, 8)]
    return memory_source([3, 5, 2, 4] * 6, [0, 0, 1, 2] * 6, never=never, sources=[0, 1, 2, 3] * 3 + [0, 4, 2, 3] * 3)


@pytest.fixture
def mined(source: MemorySource) -> Mined:
    """Two clusters to a sequence; in sequence 0 they ignore each other."""
    apart = np.eye(2, dtype=bool)
    clusters = source.scene_ids * 2 + np.arange(24) % 5 % 2
    return Mined(clusters.astype(np.int64), np.stack([np.ones((2, 2), dtype=bool), apart, apart]))


def equal(one: Relation, other: Relation) -> bool:
    return all(torch.equal(a, b) for a, b in zip(relation_tables(one), relation_tables(other), strict=True))


def test_a_list_is_uint8_patches_with_a_channel_and_their_groups(source: MemorySource) -> None:
    lists = Batches(source, GroupSampler(source, 30, 0), seed=0)
    patches, relation = lists[0]
    plan = lists.sampler.batch(0)
    assert patches.dtype == torch.uint8
    assert patches.shape == (len(plan.indices), 1, 4, 4)
    assert relation.groups.tolist() == plan.labels.tolist()
    assert len(lists) == lists.sampler.steps_per_epoch


def test_without_augmentation_patches_are_those_of_the_source(source: MemorySource) -> None:
    lists = Batches(source, GroupSampler(source, 30, 0), seed=0, augment=False)
    assert np.array_equal(lists[3][0][:, 0].numpy(), source.patches[lists.sampler.batch(3).indices])


def test_augmentation_and_light_change_patches_and_depend_on_the_step(source: MemorySource) -> None:
    sampler = RomeSampler(source, 80, 0)
    plain, turned, lit = (
        Batches(source, sampler, seed=0, **how)  # type: ignore[arg-type]
        for how in ({"augment": False}, {}, {"augment": False, "gain": 0.5})
    )
    assert not torch.equal(turned[0][0], plain[0][0])
    assert not torch.equal(lit[0][0], plain[0][0])
    assert torch.equal(turned[0][0], turned[0][0])


@with_workers
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_gives_the_same_lists_with_any_number_of_workers(source: MemorySource, workers: int) -> None:
    lists = Batches(source, GroupSampler(source, 30, 0), seed=0, gain=0.1)
    loader = DataLoader(lists, batch_size=None, sampler=range(2, 9), num_workers=workers)
    for step, (patches, relation) in zip(range(2, 9), loader, strict=True):
        assert torch.equal(patches, lists[step][0])
        assert equal(relation, lists[step][1])


def oracle(lists: Batches, step: int) -> tuple[Tensor, Tensor]:
    """Who matches whom and who is a distractor of whom in the list of all ranks, pair by pair from the source."""
    plan, source = lists.sampler.batch(step), lists.source
    assert isinstance(source, MemorySource)
    never = {frozenset(pair) for pair in source.never}
    groups = plan.groups[plan.labels].tolist()
    positive, distractor = torch.zeros(2, len(groups), len(groups), dtype=torch.bool)
    for row, one in enumerate(groups):
        for column, other in enumerate(groups):
            alike = False
            if lists.mined is not None and source.scene_ids[one] == source.scene_ids[other]:
                sequence = int(source.scene_ids[one])
                one_of_two, other_of_two = (int(lists.mined.clusters[group]) - 2 * sequence for group in (one, other))
                alike = bool(lists.mined.tables[sequence, one_of_two, other_of_two])
            # Two photos of one place may show the same spot.
            same_place = source.scene_ids[one] == source.scene_ids[other]
            alike |= bool(same_place and source.sources[one] != source.sources[other])
            positive[row, column] = one == other and row != column
            distractor[row, column] = one != other and frozenset((one, other)) not in never and not alike
    return positive, distractor


@pytest.mark.parametrize("mining", [False, True])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_ranks_together_know_who_matches_whom(source: MemorySource, mined: Mined, mining: bool, world: int) -> None:
    sampler = SceneSampler(source, 40, 0)
    for step in range(3):
        parts = [
            Batches(source, sampler, seed=0, rank=rank, world=world, mined=mined if mining else None)
            for rank in range(world)
        ]
        relations = [lists[step][1] for lists in parts]
        groups = torch.cat([relation.groups for relation in relations])
        parts_of_clusters = [relation.clusters for relation in relations if relation.clusters is not None]
        clusters = torch.cat(parts_of_clusters) if parts_of_clusters else None
        whole = Relation(groups, relations[0].ignored_pairs, clusters, relations[0].ignored_clusters)
        # The order of the ranks' items is that of the list once they are sorted by group.
        order = groups.argsort(stable=True)
        expected = oracle(parts[0], step)
        for table, wanted in zip(relation_tables(whole), expected, strict=True):
            assert torch.equal(table[order][:, order], wanted)


def test_all_ranks_hold_one_table(source: MemorySource, mined: Mined) -> None:
    sampler = SceneSampler(source, 40, 0)
    tables = [
        Batches(source, sampler, seed=0, rank=rank, world=2, mined=mined)[0][1].ignored_clusters for rank in (0, 1)
    ]
    assert tables[0] is not None
    assert tables[1] is not None
    assert torch.equal(tables[0], tables[1])


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_together_hold_the_patches_of_one_process(source: MemorySource, world: int) -> None:
    sampler = GroupSampler(source, 40, 0)
    whole, relation = Batches(source, sampler, seed=0, gain=0.2)[1]
    parts = [Batches(source, sampler, seed=0, gain=0.2, rank=rank, world=world)[1] for rank in range(world)]
    order = torch.cat([part[1].groups for part in parts]).argsort(stable=True)
    assert torch.equal(torch.cat([part[0] for part in parts])[order], whole)
    assert torch.equal(torch.cat([part[1].groups for part in parts])[order], relation.groups)


def test_a_rank_outside_the_world_is_refused(source: MemorySource) -> None:
    with pytest.raises(ArgumentError, match="rank"):
        Batches(source, GroupSampler(source, 40, 0), seed=0, rank=2, world=2)
