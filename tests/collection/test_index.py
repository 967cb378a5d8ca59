"""An index finds the neighbours of a brute-force comparison, after any number of changes."""

import json

import numpy as np
import pytest
import torch

from doap._support.errors import ArgumentError, DataError, ShapeError
from doap.collection.index import Index, IndexChange, build_index
from doap.collection.index.folder import faiss_library
from doap.metrics import unpack_bits
from oracles.feature_sets import random_features, write_features

# Bytes of a descriptor of 32 dimensions; those in lists also have an id.
BYTES = {"flat": 128, "ivf": 64 + 8, "binary flat": 4, "binary ivf": 4 + 8}
COUNTS = (60, 0, 55, 1, 70, 64)


def some_images(binary=False, start=0):
    return {
        f"{number}.jpg": random_features(number, count, binary=binary) for number, count in enumerate(COUNTS, start)
    }


def queries(binary=False):
    return random_features(99, 20, binary=binary).descriptors


def assert_nearest(index, images, binary, k):
    """Search all lists: the distances are the k smallest ones, and those of the keypoints that the ids stand for."""
    owners = [(name, position) for name, image in images.items() for position in range(len(image))]
    rows, wanted = torch.cat([image.descriptors for image in images.values()]), queries(binary)
    if binary:
        expected = (unpack_bits(wanted)[:, None] != unpack_bits(rows)[None]).sum(2).numpy()
    else:
        expected = (wanted[:, None] - rows[None]).norm(dim=2).numpy()
    distances, ids = index.search(wanted, k, probes=index.lists or None)
    np.testing.assert_allclose(distances, np.sort(expected, axis=1)[:, :k], atol=1e-3)
    found = index.image_of(ids)
    for row, (numbers, some, near) in enumerate(zip(found.tolist(), ids.tolist(), distances, strict=True)):
        assert len(set(some)) == k
        names = [image.name for image in index.images_at(numbers)]
        starts = [sum(image.descriptors for image in index.images[:number]) for number in numbers]
        columns = [owners.index((name, one - start)) for name, one, start in zip(names, some, starts, strict=True)]
        np.testing.assert_allclose(expected[row, columns], near, atol=1e-3)


@pytest.fixture(params=BYTES)
def case(request):
    return request.param


@pytest.fixture
def kind(case):
    return case.removeprefix("binary ")


@pytest.fixture
def binary(case):
    return case.startswith("binary")


@pytest.fixture
def features(tmp_path, binary):
    return write_features(tmp_path / "features", some_images(binary))


@pytest.fixture
def folder(features, kind, tmp_path):
    return build_index(features, tmp_path / "index", kind=kind)


@pytest.fixture
def flat(tmp_path):
    """Folder of a flat index of real descriptors."""
    return build_index(write_features(tmp_path / "features", some_images()), tmp_path / "index")


@pytest.mark.parametrize("in_memory", [True, False], ids=["memory", "disk"])
def test_neighbours_are_those_of_brute_force_after_every_change(folder, features, binary, in_memory, tmp_path):
    images, index = some_images(binary), Index(folder, in_memory=in_memory)
    assert index.extractor == features.extractor
    assert_nearest(index, images, binary, 7)
    new = {"0.jpg": random_features(50, 30, binary=binary)}
    more = some_images(binary, start=6)
    changes = (
        (lambda: images.pop("2.jpg"), lambda index: index.remove(["2.jpg"]), IndexChange(removed=1)),
        (
            lambda: images.update(new),
            lambda index: index.add(write_features(tmp_path / "changed", new, changed=" again")),
            IndexChange(replaced=1),
        ),
        (
            lambda: images.update(more),
            lambda index: index.add(write_features(tmp_path / "more", more)),
            IndexChange(added=6),
        ),
        (
            lambda: [images.pop(name) for name in ("1.jpg", "4.jpg", "11.jpg")],
            lambda index: index.remove(["11.jpg", "1.jpg", "4.jpg"]),
            IndexChange(removed=3),
        ),
    )
    for expect, change, expected in changes:
        expect()
        index = Index(folder, in_memory=in_memory)
        assert change(index) == expected
        for one in (index, Index(folder, in_memory=in_memory)):
            assert sorted(images) == sorted(one.names)
            assert_nearest(one, images, binary, 7)
        index.verify()


def test_the_descriptors_of_removed_images_are_gone(folder, case, binary, tmp_path):
    index = Index(folder)
    before = index.info()
    index.remove(["2.jpg", "4.jpg"])
    after = index.info()
    assert (len(index), after.images, after.removed) == (sum(COUNTS) - 125, 4, 2)
    _, ids = index.search(queries(binary), len(index), probes=index.lists or None)
    assert (np.sort(ids, axis=1) == np.arange(len(index))).all()
    assert before.bytes - after.bytes == pytest.approx(125 * BYTES[case], abs=100)
    remaining = index.names
    assert index.remove(remaining) == IndexChange(removed=4)
    with pytest.raises(ArgumentError):
        index.search(queries(binary), 1)
    assert index.add(write_features(tmp_path / "new", some_images(binary, start=20))) == IndexChange(added=6)
    assert_nearest(index, some_images(binary, start=20), binary, 5)


def test_fewer_lists_find_no_nearer_neighbours_and_may_miss_some(features, binary, tmp_path):
    index = Index(build_index(features, tmp_path / "lists", kind="ivf"))
    assert 1 < index.info().probes < index.lists
    nearest, _ = index.search(queries(binary), 5, probes=index.lists)
    assert (index.search(queries(binary), 5)[0] >= nearest).all()
    _, ids = index.search(queries(binary), len(index), probes=1)
    assert (ids[:, -1] == -1).all()
    assert (index.image_of(ids)[ids == -1] == -1).all()


def test_max_keypoints_keeps_the_strongest(features, binary, tmp_path):
    index = Index(build_index(features, tmp_path / "strongest", max_keypoints=10))
    index.add(write_features(tmp_path / "more", some_images(binary, start=6)))
    images = some_images(binary) | some_images(binary, start=6)
    assert_nearest(index, {name: image.strongest(10) for name, image in images.items()}, binary, 5)


@pytest.mark.parametrize("in_memory", [True, False], ids=["memory", "disk"])
@pytest.mark.parametrize("searched", [True, False], ids=["before", "first"])
def test_an_open_index_keeps_its_state_while_others_change_it(folder, binary, in_memory, searched, tmp_path):
    reader, writer = Index(folder, in_memory=in_memory), Index(folder)
    if searched:
        reader.search(queries(binary), 3)
    old = set(folder.iterdir())
    writer.remove(["0.jpg"])
    writer.add(write_features(tmp_path / "more", some_images(binary, start=6)))
    assert {path.name for path in old & set(folder.iterdir())} == {"meta.json"}
    assert_nearest(reader, some_images(binary), binary, 3)
    # A change starts from the current state, not from that of the reader.
    reader.remove(["11.jpg"])
    expected = {name: image for name, image in some_images(binary).items() if name != "0.jpg"}
    expected |= some_images(binary, start=6)
    del expected["11.jpg"]
    assert_nearest(reader, expected, binary, 3)


def test_a_reader_that_meets_a_change_while_it_opens_sees_the_new_state(flat, monkeypatch):
    from doap.collection.index import folder as module

    opened, writer = module._open_file, Index(flat)

    def change_and_open(path):
        monkeypatch.undo()
        writer.remove(["0.jpg"])
        return opened(path)

    monkeypatch.setattr(module, "_open_file", change_and_open)
    assert "0.jpg" not in Index(flat).names
    (path,) = flat.glob("descriptors-*")
    path.unlink()
    with pytest.raises(DataError):
        Index(flat)


def test_the_next_change_deletes_the_files_of_a_killed_one(flat):
    for name in ("descriptors-000007.faiss", "_descriptors-000007.faiss.12-ab.unfinished", "notes.txt"):
        (flat / name).write_text("left")
    Index(flat).remove(["0.jpg"])
    assert {path.name for path in flat.iterdir()} == {"meta.json", "descriptors-000002.faiss", "notes.txt"}


@pytest.mark.parametrize("damage", [lambda content: content[:-10], lambda content: bytes(len(content))])
def test_damaged_descriptors_are_refused(flat, damage):
    path = flat / "descriptors-000001.faiss"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError):
        Index(flat).search(queries(), 1)


def test_a_changed_byte_is_found(flat):
    path = flat / "descriptors-000001.faiss"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError):
        Index(flat).verify()


def test_ids_of_a_hostile_file_do_not_leave_the_index(flat):
    faiss, path = faiss_library(), flat / "descriptors-000001.faiss"
    engine = faiss.index_factory(32, "IVF2,SQfp16")
    engine.train(random_features(0, 250).descriptors.numpy())
    engine.add_with_ids(random_features(0, 250).descriptors.numpy(), 10**12 + np.arange(250))
    faiss.write_index(engine, str(path))
    meta = json.loads((flat / "meta.json").read_text())
    (flat / "meta.json").write_text(json.dumps(meta | {"lists": 2, "bytes": path.stat().st_size}))
    with pytest.raises(DataError):
        Index(flat).search(queries(), 1)
    Index(flat).remove(["0.jpg"])


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"lists": 3},
        {"number": "../1"},
        {"number": -1},
        {"images": [["0.jpg", "0.jpg", 250], ["1.jpg", "1.jpg", 2**31]]},
        {"images": [["0.jpg", "0.jpg", -1], ["1.jpg", "1.jpg", 251]]},
        {"images": [[None, "0.jpg", 250]]},
        {"path": "evil.faiss"},
    ],
    ids=str,
)
@pytest.mark.parametrize("in_memory", [True, False], ids=["memory", "disk"])
def test_metadata_that_do_not_fit_the_file_are_refused(flat, change, in_memory):
    meta = json.loads((flat / "meta.json").read_text())
    (flat / "meta.json").write_text(json.dumps(meta | change))
    with pytest.raises(DataError):
        Index(flat, in_memory=in_memory).search(queries(), 1)


@pytest.mark.parametrize(
    ("error", "descriptors", "k", "probes"),
    [
        (ArgumentError, queries(), 251, None),
        (ArgumentError, queries(), 0, None),
        (ShapeError, torch.zeros(2, 16), 1, None),
        (ArgumentError, torch.zeros(2, 32, dtype=torch.uint8), 1, None),
        (ArgumentError, queries(), 1, 2),
    ],
    ids=["many", "none", "shape", "type", "probes"],
)
def test_bad_queries_are_refused(flat, error, descriptors, k, probes):
    with pytest.raises(error):
        Index(flat).search(descriptors, k, probes=probes)


@pytest.mark.parametrize("changed", ["", " again"], ids=["new", "changed"])
def test_an_index_is_compared_with_the_state_of_features(flat, tmp_path, changed):
    index = Index(flat)
    index.verify(tmp_path / "features")
    more = write_features(tmp_path / "more", some_images(start=0 if changed else 6), changed=changed)
    with pytest.raises(DataError):
        index.verify(more)
    index.add(more)
    index.verify(more)


def test_feature_sets_that_cannot_be_indexed_are_refused(tmp_path):
    empty = write_features(tmp_path / "empty", {"a.jpg": random_features(0, 0)})
    features = write_features(tmp_path / "features", some_images())
    (tmp_path / "full").mkdir()
    for error, some, out, settings in (
        (DataError, empty, tmp_path / "index", {}),
        (ArgumentError, features, tmp_path / "index", {"max_keypoints": 0}),
        (ArgumentError, features, tmp_path / "index", {"kind": "hnsw"}),
        (ArgumentError, features, "s3://bucket/index", {}),
        (DataError, features, tmp_path / "full", {}),
    ):
        with pytest.raises(error):
            build_index(some, out, **settings)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "features", "full"]
