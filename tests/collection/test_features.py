"""Feature sets: images are read as they were written, the newest row counts, and damage is reported."""

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.nn.functional import normalize

import doap
from doap._support.errors import ArgumentError, DataError
from doap.baselines import BASELINES
from doap.collection.extractor import ExtractorInfo, encode, open_extractor
from doap.collection.features import (
    REMOVED,
    DamagedPart,
    FailedImage,
    FeatureSet,
    PartWriter,
    StoredImage,
    make_table,
)
from doap.detectors import sift
from doap.types import Features


def extractor(kind="real", dim=16, stored="float16", fingerprint="this"):
    return ExtractorInfo(fingerprint, "some", "sift", 6.0, 100, kind, dim, stored)


def image(name, seed=0, count=5, dim=16, binary=False):
    random = np.random.default_rng([seed, *name.encode()])
    frames = random.normal(size=(count, 2, 3)).astype(np.float32)
    rows = random.normal(size=(count, dim)).astype(np.float32)
    descriptors = torch.from_numpy(np.packbits(rows > 0, axis=1) if binary else rows)
    descriptors = descriptors if binary else normalize(descriptors)
    features = Features(frames, random.random(count).astype(np.float32), descriptors, (30 + seed, 40))
    return StoredImage(name, f"checksum {seed}", features)


def write(folder, images, info=None):
    info = info or extractor()
    with PartWriter(folder, info) as writer:
        writer.add(make_table(images, info))
    return folder


def parts_of(folder):
    return sorted(folder.glob("part-*.parquet"))


def assert_same(read, written, error=0.0):
    assert (read.name, read.checksum, read.features.image_size) == (
        written.name,
        written.checksum,
        written.features.image_size,
    )
    np.testing.assert_array_equal(read.features.frames, written.features.frames)
    np.testing.assert_array_equal(read.features.responses, written.features.responses)
    assert read.features.descriptors.dtype == written.features.descriptors.dtype
    torch.testing.assert_close(read.features.descriptors, written.features.descriptors, rtol=0, atol=error)


@pytest.mark.parametrize(
    ("kind", "dim", "stored", "error"),
    [
        ("real", 16, "float32", 0),
        ("real", 16, "float16", 2**-11),
        ("binary", 64, "bits", 0),
    ],
)
def test_images_are_read_as_they_were_written(kind, dim, stored, error, tmp_path):
    # More than one row group, and some images without keypoints.
    images = [image(f"{n}.png", n, n % 7, dim, kind == "binary") for n in range(21)]
    features = FeatureSet(write(tmp_path / "f", images, extractor(kind, dim, stored)))
    assert (features.kind, features.dim, len(features)) == (kind, dim, 21)
    assert features.names == sorted(one.name for one in images)
    for read, written in zip(features.stream(), images, strict=True):
        assert_same(read, written, error)
    for written in images:
        assert_same(features.read(written.name), written, error)
    names = {"3.png", "20.png", "0.png"}
    assert {image.name for image in features.stream(names)} == names


@pytest.mark.parametrize(("number", "stored"), [(1e6, "float16"), (np.nan, "float16"), (np.nan, "float32")])
def test_descriptors_that_cannot_be_stored_are_refused(number, stored):
    with pytest.raises(ArgumentError):
        encode(torch.full((1, 8), number), stored)


def test_only_the_image_whose_descriptors_cannot_be_stored_fails(tmp_path):
    bad = image("b")
    bad.features.descriptors[2, 3] = float("nan")
    features = FeatureSet(write(tmp_path, [image("a"), bad, image("c")]))
    assert (features.names, list(features.failed)) == (["a", "c"], ["b"])


def test_the_newest_row_of_an_image_counts(tmp_path):
    write(tmp_path, [image("a", 1), image("b", 1), FailedImage("c", "x", "damaged")])
    write(tmp_path, [image("c", 2), image("a", 2)])
    features = FeatureSet(tmp_path)
    assert (features.names, features.failed) == (["a", "b", "c"], {})
    assert_same(features.read("a"), image("a", 2), 2**-11)
    assert_same(features.read("b"), image("b", 1), 2**-11)
    assert len(list(features.stream())) == 3
    assert features.checksums == {"a": "checksum 2", "b": "checksum 1", "c": "checksum 2"}


def test_a_part_is_named_after_its_run_and_its_images(tmp_path):
    for seed, folder in [(1, "a"), (1, "b"), (2, "a")]:
        write(tmp_path / folder, [image("a", seed)])
    names = [[part.name for part in parts_of(tmp_path / folder)] for folder in "ab"]
    assert names[0][:1] == names[1]
    assert [name[:12] for name in names[0]] == ["part-000001-", "part-000002-"]
    # A repeated task writes the same file.
    target = PartWriter(tmp_path / "a", extractor()).target
    rows = make_table([image("b", 3)], extractor())
    assert target.write(rows).equals(target.write(rows))
    assert len(parts_of(tmp_path / "a")) == 3


def test_a_killed_run_loses_no_part_that_it_wrote(tmp_path):
    folder = write(tmp_path / "features", [image("a", 1), image("b", 1)])
    writer = PartWriter(folder, extractor())
    writer.add(make_table([image("a", 2), image("c", 2)], extractor()))
    writer._write()  # and the process ends here
    found = FeatureSet(folder)
    assert found.checksums == {"a": "checksum 2", "b": "checksum 1", "c": "checksum 2"}
    write(folder, [FailedImage("b", "", REMOVED)])
    assert FeatureSet(folder).checksums == {"a": "checksum 2", "c": "checksum 2"}


def test_rows_of_another_extractor_are_ignored(tmp_path):
    write(tmp_path, [image("a", 1), image("b", 1)], extractor(fingerprint="old"))
    write(tmp_path, [image("a", 2)])
    features = FeatureSet(tmp_path)
    assert (features.names, list(features.checksums)) == (["a"], ["a"])
    assert [part[:12] for part in features.superseded] == ["part-000001-"]


def test_a_removed_image_is_not_listed(tmp_path):
    write(tmp_path, [image("a", 1), image("b", 1)])
    write(tmp_path, [FailedImage("a", "", REMOVED)])
    features = FeatureSet(tmp_path)
    assert (features.names, features.failed, list(features.checksums)) == (["b"], {}, ["b"])
    assert features.superseded == []
    with pytest.raises(DataError):
        features.read("a")


def test_a_part_is_written_when_it_is_full_and_on_exit(tmp_path, monkeypatch):
    rows = make_table([image("a")], extractor())
    monkeypatch.setattr("doap.collection.features._PART_BYTES", rows.nbytes + 1)

    def interrupted():
        with PartWriter(tmp_path, extractor()) as writer:
            for name, parts in [("a", 0), ("b", 1), ("c", 1)]:
                writer.add(make_table([image(name)], extractor()))
                assert len(parts_of(tmp_path)) == parts
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert FeatureSet(tmp_path).names == ["a", "b", "c"]


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "photo.png").touch()
    with pytest.raises(DataError):
        PartWriter(tmp_path, extractor())
    assert [path.name for path in tmp_path.iterdir()] == ["photo.png"]


def test_a_folder_that_is_not_a_feature_set_is_refused(tmp_path):
    with pytest.raises(DataError):
        FeatureSet(tmp_path / "none")
    meta = write(tmp_path, [image("a")]) / "_meta.json"
    good = json.loads(meta.read_text())
    for bad in ("{", "[]", "{}", json.dumps(good | {"extractor": {"dim": 3}}), '"a"', json.dumps(good | {"format": 5})):
        meta.write_text(bad)
        with pytest.raises(DataError):
            FeatureSet(tmp_path)


def test_a_damaged_part_is_reported_with_a_remedy(tmp_path):
    part = parts_of(write(tmp_path, [image("a", count=500)]))[0]
    good = part.read_bytes()
    start = good.index(encode(image("a", count=500).features.descriptors, "float16"))
    changed = bytearray(good)
    changed[start + 100] ^= 1
    for bad in (good[: len(good) // 2], b"", bytes(changed)):
        part.write_bytes(bad)
        with pytest.raises(DamagedPart):
            FeatureSet(tmp_path).read("a")


@pytest.mark.parametrize("column", ["name", "checksum"])
def test_a_row_without_name_or_checksum_is_damaged(tmp_path, column):
    part = parts_of(write(tmp_path, [image("a"), image("b")]))[0]
    table = pq.read_table(part)
    values = pa.array([None, *table[column].to_pylist()[1:]], pa.string())
    pq.write_table(table.set_column(table.column_names.index(column), column, values), part)
    with pytest.raises(DamagedPart):
        FeatureSet(tmp_path)


def test_a_foreign_part_is_refused(tmp_path):
    write(tmp_path, [image("a")])
    (tmp_path / "part-of-something.parquet").touch()
    with pytest.raises(DataError):
        FeatureSet(tmp_path)


def test_a_part_that_cannot_be_opened_is_not_called_damaged(tmp_path):
    part = parts_of(write(tmp_path, [image("a")]))[0]
    part.unlink()
    part.symlink_to(tmp_path / "unmounted" / "part.parquet")
    with pytest.raises(DataError) as caught:
        FeatureSet(tmp_path).read("a")
    assert not isinstance(caught.value, DamagedPart)


def test_the_fingerprint_depends_on_everything_that_changes_features_but_not_on_the_name():
    teblid, given = BASELINES["teblid"](), {"detector": sift(), "max_keypoints": 100}
    this = open_extractor(teblid, **given).info
    assert (this.kind, this.dim, this.stored, this.detector) == ("binary", 256, "bits", "sift")
    assert open_extractor("teblid", **given).info == dataclasses.replace(this, descriptor="teblid")
    changes = ({"max_keypoints": 99}, {"detector": sift(contrast=0.01)}, {"detector": "orb"})
    others = [open_extractor(teblid, **given | change).info for change in changes]
    others.append(open_extractor("orb", **given).info)
    assert len({this.fingerprint, *(other.fingerprint for other in others)}) == 5
    assert [this.difference(other) for other in (this, others[0], others[1])] == [
        None,
        "max_keypoints is 99 instead of 100",
        "the descriptor has other weights, or the detector has other settings",
    ]


def test_stored_features_match_only_features_of_their_descriptor(tmp_path):
    random = np.random.default_rng(0)
    image = random.integers(0, 256, (60, 80), np.uint8)
    extractor = open_extractor("rootsift", max_keypoints=20)
    with PartWriter(tmp_path, extractor.info) as writer:
        writer.add(make_table([StoredImage("a.png", "checksum", extractor.extract(image))], extractor.info))
    stored = FeatureSet(tmp_path).read("a.png").features
    assert len(doap.match(stored, doap.extract(image, "rootsift", detector="sift"))) > 0
    with pytest.raises(ArgumentError):
        doap.match(stored, doap.extract(image, "sift"))


class Rounded:
    """SIFT, with positions as another processor could compute them."""

    name, magnification = "sift", 6.0

    def __init__(self, shift):
        self.shift = shift

    def detect(self, image, max_keypoints=None):
        frames, responses = sift().detect(image, max_keypoints)
        return frames + np.float32(self.shift), responses


def test_the_fingerprint_ignores_the_last_bits_of_positions():
    prints = [open_extractor("teblid", detector=Rounded(shift)).info.fingerprint for shift in (0, 1e-6, 0.2)]
    assert prints[0] == prints[1] != prints[2]
