"""Lists on disk, compaction, and readers that keep their state: the results are those of an index in memory."""

import dataclasses
import shutil

import numpy as np
import pytest

from doap._support.errors import ArgumentError, DataError
from doap.collection.index import (
    Compaction,
    Index,
    IndexChange,
    add_images,
    build_index,
    compact_index,
    remove_images,
)
from doap.collection.search import search_images
from oracles.feature_sets import random_features, write_features

KINDS = {"flat": False, "ivf": False, "ivf-pq": False, "binary flat": True, "binary ivf": True}
COUNTS = (150, 0, 120, 1, 140, 130, 90)


def some_images(binary=False):
    counts = enumerate(COUNTS)
    images = {f"{number}.jpg": random_features(number, count, dim=16, binary=binary) for number, count in counts}
    # The copy of another image makes many distances equal.
    return images | {"copy.jpg": random_features(0, COUNTS[0], dim=16, binary=binary)}


def files_of(folder):
    return {path.name for path in folder.iterdir()}


def current(index):
    return {file["name"] for file in index.meta["files"].values()}


def search_all(index, binary, k=20):
    """Search with all default lists; return neighbours, and the results of an image search with verification."""
    queries = random_features(2, 120, dim=16, binary=binary)
    distances, ids = index.search(queries.descriptors, k)
    names = np.array([*index.images.names, "none"])[index.image_of(ids)]
    return distances, ids, names, search_images(index, queries, top=8, verify=True)


def assert_same(found, expected):
    """Compare results of `search_all`. Which of the descriptors at the last distance are found is not defined.

    FAISS rounds the distances of a flat index differently if the number of its descriptors changes.
    """
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
    certain = expected[0] < expected[0].max(axis=1, keepdims=True)
    np.testing.assert_array_equal(found[2][certain], expected[2][certain])
    np.testing.assert_array_equal(found[1][certain], expected[1][certain])
    assert [dataclasses.replace(one, votes=0) for one in found[3]] == [
        dataclasses.replace(one, votes=0) for one in expected[3]
    ]
    np.testing.assert_allclose([one.votes for one in found[3]], [one.votes for one in expected[3]], rtol=1e-5)


@pytest.fixture(scope="module", params=KINDS)
def built(request, tmp_path_factory):
    """Folder of an index with two additions, three removed images and a replaced one; whether it is binary."""
    tmp_path = tmp_path_factory.mktemp("built")
    binary = KINDS[request.param]
    kind = request.param.removeprefix("binary ")
    features = write_features(tmp_path / "features", some_images(binary))
    folder = build_index(features, tmp_path / "index", kind=kind)
    again = {"6.jpg": random_features(60, 70, dim=16, binary=binary)}
    add_images(folder, write_features(tmp_path / "again", again, changed=" again"))
    more = {f"{number}.jpg": random_features(number, 40, dim=16, binary=binary) for number in (7, 8)}
    add_images(folder, write_features(tmp_path / "more", more))
    remove_images(folder, ["0.jpg", "3.jpg", "8.jpg"])
    return tmp_path, binary


@pytest.fixture
def changed(built, tmp_path):
    """Copy of the index of `built`."""
    shutil.copytree(built[0], tmp_path, dirs_exist_ok=True)
    return tmp_path / "index", built[1]


def test_an_index_on_disk_finds_what_an_index_in_memory_finds(changed):
    folder, binary = changed
    in_memory, on_disk = Index(folder), Index(folder, in_memory=False)
    assert_same(search_all(on_disk, binary), search_all(in_memory, binary))
    everything = len(in_memory)
    assert_same(search_all(on_disk, binary, everything), search_all(in_memory, binary, everything))
    assert not np.isin(search_all(on_disk, binary, everything)[2], ["0.jpg", "3.jpg", "8.jpg"]).any()
    if in_memory.plan.lists:
        assert on_disk.info().memory < in_memory.info().memory


def test_all_lists_of_an_index_on_disk_hold_all_descriptors(changed):
    folder, binary = changed
    index = Index(folder, in_memory=False)
    queries = random_features(2, 120, dim=16, binary=binary).descriptors
    _, ids = index.search(queries, len(index), probes=index.plan.lists or None, candidates=0)
    stored = np.repeat(~index.images.removed, index.images.counts)
    assert (np.sort(ids, axis=1) == np.flatnonzero(stored)).all()


def test_compaction_changes_files_and_not_results(changed):
    folder, binary = changed
    before = Index(folder)
    expected = search_all(before, binary)
    dropped = COUNTS[0] + COUNTS[3] + COUNTS[6] + 40
    done = compact_index(folder)
    assert done.descriptors == dropped
    after = Index(folder)
    after.verify()
    assert (len(after), int(after.images.counts.sum())) == (len(before), len(before))
    assert after.info().removed_descriptors == 0
    assert done.bytes_after == after.info().bytes < done.bytes_before
    assert files_of(folder) == {"meta.json", *current(after)}
    for index in (after, Index(folder, in_memory=False)):
        assert_same(search_all(index, binary), expected)
    for name in after.names:
        np.testing.assert_array_equal(
            *(index.frames(index.images.ids_of(index.find(name))) for index in (after, before))
        )


def test_a_compacted_index_still_refuses_removed_images_and_can_be_changed(changed, tmp_path):
    folder, binary = changed
    compact_index(folder)
    assert add_images(folder, tmp_path / "features") == IndexChange(replaced=1, unchanged=5, excluded=2)
    with pytest.raises(ArgumentError, match=r"8.jpg: .* it was removed before"):
        remove_images(folder, ["8.jpg"])
    remove_images(folder, Index(folder).names)
    compact_index(folder)
    index = Index(folder)
    index.verify()
    assert (len(index), index.info().removed_images) == (0, 10)
    new = {"9.jpg": random_features(9, 30, dim=16, binary=binary)}
    assert add_images(folder, write_features(tmp_path / "new", new)) == IndexChange(added=1)
    assert search_images(folder, new["9.jpg"])[0].name == "9.jpg"


def test_an_index_without_removals_is_compact(tmp_path):
    folder = build_index(write_features(tmp_path / "features", some_images()), tmp_path / "index")
    before = Index(folder)
    size = before.info().bytes
    assert compact_index(folder) == Compaction(0, size, size)
    assert Index(folder).meta == before.meta


@pytest.mark.parametrize("in_memory", [True, False], ids=["memory", "disk"])
def test_a_reader_keeps_its_state_while_writers_change_the_index(changed, tmp_path, in_memory):
    folder, binary = changed
    expected = search_all(Index(folder), binary)
    # One reader has searched before the changes, and one has not.
    busy, idle = (Index(folder, in_memory=in_memory) for _ in range(2))
    search_all(busy, binary)
    old_files = files_of(folder)
    remove_images(folder, ["2.jpg"])
    compact_index(folder)
    new = {"9.jpg": random_features(9, 30, dim=16, binary=binary)}
    add_images(folder, write_features(tmp_path / "new", new))
    remove_images(folder, ["4.jpg", "9.jpg"])
    compact_index(folder)
    assert files_of(folder) & old_files == {"meta.json"}
    for reader in (busy, idle):
        assert "2.jpg" in reader.names
        assert_same(search_all(reader, binary), expected)
    assert Index(folder).names == ["1.jpg", "5.jpg", "6.jpg", "7.jpg", "copy.jpg"]


def test_a_reader_that_meets_a_change_while_it_opens_sees_the_new_state(tmp_path, monkeypatch):
    folder = build_index(write_features(tmp_path / "features", some_images()), tmp_path / "index")
    remove_images(folder, ["0.jpg"])
    opened = Index._open
    calls = []

    def change_and_open(index):
        calls.append(index.meta["revision"])
        if len(calls) == 1:
            compact_index(folder)
        opened(index)

    monkeypatch.setattr(Index, "_open", change_and_open)
    assert Index(folder).info().removed_descriptors == 0
    assert calls == [2, 3]
    (folder / "frames-000003.npy").unlink()
    with pytest.raises(DataError, match=r"frames-000003.npy: expected .* bytes, got no file"):
        Index(folder)
