"""The store of features: what is written comes back, the newest counts, and what is wrong is told."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from doap.baselines import BASELINES
from doap.detectors import orb, sift
from doap.errors import ArgumentError, DataError
from doap.scale.extractor import Extractor, decode, encode, extractor_of
from doap.scale.features import REMOVED, FailedImage, FeatureSet, PartWriter, StoredImage, parts_of, rows_table
from doap.types import Features


def extractor(kind="real", dim=16, stored="float16", fingerprint="this"):
    return Extractor(fingerprint, "some", "sift", 6.0, 100, kind, dim, stored)


def image(name, seed=0, count=5, dim=16, binary=False):
    random = np.random.default_rng([seed, *name.encode()])
    frames = random.normal(size=(count, 2, 3)).astype(np.float32)
    rows = random.normal(size=(count, dim)).astype(np.float32)
    descriptors = torch.from_numpy(np.packbits(rows > 0, axis=1) if binary else rows)
    descriptors = descriptors if binary else normalize(descriptors)
    features = Features(frames, random.random(count).astype(np.float32), descriptors, (30 + seed, 40))
    return StoredImage(name, f"checksum {seed}", features)


def write(folder, images, made_by=None):
    made_by = made_by or extractor()
    with PartWriter(folder, made_by) as writer:
        writer.add(rows_table(images, made_by))
    return folder


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
    [("real", 16, "float16", 2**-11), ("real", 16, "uint8", 2 * 16**0.5 / 254), ("binary", 64, "bits", 0)],
)
def test_images_read_are_the_images_written(kind, dim, stored, error, tmp_path):
    # More than a row group, and some without keypoints.
    images = [image(f"{n}.png", n, n % 7, dim, kind == "binary") for n in range(21)]
    features = FeatureSet(write(tmp_path / "f", images, extractor(kind, dim, stored)))
    assert (features.kind, features.dim, len(features)) == (kind, dim, 21)
    assert features.names == sorted(one.name for one in images)
    for read, written in zip(features.stream(), images, strict=True):
        assert_same(read, written, error)
    for written in images:
        assert_same(features.read(written.name), written, error)
    some = {"3.png", "20.png", "0.png"}
    assert {one.name for one in features.stream(some)} == some


def test_bytes_move_a_row_by_no_more_than_stated():
    rows = normalize(torch.randn(500, 128, generator=torch.Generator().manual_seed(0)))
    rows[:100] = normalize(rows[:100] ** 5)  # one number stands out
    rows[0] = 0
    back = decode(encode(rows, "uint8"), 128, "uint8")
    moved = (back - rows).norm(dim=1)
    assert (moved <= 2 * 128**0.5 / 254 * rows.abs().amax(dim=1)).all()
    assert moved[100:].max() < 0.015
    torch.testing.assert_close(back.norm(dim=1), rows.norm(dim=1))
    half = decode(encode(rows, "float16"), 128, "float16")
    assert ((half - rows).abs() <= 2**-11 * rows.abs() + 2**-25).all()


def test_what_cannot_be_stored_is_refused():
    with pytest.raises(ArgumentError, match="expected float16 for descriptors without unit length"):
        encode(torch.ones(2, 8), "uint8")
    for number in (1e6, float("nan")):
        with pytest.raises(ArgumentError, match="65,504"):
            encode(torch.full((1, 8), number), "float16")


def test_an_image_whose_descriptors_cannot_be_stored_fails_alone(tmp_path):
    bad = image("b")
    bad.features.descriptors[2, 3] = float("nan")
    features = FeatureSet(write(tmp_path, [image("a"), bad, image("c")]))
    assert features.names == ["a", "c"]
    assert features.failed["b"].startswith("b: descriptors: expected finite numbers")


def test_of_two_rows_of_an_image_the_newest_counts(tmp_path):
    write(tmp_path, [image("a", 1), image("b", 1), FailedImage("c", "x", "damaged")])
    write(tmp_path, [image("c", 2), image("a", 2)])
    features = FeatureSet(tmp_path)
    assert (features.names, features.failed) == (["a", "b", "c"], {})
    assert_same(features.read("a"), image("a", 2), 2**-11)
    assert_same(features.read("b"), image("b", 1), 2**-11)
    assert len(list(features.stream())) == 3
    assert features.checksums == {"a": "checksum 2", "b": "checksum 1", "c": "checksum 2"}


def test_parts_are_ordered_by_number_not_by_name(tmp_path):
    write(tmp_path, [image("a", 1)])
    parts_of(tmp_path)[0].rename(tmp_path / "part-999999.parquet")
    write(tmp_path, [image("a", 2)])
    assert [part.name for part in parts_of(tmp_path)] == ["part-999999.parquet", "part-1000000.parquet"]
    assert FeatureSet(tmp_path).read("a").checksum == "checksum 2"


def test_rows_of_another_extractor_are_not_seen(tmp_path):
    write(tmp_path, [image("a", 1), image("b", 1)], extractor(fingerprint="old"))
    write(tmp_path, [image("a", 2)])
    features = FeatureSet(tmp_path)
    assert (features.names, list(features.checksums)) == (["a"], ["a"])
    assert [part.name for part in features.superseded] == ["part-000001.parquet"]


def test_an_image_that_was_removed_is_not_seen(tmp_path):
    write(tmp_path, [image("a", 1), image("b", 1)])
    write(tmp_path, [FailedImage("a", "", REMOVED)])
    features = FeatureSet(tmp_path)
    assert (features.names, features.failed, list(features.checksums)) == (["b"], {}, ["b"])
    assert features.superseded == []
    with pytest.raises(DataError, match="expected features of a, got none: it is not one of the images"):
        features.read("a")


def test_an_image_that_failed_is_told_with_its_reason(tmp_path):
    features = FeatureSet(write(tmp_path, [image("a"), FailedImage("b", "x", "b: truncated")]))
    assert (features.names, features.failed) == (["a"], {"b": "b: truncated"})
    with pytest.raises(DataError, match="expected features of b, got none: b: truncated"):
        list(features.stream(["a", "b"]))


def test_the_checksum_tells_whether_anything_was_written(tmp_path):
    first = FeatureSet(write(tmp_path, [image("a")])).checksum()
    assert FeatureSet(tmp_path).checksum() == first
    assert FeatureSet(write(tmp_path, [image("b")])).checksum() != first


def test_a_part_is_written_when_it_is_full_and_at_the_end(tmp_path, monkeypatch):
    rows = rows_table([image("a")], extractor())
    monkeypatch.setattr("doap.scale.features._BYTES_OF_A_PART", rows.nbytes + 1)

    def interrupted():
        with PartWriter(tmp_path, extractor()) as writer:
            for name, parts in [("a", 0), ("b", 1), ("c", 1)]:
                writer.add(rows_table([image(name)], extractor()))
                assert len(parts_of(tmp_path)) == parts
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert FeatureSet(tmp_path).names == ["a", "b", "c"]


def test_rows_that_waited_long_enough_are_written(tmp_path, monkeypatch):
    clock = iter([1000, 1000, 1119, 1120, 1230, 1230, 1349])
    monkeypatch.setattr("doap.scale.features.time.monotonic", lambda: next(clock))
    with PartWriter(tmp_path, extractor()) as writer:
        for name, parts in [("a", 0), ("b", 0), ("c", 1), ("d", 1), ("e", 1)]:
            writer.add(rows_table([image(name)], extractor()))
            assert len(parts_of(tmp_path)) == parts
    assert FeatureSet(tmp_path).names == ["a", "b", "c", "d", "e"]


def test_a_folder_with_other_files_is_never_written_to(tmp_path):
    (tmp_path / "photo.png").touch()
    with pytest.raises(DataError, match="expected features or an empty folder"):
        PartWriter(tmp_path, extractor())
    assert [path.name for path in tmp_path.iterdir()] == ["photo.png"]


def test_what_is_not_a_set_of_features_is_told(tmp_path):
    with pytest.raises(DataError, match="expected features, a folder with"):
        FeatureSet(tmp_path / "none")
    meta = write(tmp_path, [image("a")]) / "meta.json"
    good = json.loads(meta.read_text())
    for bad in ("{", "[]", "{}", json.dumps(good | {"extractor": {"dim": 3}}), '"a"'):
        meta.write_text(bad)
        with pytest.raises(DataError, match=r"meta.json: expected what made the features"):
            FeatureSet(tmp_path)
    meta.write_text(json.dumps(good | {"format": 2}))
    with pytest.raises(DataError, match="expected format 1, got 2"):
        FeatureSet(tmp_path)


def test_a_damaged_part_is_told_with_the_way_out(tmp_path):
    part = parts_of(write(tmp_path, [image("a", count=500)]))[0]
    good = part.read_bytes()
    place = good.index(encode(image("a", count=500).features.descriptors, "float16"))
    changed = bytearray(good)
    changed[place + 100] ^= 1
    for bad in (good[: len(good) // 2], b"", bytes(changed)):
        part.write_bytes(bad)
        with pytest.raises(DataError, match=r"part-000001.parquet: .*delete it and run doap extract again"):
            FeatureSet(tmp_path).read("a")


def test_a_foreign_part_is_told(tmp_path):
    write(tmp_path, [image("a")])
    (tmp_path / "part-of-something.parquet").touch()
    with pytest.raises(DataError, match="expected a part with a number"):
        FeatureSet(tmp_path)


def test_the_fingerprint_shows_all_that_changes_features_and_not_the_name():
    teblid = BASELINES["teblid"]()
    given = {"descriptor_name": "teblid", "detector": sift(), "max_keypoints": 100}
    this = extractor_of(teblid, **given)
    assert (this.kind, this.dim, this.stored, this.detector) == ("binary", 256, "bits", "sift")
    assert extractor_of(teblid, **given | {"descriptor_name": "t"}) == dataclasses.replace(this, descriptor="t")
    others = [
        given | change for change in ({"max_keypoints": 99}, {"detector": sift(contrast=0.01)}, {"detector": orb()})
    ]
    assert len({this.fingerprint, *(extractor_of(teblid, **other).fingerprint for other in others)}) == 4
    assert extractor_of(BASELINES["beblid"](), **given).fingerprint != this.fingerprint


def test_arguments_that_do_not_go_together_are_refused():
    for name, stored, words in [
        ("teblid", "float16", "expected bits for binary descriptors"),
        ("sift", "bits", "expected bits for binary descriptors"),
        ("sift", "float64", "stored: expected one of"),
        ("vgg", "uint8", "expected float16 for descriptors without unit length"),
    ]:
        with pytest.raises(ArgumentError, match=words):
            extractor_of(BASELINES[name](), descriptor_name=name, detector=sift(), stored=stored)
