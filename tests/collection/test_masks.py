"""Folders of masks, named as in COLMAP: what they hide, and when features are extracted again."""

import hashlib

import cv2
import numpy as np
import pytest

from doap.baselines import rootsift
from doap.collection import FeatureSet, extract_folder
from doap.export.colmap import write_colmap
from doap.export.hloc import write_hloc
from doap.images import read_grey
from doap.pipeline import extract
from oracles.photos import write_photo

NAMES = ["a/0.png", "a/1.jpg", "2.png"]


@pytest.fixture
def images(tmp_path):
    for seed, name in enumerate(NAMES):
        write_photo(tmp_path / "images" / name, seed, 100, 140)
    return tmp_path / "images"


@pytest.fixture
def masks(tmp_path):
    (tmp_path / "masks" / "a").mkdir(parents=True)
    return tmp_path / "masks"


def run(images, masks, **settings):
    options = {"max_keypoints": 60, "workers": 1} | settings
    return extract_folder(images, images.parent / "features", rootsift(), masks=masks, **options)


def write_mask(masks, name, columns, size=(100, 140), value=255, dtype=np.uint8):
    mask = np.zeros(size, dtype)
    mask[:, columns] = value
    cv2.imwrite(str(masks / f"{name}.png"), mask)
    return mask


def test_features_equal_those_of_extract_with_the_same_mask(images, masks):
    left = write_mask(masks, "a/0.png", slice(0, 70))
    # Labels of 16 bits count as well, although they are nearly black.
    labels = write_mask(masks, "a/1.jpg", slice(30, 140), value=1, dtype=np.uint16)
    done = run(images, masks)
    assert (done.extracted, done.masks, done.skipped) == (3, 2, {})
    features = FeatureSet(done.out)
    for name, mask in zip(NAMES, (left, labels, None), strict=True):
        stored = features.read(name).features
        expected = extract(images / name, rootsift(), max_keypoints=60, mask=mask)
        np.testing.assert_array_equal(stored.frames, expected.frames)
        assert len(stored) > 5
        if mask is not None:
            x, y = np.rint(stored.keypoints).astype(int).T
            assert (mask[y, x] > 0).all()


def test_a_new_changed_or_removed_mask_extracts_its_image_again(images, masks):
    assert (run(images, None).extracted, run(images, masks).extracted) == (3, 0)
    write_mask(masks, "a/0.png", slice(0, 70))
    assert (run(images, masks).extracted, run(images, masks).extracted) == (1, 0)
    image, mask = ((folder / name).read_bytes() for folder, name in ((images, "a/0.png"), (masks, "a/0.png.png")))
    both = " ".join(hashlib.sha256(content).hexdigest() for content in (image, mask))
    assert FeatureSet(images.parent / "features").checksums["a/0.png"] == hashlib.sha256(both.encode()).hexdigest()
    write_mask(masks, "a/0.png", slice(20, 70))
    assert run(images, masks).extracted == 1
    (masks / "a" / "0.png.png").unlink()
    done = run(images, masks)
    assert (done.extracted, done.reused, done.masks) == (1, 2, 0)
    write_mask(masks, "2.png", slice(0, 70))
    assert (run(images, masks).extracted, run(images, None).extracted, run(images, None).masks) == (1, 1, None)


def test_a_damaged_mask_or_one_of_another_size_is_the_reason_why_its_image_is_skipped(images, masks):
    (masks / "2.png.png").write_text("not an image")
    write_mask(masks, "a/0.png", slice(0, 70), size=(50, 70))
    done = run(images, masks)
    assert (done.extracted, sorted(done.skipped)) == (1, ["2.png", "a/0.png"])
    assert str(masks / "2.png.png") in done.skipped["2.png"]
    assert "(100, 140), got (50, 70)" in done.skipped["a/0.png"]


@pytest.mark.parametrize("write", [write_colmap, write_hloc])
def test_exporters_apply_masks_and_notice_changes(images, masks, tmp_path, write):
    pytest.importorskip("pycolmap" if write is write_colmap else "h5py")
    out = tmp_path / ("a.db" if write is write_colmap else "a.h5")
    write_mask(masks, "2.png", slice(0, 70))
    counts = []
    for columns in (slice(0, 70), slice(0, 40)):
        mask = write_mask(masks, "2.png", columns)
        assert write(images, out, rootsift(), detector="sift", max_keypoints=500, masks=masks).masks == 1
        stored = FeatureSet(tmp_path / f"{out.name}.features").read("2.png").features
        expected = extract(read_grey(images / "2.png"), rootsift(), max_keypoints=500, mask=mask)
        np.testing.assert_array_equal(stored.frames, expected.frames)
        counts.append(len(stored))
    assert counts[0] > counts[1] > 0


@pytest.mark.parametrize("broken", ["images", "masks"])
def test_a_link_without_a_target_is_the_reason_why_its_image_is_skipped(images, masks, broken):
    write_mask(masks, "2.png", slice(0, 70))
    link = {"images": images / "2.png", "masks": masks / "2.png.png"}[broken]
    target = link.replace(images.parent / "target.png")
    link.symlink_to(images.parent / "unmounted.png")
    done = run(images, masks)
    assert (done.extracted, list(done.skipped)) == (2, ["2.png"])
    assert str(link) in done.skipped["2.png"]
    target.rename(images.parent / "unmounted.png")
    again = run(images, masks)
    assert (again.extracted, again.reused, again.skipped) == (1, 2, {})
