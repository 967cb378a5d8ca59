"""Patch sets from registered pairs: the same position in both images, and one group per keypoint."""

import cv2
import numpy as np
import pytest

from doap._support.errors import DataError
from doap.data import build_from_pairs, check_set, open_set
from doap.data.builders.from_pairs import pair_images
from doap.images import read_grey
from oracles.photos import write_photo


@pytest.fixture
def folders(tmp_path):
    """Two scenes in visible light, and the same images inverted."""
    for seed, name in enumerate(["castle/1.png", "castle/2.png", "harbour/1.png"]):
        image = read_grey(write_photo(tmp_path / "visible" / name, seed, 120, 160))
        inverted = tmp_path / "infrared" / name
        inverted.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(inverted.with_suffix(".tif")), 255 - image)
    return tmp_path / "visible", tmp_path / "infrared"


def test_a_group_has_one_patch_per_modality_of_the_same_position(folders, tmp_path):
    out = build_from_pairs(*folders, tmp_path / "set.patches", keypoints=40)
    found = open_set(out)
    assert len(found) > 100
    assert len(found.patches) == 2 * len(found)
    # Inverting commutes with blurring and interpolation, up to the rounding of grey levels.
    first, second = found.patches[::2].astype(int), found.patches[1::2].astype(int)
    assert np.abs(first - (255 - second)).max() <= 3
    assert set(check_set(out).groups_per_scene) == {"castle", "harbour"}
    assert set(found.source_names) == {"castle/1.png", "castle/2.png", "harbour/1.png"}


def test_keypoints_come_from_both_images(tmp_path):
    photo = read_grey(write_photo(tmp_path / "a" / "1.png", 0, 120, 160))
    flat = np.full_like(photo, 128)
    flat[:, :80] = photo[:, :80]
    half = np.full_like(photo, 128)
    half[:, 80:] = photo[:, 80:]
    for folder, pixels in (("a", flat), ("b", half)):
        (tmp_path / folder).mkdir(exist_ok=True)
        cv2.imwrite(str(tmp_path / folder / "1.png"), pixels)
    found = open_set(build_from_pairs(tmp_path / "a", tmp_path / "b", tmp_path / "set.patches"))
    x = found.position[:, 0]
    assert min((x < 70).sum(), (x > 90).sum()) > 5


def test_an_interrupted_build_continues_with_the_same_bytes(folders, tmp_path):
    def stop(done, total, name):
        raise KeyboardInterrupt

    whole = build_from_pairs(*folders, tmp_path / "whole.patches", keypoints=30)
    with pytest.raises(KeyboardInterrupt):
        build_from_pairs(*folders, tmp_path / "parts.patches", keypoints=30, progress=stop)
    parts = build_from_pairs(*folders, tmp_path / "parts.patches", keypoints=30)
    for name in ("patches.npy", "groups.parquet", "meta.json"):
        assert (whole / name).read_bytes() == (parts / name).read_bytes()


def test_images_are_paired_by_name_or_else_by_order(folders, tmp_path):
    visible, infrared = folders
    assert [pair.name1 for pair in pair_images(visible, infrared)] == ["castle/1.tif", "castle/2.tif", "harbour/1.tif"]
    for number in range(3):
        write_photo(tmp_path / "numbered" / f"FLIR{number}.png", number, 40, 50)
    assert [pair.name1 for pair in pair_images(visible, tmp_path / "numbered")] == [f"FLIR{n}.png" for n in range(3)]


def test_pairs_that_do_not_fit_are_refused(folders, tmp_path):
    visible, infrared = folders
    write_photo(visible / "castle" / "3.png", 7, 120, 160)
    with pytest.raises(DataError, match=r"visible: 1 images have no partner of the same name, such as castle/3"):
        build_from_pairs(visible, infrared, tmp_path / "out")
    write_photo(infrared / "castle" / "3.png", 7, 120, 150)
    with pytest.raises(DataError, match=r"castle/3\.png: expected the size of .*, 160 × 120, got 150 × 120"):
        build_from_pairs(visible, infrared, tmp_path / "out")
    write_photo(visible / "castle" / "3.jpg", 7, 120, 160)
    with pytest.raises(DataError, match="differ only in the extension"):
        build_from_pairs(visible, infrared, tmp_path / "out")
    write_photo(tmp_path / "other" / "x.png", 7, 120, 160)
    with pytest.raises(DataError, match="got 3 and 1 images without a common name"):
        pair_images(infrared / "castle", tmp_path / "other")
