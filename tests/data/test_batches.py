import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from doap.data.augment import Augmentation
from doap.data.batches import Batches
from doap.data.mining import Mined
from doap.data.sampler import GroupSampler, RomeSampler, SceneSampler
from doap.types import Relation
from oracles.listwise import relation_tables
from oracles.memory_source import MemorySource, memory_source

# Warnings for machines with one core and, in newer Pythons, for forking a process with threads.
with_workers = pytest.mark.filterwarnings("ignore:This DataLoader will create", "ignore:.*multi-threaded.*fork")


@pytest.fixture
def source():
    never = [(0, 1), (1, 2), (3, 20), (5, 4), (7, 8)]
    return memory_source([3, 5, 2, 4] * 6, [0, 0, 1, 2] * 6, never=never, sources=[0, 1, 2, 3] * 3 + [0, 4, 2, 3] * 3)


@pytest.fixture
def mined(source):
    """Two clusters of patches per scene; those of scene 0 ignore each other."""
    apart = np.eye(2, dtype=bool)
    clusters = source.scene_ids.repeat(source.count) * 2 + np.arange(len(source.patches)) % 5 % 2
    return Mined(clusters.astype(np.int64), np.stack([np.ones((2, 2), dtype=bool), apart, apart]))


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(relation_tables(one), relation_tables(other), strict=True))


def test_a_batch_is_uint8_patches_with_a_channel_and_their_groups(source):
    batches = Batches(source, GroupSampler(source, 30, 0), seed=0)
    patches, relation = batches[0]
    plan = batches.sampler.batch(0)
    assert patches.dtype == torch.uint8
    assert np.array_equal(patches[:, 0].numpy(), source.patches[plan.indices])
    assert relation.groups.tolist() == plan.labels.tolist()
    assert len(batches) == batches.sampler.steps_per_epoch


def test_augmentation_changes_patches_reproducibly(source):
    sampler = RomeSampler(source, 80, 0)
    batches = Batches(source, sampler, seed=0, augmentation=Augmentation())
    plain = Batches(source, sampler, seed=0)
    turned = [not torch.equal(batches[step][0], plain[step][0]) for step in (0, 1)]
    assert turned == [True, True]
    assert torch.equal(batches[0][0], batches[0][0])


@with_workers
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_returns_the_same_batches_with_any_number_of_workers(source, workers):
    batches = Batches(source, GroupSampler(source, 30, 0), seed=0, augmentation=Augmentation(noise=0.1))
    loader = DataLoader(batches, batch_size=None, sampler=range(2, 9), num_workers=workers)
    for step, (patches, relation) in zip(range(2, 9), loader, strict=True):
        assert torch.equal(patches, batches[step][0])
        assert equal(relation, batches[step][1])


def is_distractor(batches, first, second):
    """Whether two patches are distractors to each other, from the source."""
    source = batches.source
    one, other = (int(np.searchsorted(source.start, patch, side="right")) - 1 for patch in (first, second))
    assert isinstance(source, MemorySource)
    if one == other or (one, other) in source.never or (other, one) in source.never:
        return False
    scene = int(source.scene_ids[one])
    if scene != source.scene_ids[other]:
        return True
    # Two photos of one scene may show the same point.
    if source.sources[one] != source.sources[other]:
        return False
    if batches.mined is None:
        return True
    one_of_two, other_of_two = (int(batches.mined.clusters[patch]) - 2 * scene for patch in (first, second))
    return not batches.mined.tables[scene, one_of_two, other_of_two]


def oracle(batches, step):
    """Matches and distractors in the batch of all ranks, pair by pair."""
    plan = batches.sampler.batch(step)
    groups, patches = plan.groups[plan.labels].tolist(), plan.indices.tolist()
    positive, distractor = torch.zeros(2, len(groups), len(groups), dtype=torch.bool)
    for row, one in enumerate(groups):
        for column, other in enumerate(groups):
            positive[row, column] = one == other and row != column
            distractor[row, column] = is_distractor(batches, patches[row], patches[column])
    return positive, distractor


@pytest.mark.parametrize("mining", [False, True])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_ranks_together_have_the_relation_of_the_whole_batch(source, mined, mining, world):
    sampler = SceneSampler(source, 40, 0)
    for step in range(3):
        parts = [
            Batches(source, sampler, seed=0, rank=rank, world=world, mined=mined if mining else None)
            for rank in range(world)
        ]
        relations = [batches[step][1] for batches in parts]
        tables = [relation.ignored_clusters for relation in relations]
        assert all(table is tables[0] is None or torch.equal(table, tables[0]) for table in tables)
        groups = torch.cat([relation.groups for relation in relations])
        parts_of_clusters = [relation.clusters for relation in relations if relation.clusters is not None]
        clusters = torch.cat(parts_of_clusters) if parts_of_clusters else None
        whole = Relation(groups, relations[0].ignored_pairs, clusters, relations[0].ignored_clusters)
        # Sorted by group, the items of the ranks are in the order of the batch.
        order = groups.argsort(stable=True)
        expected = oracle(parts[0], step)
        for table, wanted in zip(relation_tables(whole), expected, strict=True):
            assert torch.equal(table[order][:, order], wanted)


def test_without_scene_distractors_only_other_scenes_have_them(source):
    sampler = GroupSampler(source, 60, 0)
    whole, across = (Batches(source, sampler, seed=0, scene_distractors=one)[0][1] for one in (True, False))
    scene = torch.from_numpy(source.scene_ids[sampler.batch(0).groups])[whole.groups]
    positive, distractor = relation_tables(whole)
    other_scene = scene[:, None] != scene
    assert (distractor & ~other_scene).any()
    for table, wanted in zip(relation_tables(across), (positive, distractor & other_scene), strict=True):
        assert torch.equal(table, wanted)


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_together_have_the_patches_of_one_process(source, world):
    sampler = GroupSampler(source, 40, 0)
    noisy = Augmentation(noise=0.2)
    whole, relation = Batches(source, sampler, seed=0, augmentation=noisy)[1]
    parts = [Batches(source, sampler, seed=0, augmentation=noisy, rank=rank, world=world)[1] for rank in range(world)]
    order = torch.cat([part[1].groups for part in parts]).argsort(stable=True)
    assert torch.equal(torch.cat([part[0] for part in parts])[order], whole)
    assert torch.equal(torch.cat([part[1].groups for part in parts])[order], relation.groups)
