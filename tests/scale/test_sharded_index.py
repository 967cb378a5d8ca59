"""Shards in processes of their own find what one index of all images finds, result for result."""

import dataclasses
import os
import shutil
import signal

import numpy as np
import pytest

from doap.errors import ArgumentError, DataError
from doap.scale.index import (
    Index,
    ShardedIndex,
    add_images,
    build_index,
    compact_index,
    open_index,
    remove_images,
    train_index,
)
from doap.scale.pairs import select_pairs
from doap.scale.search import cast_votes, extract_query, search_images
from oracles.feature_sets import random_features, write_features

pytestmark = pytest.mark.xdist_group("sharded")
KINDS = {"ivf": False, "ivf-pq": False, "binary ivf": True}


def some_images(shard, binary):
    """Images of a shard; both shards have a copy of the same image, which makes distances equal."""
    images = {
        f"{shard}/{number}.jpg": random_features(10 * shard + number, 60 + 20 * number, dim=16, binary=binary)
        for number in range(4)
    }
    return images | {f"{shard}/copy.jpg": random_features(99, 50, dim=16, binary=binary)}


@pytest.fixture(scope="module", params=KINDS)
def collection(request, tmp_path_factory):
    """One index of all images, two shards with the same quantiser, each with a removal, and their features."""
    folder = tmp_path_factory.mktemp("shards")
    binary, kind = KINDS[request.param], request.param.removeprefix("binary ")
    parts = [write_features(folder / f"features-{shard}", some_images(shard, binary)) for shard in range(2)]
    every = write_features(folder / "features", some_images(0, binary) | some_images(1, binary))
    trained = train_index(every, folder / "trained", kind=kind)
    (folder / "shards").mkdir()
    shards = [
        build_index(part, folder / "shards" / f"{shard}.index", quantiser=trained, segments=1 + shard)
        for shard, part in enumerate(parts)
    ]
    one = build_index(parts[0], folder / "one", quantiser=trained)
    add_images(one, parts[1])
    for shard, path in enumerate(shards):
        remove_images(path, [f"{shard}/1.jpg"])
    remove_images(one, ["0/1.jpg", "1/1.jpg"])
    compact_index(shards[1])
    with open_index(folder / "shards", in_memory=kind != "ivf") as sharded:
        yield Index(one), sharded, every


def queries(index):
    return random_features(99, 50, dim=16, binary=index.kind == "binary")


def names_of(index, votes):
    return [index.images.names[number] for number in votes.images]


def test_neighbours_are_those_of_one_index(collection):
    one, sharded, _ = collection
    assert isinstance(sharded, ShardedIndex)
    assert (len(sharded), sharded.names, sharded.plan) == (len(one), one.names, one.plan)
    for k, probes in ((1, None), (9, None), (9, 1), (len(one), one.plan.lists)):
        expected, ids = one.search(queries(one).descriptors, k, probes=probes)
        distances, found = sharded.search(queries(one).descriptors, k, probes=probes)
        np.testing.assert_array_equal(distances, expected)
        # Which of the descriptors at the k-th distance are found is not defined. Compaction changes ids, not images.
        certain = (expected < expected.max(axis=1, keepdims=True)) & (ids >= 0)
        names = [np.array(index.images.names)[index.image_of(i)] for index, i in ((one, ids), (sharded, found))]
        np.testing.assert_array_equal(names[1][certain], names[0][certain])


def test_votes_are_those_of_one_index(collection):
    one, sharded, features = collection
    for image in features.stream():
        expected, found = (cast_votes(index, image.features.descriptors, neighbours=12) for index in (one, sharded))
        assert names_of(sharded, found) == names_of(one, expected)
        np.testing.assert_array_equal(found.totals, expected.totals)


def test_search_results_and_pairs_are_those_of_one_index(collection):
    one, sharded, features = collection
    for verify in (False, True):
        assert search_images(sharded, queries(one), verify=verify) == search_images(one, queries(one), verify=verify)
    assert select_pairs(features, index=sharded, top=3) == select_pairs(features, index=one, top=3)


def test_frames_come_from_the_shard_of_the_image(collection):
    one, sharded, _ = collection
    for name in one.names:
        frames = sharded.frames(sharded.images.numbers[name])
        np.testing.assert_array_equal(frames, one.frames(one.images.numbers[name]))


def test_wrong_arguments_are_refused(collection):
    _, sharded, _ = collection
    with pytest.raises(DataError, match=r"0.index and 1 more: expected the descriptor of the index"):
        extract_query(sharded, np.zeros((60, 80), np.uint8))
    with pytest.raises(ArgumentError, match="k: expected 1 to"):
        sharded.search(queries(sharded).descriptors, len(sharded) + 1)
    with pytest.raises(IndexError):
        sharded.frames(10**6)
    assert search_images(sharded, queries(sharded))


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Two flat shards, their features, and the folder that holds everything."""
    folder = tmp_path_factory.mktemp("flat")
    parts = [write_features(folder / f"features-{shard}", some_images(shard, False)) for shard in range(2)]
    return [build_index(part, folder / f"{shard}.index") for shard, part in enumerate(parts)], parts, folder


def test_shards_that_cannot_be_searched_as_one_are_refused(shards):
    (first, *_), parts, folder = shards
    with pytest.raises(ArgumentError, match="folders: expected one index or more"):
        ShardedIndex([])
    with pytest.raises(DataError, match=r"missing: not an index"):
        ShardedIndex([first, folder / "missing"])
    with pytest.raises(DataError, match=r"0/0.jpg: in more than one shard"):
        ShardedIndex([first, first])
    other = build_index(parts[1], folder / "other", kind="ivf")
    with pytest.raises(DataError, match=r"other: expected the quantiser of .*0.index, got another one"):
        ShardedIndex([first, other])
    extractor = dataclasses.replace(parts[0].extractor, fingerprint="other", dim=32)
    features = write_features(folder / "long", {"a.jpg": random_features(0, 9, dim=32)}, extractor=extractor)
    long = build_index(features, folder / "long.index")
    with pytest.raises(DataError, match=r"long.index: does not fit the index .*: dim is 32 instead of 16"):
        ShardedIndex([first, long])


def test_errors_in_a_process_are_raised_by_the_caller(shards):
    (first, second), _, folder = shards
    damaged = folder / "damaged.index"
    shutil.copytree(second, damaged)
    segment = damaged / "segment-000001.faiss"
    segment.write_bytes(bytes(segment.stat().st_size))
    with ShardedIndex([first, damaged]) as index, pytest.raises(DataError, match=r"segment-000001.faiss: damaged"):
        search_images(index, queries(index))


def test_a_killed_process_is_reported_and_a_closed_index_is_refused(shards):
    index = ShardedIndex(shards[0])
    assert search_images(index, queries(index))
    os.kill(index._processes._running[1][0].pid, signal.SIGKILL)
    with pytest.raises(DataError, match=r"1.index: its process ended with exit code -9"):
        search_images(index, queries(index))
    with pytest.raises(ArgumentError, match="closed"):
        search_images(index, queries(index))


def test_processes_end_with_the_index(shards):
    index = ShardedIndex(shards[0])
    processes = [process for process, _ in index._processes._running]
    assert all(process.is_alive() for process in processes)
    del index
    assert not any(process.is_alive() for process in processes)


def test_an_open_sharded_index_keeps_its_state(tmp_path):
    parts = [write_features(tmp_path / f"features-{shard}", some_images(shard, False)) for shard in range(2)]
    folders = [build_index(part, tmp_path / f"{shard}.index") for shard, part in enumerate(parts)]
    with ShardedIndex(folders) as index:
        remove_images(folders[0], ["0/copy.jpg"])
        compact_index(folders[0])
        assert {one.name for one in search_images(index, queries(index), top=2)} == {"0/copy.jpg", "1/copy.jpg"}
    with ShardedIndex(folders) as index:
        assert [one.name for one in search_images(index, queries(index), top=1)] == ["1/copy.jpg"]
