"""An index finds the neighbours of a brute-force comparison, after any number of changes."""

import dataclasses
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from doap._support.errors import ArgumentError, DataError, ShapeError
from doap.collection.index import Index, IndexChange, add_images, build_index, plan_index, remove_images
from doap.metrics import unpack_bits
from oracles.feature_sets import random_features, write_features

COUNTS = (60, 0, 55, 1, 70, 64)


def some_images(binary=False, start=0):
    return {
        f"{number}.jpg": random_features(number, count, binary=binary) for number, count in enumerate(COUNTS, start)
    }


def queries(binary=False):
    return random_features(99, 20, binary=binary).descriptors


def brute_force(features, descriptors):
    """Return distances (Q, N) to all stored descriptors, in the order of the set."""
    rows = torch.cat([image.features.descriptors for image in features.stream()])
    if rows.dtype == torch.uint8:
        return (unpack_bits(descriptors)[:, None] != unpack_bits(rows)[None]).sum(2).numpy()
    return (descriptors[:, None] - rows[None]).norm(dim=2).numpy()


def assert_nearest(found, expected, k):
    """Check that the distances are the k smallest and belong to the ids. Binary descriptors have many ties."""
    distances, ids = found
    np.testing.assert_allclose(distances, np.sort(expected, axis=1)[:, :k], atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(expected, ids, 1), distances, atol=1e-5)
    assert all(len(set(row)) == k for row in ids.tolist())


@pytest.fixture(params=[False, True], ids=["real", "binary"])
def binary(request):
    return request.param


@pytest.fixture
def features(tmp_path, binary):
    return write_features(tmp_path / "features", some_images(binary))


def test_flat_equals_brute_force(features, binary, tmp_path):
    index = Index(build_index(features, tmp_path / "index"))
    assert (index.extractor, len(index)) == (features.extractor, sum(COUNTS))
    assert index.names == features.names
    assert_nearest(index.search(queries(binary), 7), brute_force(features, queries(binary)), 7)


def test_ivf_equals_brute_force_if_all_lists_are_searched(features, binary, tmp_path):
    index = Index(build_index(features, tmp_path / "index", kind="ivf"))
    lists = index.meta["index"]["lists"]
    assert 1 < index.meta["index"]["probes"] < lists
    assert_nearest(index.search(queries(binary), 5, probes=lists), brute_force(features, queries(binary)), 5)
    distances, _ = index.search(queries(binary), 5)
    assert (distances >= index.search(queries(binary), 5, probes=lists)[0]).all()


def test_missing_neighbours_have_the_id_minus_one(features, binary, tmp_path):
    index = Index(build_index(features, tmp_path / "index", kind="ivf"))
    _, ids = index.search(queries(binary), len(index), probes=1)
    assert (ids[:, -1] == -1).all()
    assert (index.image_of(ids)[ids == -1] == -1).all()


def test_codes_find_stored_descriptors_in_24_bytes_each(tmp_path):
    images = {f"{number}.jpg": random_features(number, 400, dim=16) for number in range(3)}
    features = write_features(tmp_path / "features", images)
    index = Index(build_index(features, tmp_path / "index", kind="ivf-pq"))
    stored = torch.cat([image.features.descriptors for image in features.stream()])
    _, ids = index.search(stored[::40], 5, probes=index.meta["index"]["lists"])
    assert np.mean([number in row for number, row in zip(range(0, 1200, 40), ids, strict=True)]) > 0.9
    index.verify()
    # 16 bytes for the code and 8 for the id; the rest is trained and does not grow.
    sizes = [index.info().bytes_per_descriptor * 1200]
    more = write_features(tmp_path / "more", {"3.jpg": random_features(3, 400, dim=16)})
    add_images(index.folder, more)
    sizes.append(Index(index.folder).info().bytes_per_descriptor * 1600)
    assert sizes[1] - sizes[0] == pytest.approx(24 * 400, rel=0.01)


@pytest.fixture(scope="module")
def coded(tmp_path_factory):
    """Features and an `ivf-pq` index of them, with some images added later and one removed."""
    folder = tmp_path_factory.mktemp("coded")
    images = {f"{number}.jpg": random_features(number, 150 * (number != 2), dim=16) for number in range(6)}
    features = write_features(folder / "features", images)
    first = write_features(folder / "first", {name: images[name] for name in list(images)[:4]})
    index = build_index(first, folder / "index", kind="ivf-pq")
    add_images(index, features)
    remove_images(index, ["1.jpg"])
    return features, Index(index)


def test_candidates_are_compared_with_the_original_descriptors(coded):
    features, index = coded
    rows = random_features(99, 700, dim=16).descriptors
    expected = brute_force(features, rows)
    expected[:, 150:300] = np.inf
    lists = index.meta["index"]["lists"]
    assert_nearest(index.search(rows, 5, probes=lists, candidates=len(index)), expected, 5)
    # More candidates give smaller distances. Without candidates, distances are those of the codes.
    few, more = (index.search(rows, 5, probes=lists, candidates=number) for number in (3, 30))
    for distances, ids in (few, more):
        np.testing.assert_allclose(np.take_along_axis(expected, ids, 1), distances, atol=1e-5)
    assert (more[0] <= few[0]).all()
    assert (more[0] < few[0]).any()
    distances, ids = index.search(rows, 5, probes=lists, candidates=0)
    assert np.abs(np.take_along_axis(expected, ids, 1) - distances).max() > 1e-3
    index.verify(features)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc/self/smaps")
def test_no_data_around_a_candidate_is_read(coded):
    """Reading megabytes around each of thousands of candidates made searches hundreds of times slower."""
    _, index = coded
    mappings = re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text())
    rows = [one for one in mappings if str(index.folder / "rows-") in one]
    assert rows
    assert all(" rr" in one.rpartition("VmFlags:")[2] for one in rows)


def test_missing_candidates_come_last(coded):
    _, index = coded
    distances, ids = index.search(random_features(99, 30, dim=16).descriptors, 400, probes=1)
    assert ((ids < 0).any(axis=1) & (ids >= 0).any(axis=1)).all()
    assert (np.diff(distances, axis=1) >= 0).all()
    assert (np.diff((ids < 0).astype(int), axis=1) >= 0).all()


def test_ids_identify_the_image_and_the_keypoint(features, tmp_path):
    index = Index(build_index(features, tmp_path / "index"))
    for image in features.stream():
        number = index.images.numbers[image.name]
        np.testing.assert_array_equal(index.frames(index.images.ids_of(number)), image.features.frames)
        if len(image.features):
            distances, ids = index.search(image.features.descriptors, 1)
            np.testing.assert_allclose(distances, 0, atol=2e-3)
            np.testing.assert_array_equal(index.image_of(ids), number)
            np.testing.assert_array_equal(ids[:, 0], index.images.first_ids[number] + np.arange(len(image.features)))


def test_max_keypoints_keeps_the_strongest(features, tmp_path):
    index = Index(build_index(features, tmp_path / "index", max_keypoints=10))
    assert index.images.counts.max() == 10
    image = features.read("0.jpg").features
    kept = image.strongest(10)
    assert sorted(kept.responses) == sorted(image.responses)[-10:]
    np.testing.assert_array_equal(index.frames(index.images.ids_of(index.find("0.jpg"))), kept.frames)


@pytest.mark.parametrize("kind", ["flat", "ivf"])
def test_removed_images_are_never_found(features, binary, tmp_path, kind):
    folder = build_index(features, tmp_path / "index", kind=kind)
    assert remove_images(folder, ["2.jpg", "4.jpg"]) == IndexChange(removed=2)
    index = Index(folder)
    assert index.names == ["0.jpg", "1.jpg", "3.jpg", "5.jpg"]
    assert len(index) == 60 + 1 + 64
    _, ids = index.search(queries(binary), len(index), probes=index.meta["index"]["lists"] or None)
    removed = [number for number, name in enumerate(index.images.names) if name in ("2.jpg", "4.jpg")]
    assert not np.isin(index.image_of(ids), removed).any()
    assert (ids >= 0).all()
    index.verify(features)
    assert (index.info().removed_images, index.info().removed_descriptors) == (2, 55 + 70)


def test_added_images_are_found_as_in_a_new_index(features, binary, tmp_path):
    more = write_features(tmp_path / "more", some_images(binary, start=6))
    both = write_features(tmp_path / "both", some_images(binary) | some_images(binary, start=6))
    folder = build_index(features, tmp_path / "index")
    assert add_images(folder, more) == IndexChange(added=6)
    index = Index(folder)
    assert_nearest(index.search(queries(binary), 7), brute_force(both, queries(binary)), 7)
    index.verify(features)
    index.verify(more)
    assert add_images(folder, more) == IndexChange(unchanged=6)
    assert Index(folder).meta == index.meta


def test_a_changed_image_replaces_the_old_one(features, binary, tmp_path):
    folder = build_index(features, tmp_path / "index")
    new = random_features(50, 30, binary=binary)
    changed = write_features(tmp_path / "changed", {"0.jpg": new}, changed=" again")
    assert add_images(folder, changed) == IndexChange(replaced=1)
    index = Index(folder)
    assert len(index) == sum(COUNTS) - 60 + 30
    np.testing.assert_array_equal(index.frames(index.images.ids_of(index.find("0.jpg"))), new.frames)


def test_removed_images_cannot_be_added_again(features, tmp_path):
    folder = build_index(features, tmp_path / "index")
    remove_images(folder, ["2.jpg"])
    assert add_images(folder, features) == IndexChange(unchanged=5, excluded=1)
    assert "2.jpg" not in Index(folder).names


def test_all_images_can_be_removed(features, binary, tmp_path):
    folder = build_index(features, tmp_path / "index")
    remove_images(folder, features.names)
    with pytest.raises(ArgumentError, match="k: expected 1 to 0"):
        Index(folder).search(queries(binary), 1)


def test_an_open_index_keeps_working_while_the_files_change(features, binary, tmp_path):
    folder = build_index(features, tmp_path / "index")
    old = Index(folder)
    remove_images(folder, ["0.jpg"])
    assert_nearest(old.search(queries(binary), 3), brute_force(features, queries(binary)), 3)


def test_the_next_change_deletes_the_files_of_a_killed_one(features, tmp_path):
    folder = build_index(features, tmp_path / "index")
    for name in ("descriptors-000007.faiss", "frames-000007.npy.unfinished", "notes.txt"):
        (folder / name).write_text("left")
    remove_images(folder, ["0.jpg"])
    kept = {"meta.json", "notes.txt", *(file["name"] for file in Index(folder).meta["files"].values())}
    assert {path.name for path in folder.iterdir()} == kept


def test_the_same_features_and_seed_give_the_same_files(features, tmp_path):
    one, other = (Index(build_index(features, tmp_path / name, kind="ivf", seed=3)) for name in "ab")
    assert one.meta == other.meta


def test_the_kind_follows_the_number_of_descriptors():
    kinds = [plan_index(count, "real", 128).kind for count in (1, 100_000, 100_001, 2_000_000, 2_000_001, 10**9)]
    assert kinds == ["flat", "flat", "ivf", "ivf", "ivf-pq", "ivf-pq"]
    assert [plan_index(count, "binary", 256).kind for count in (1_000_000, 1_000_001)] == ["flat", "ivf"]
    assert plan_index(500, "real", 128, "ivf").rule == "500 real descriptors: ivf, as requested"
    for count in (10**5 + 1, 10**7, 10**9):
        plan = plan_index(count, "real", 128)
        assert 39 * plan.lists <= plan.sample <= 256 * plan.lists


@pytest.mark.parametrize("file", ["descriptors-000001.faiss", "frames-000001.npy", "images-000001.parquet"])
def test_a_changed_byte_is_detected(tmp_path, file):
    folder = build_index(write_features(tmp_path / "features", some_images()), tmp_path / "index")
    content = bytearray((folder / file).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / file).write_bytes(content)
    with pytest.raises(DataError, match=f"{file}: expected"):
        Index(folder).verify()


def test_a_changed_byte_of_the_descriptors_is_detected(tmp_path):
    images = {"0.jpg": random_features(0, 300, dim=16)}
    folder = build_index(write_features(tmp_path / "features", images), tmp_path / "index", kind="ivf-pq")
    content = bytearray((folder / "rows-000001.npy").read_bytes())
    content[-5] ^= 1
    (folder / "rows-000001.npy").write_bytes(content)
    with pytest.raises(DataError, match=r"rows-000001\.npy: expected"):
        Index(folder).verify()


def test_damaged_files_are_reported(tmp_path):
    folder = build_index(write_features(tmp_path / "features", some_images()), tmp_path / "index")
    descriptors = folder / "descriptors-000001.faiss"
    content = descriptors.read_bytes()
    descriptors.write_bytes(content[:-10])
    with pytest.raises(DataError, match=r"descriptors-000001.faiss: expected .* bytes"):
        Index(folder)
    descriptors.write_bytes(bytes(len(content)))
    with pytest.raises(DataError, match=r"descriptors-000001.faiss: damaged"):
        Index(folder).search(queries(), 1)
    descriptors.unlink()
    with pytest.raises(DataError, match="got no file"):
        Index(folder)
    (folder / "meta.json").write_text("{}")
    with pytest.raises(DataError, match=r"meta.json: not an index: expected format 1, got None"):
        Index(folder)
    with pytest.raises(DataError, match="nowhere: not an index"):
        Index(tmp_path / "nowhere")


def test_another_format_is_refused(tmp_path):
    folder = build_index(write_features(tmp_path / "features", some_images()), tmp_path / "index")
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | {"format": 4}))
    with pytest.raises(DataError, match="expected format 1, got 4"):
        Index(folder)


def test_bad_queries_are_refused(tmp_path):
    index = Index(build_index(write_features(tmp_path / "features", some_images()), tmp_path / "index"))
    with pytest.raises(ArgumentError, match="k: expected 1 to 250, the number of descriptors in the index, got 251"):
        index.search(queries(), 251)
    with pytest.raises(ArgumentError, match="k: expected 1"):
        index.search(queries(), 0)
    with pytest.raises(ShapeError, match=r"expected \(Q, 32\), got \(2, 16\)"):
        index.search(torch.zeros(2, 16), 1)
    with pytest.raises(ArgumentError, match="expected real descriptors as in the index, got uint8"):
        index.search(torch.zeros(2, 32, dtype=torch.uint8), 1)
    with pytest.raises(ArgumentError, match="probes: expected None because a flat index has no lists, got 2"):
        index.search(queries(), 1, probes=2)
    distances, ids = index.search(queries()[:0], 3)
    assert distances.shape == ids.shape == (0, 3)


def test_features_of_another_extractor_are_refused(tmp_path):
    features = write_features(tmp_path / "features", some_images())
    folder = build_index(features, tmp_path / "index")
    other = dataclasses.replace(features.extractor, fingerprint="other", descriptor="daisy")
    foreign = write_features(tmp_path / "foreign", some_images(), extractor=other)
    with pytest.raises(DataError, match=r"foreign: the features do not fit the index .* 'daisy' instead of 'sift'"):
        add_images(folder, foreign)
    with pytest.raises(DataError, match="foreign"):
        Index(folder).verify(foreign)
    more = write_features(tmp_path / "more", some_images(start=6))
    with pytest.raises(DataError, match=r"more: .* was not built from these features"):
        Index(folder).verify(more)


def test_feature_sets_that_cannot_be_indexed_are_refused(tmp_path):
    empty = write_features(tmp_path / "empty", {"a.jpg": random_features(0, 0)})
    with pytest.raises(DataError, match="empty: none of the images has a keypoint"):
        build_index(empty, tmp_path / "index")
    features = write_features(tmp_path / "features", some_images())
    with pytest.raises(ArgumentError, match="ivf-pq requires 256 descriptors with D = 16 or more, got 250 with D = 32"):
        build_index(features, tmp_path / "index", kind="ivf-pq")
    with pytest.raises(ArgumentError, match="max_keypoints: expected 1 or more, got 0"):
        build_index(features, tmp_path / "index", max_keypoints=0)
    with pytest.raises(ArgumentError, match="index: expected a folder on this machine, got a URL"):
        build_index(features, "s3://bucket/index")
    bits = write_features(tmp_path / "bits", some_images(binary=True))
    with pytest.raises(ArgumentError, match="kind of an index of binary descriptors: expected one of flat, ivf, got"):
        build_index(bits, tmp_path / "index", kind="ivf-pq")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bits", "empty", "features"]
    (tmp_path / "index").mkdir()
    with pytest.raises(DataError, match="index: already exists"):
        build_index(features, tmp_path / "index")


def test_only_images_of_the_index_can_be_removed(tmp_path):
    folder = build_index(write_features(tmp_path / "features", some_images()), tmp_path / "index")
    with pytest.raises(ArgumentError, match=r"9.jpg: not in .*: no such image"):
        remove_images(folder, ["0.jpg", "9.jpg"])
    assert "0.jpg" in Index(folder).names
    remove_images(folder, ["0.jpg"])
    with pytest.raises(ArgumentError, match=r"0.jpg: .* it was removed before"):
        remove_images(folder, ["0.jpg"])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such file names")
def test_a_relative_folder_with_a_colon_is_not_a_url(tmp_path, monkeypatch):
    features = write_features(tmp_path / "features", some_images())
    monkeypatch.chdir(tmp_path)
    build_index(features, "a:b", kind="flat")
    assert Index("a:b").names == Index(build_index(features, tmp_path / "plain", kind="flat")).names
