"""The `doap match` command."""

import json

import cv2
import numpy as np
import pytest

from doap._support.errors import DataError
from doap.cli.terminal import check_writable
from doap.images import read_grey
from oracles.photos import write_photo


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A photo and a rotated, scaled copy of it."""
    folder = tmp_path_factory.mktemp("photos")
    image = read_grey(write_photo(folder / "0.png", 0))
    moved = cv2.warpAffine(image, cv2.getRotationMatrix2D((160, 120), 15, 0.9), (320, 240))
    cv2.imwrite(str(folder / "1.png"), moved)
    return folder


def test_a_photo_without_keypoints_has_no_matches(doap, photos, tmp_path):
    cv2.imwrite(str(tmp_path / "black.png"), np.zeros((60, 80), np.uint8))
    ran = doap("match", photos / "0.png", tmp_path / "black.png", "--out", tmp_path / "m.png", "--json")
    values = json.loads(ran.stdout)
    assert (values["keypoints"][1], values["matches"], values["inliers"]) == (0, 0, 0)
    assert (values["inlier_ratio"], values["matrix"]) == (None, None)
    assert (tmp_path / "m.png").stat().st_size > 1000
    ran = doap("match", photos / "0.png", tmp_path / "black.png")
    assert ran.stderr.startswith(f"{tmp_path / 'black.png'}: no keypoints detected. ")
    assert len(ran.stderr.splitlines()) == 1


def test_samples_match_with_the_known_homography(doap, tmp_path):
    ran = doap("match", "--sample", "--model", "homography", "--out", tmp_path / "m.png", "--json")
    assert (ran.returncode, ran.stderr) == (0, "")
    values = json.loads(ran.stdout)
    corners = np.array([[[0, 0], [599, 0], [599, 399], [0, 399]]], np.float64)
    found = cv2.perspectiveTransform(corners, np.array(values["matrix"]))
    np.testing.assert_allclose(found[0], [[190, 20], [620, 240], [405, 500], [20, 270]], atol=1)
    assert values["inliers"] > 300
    assert cv2.imread(str(tmp_path / "m.png")) is not None


def test_wrong_usage_exits_with_two(doap, photos):
    assert doap("match", photos / "0.png").returncode == 2
    assert doap("match").returncode == 2
    assert doap("match", photos / "0.png", photos / "1.png", "--sample").returncode == 2
    assert doap("match", photos / "0.png", photos / "1.png", "--model", "essential").returncode == 2


@pytest.mark.parametrize("name", ["\udcff.png", "a.\udcff", "a"])
def test_a_picture_name_that_opencv_cannot_take_does_not_crash(tmp_path, name):
    """OpenCV itself ends the process if a name is not UTF-8."""
    if name.endswith(".png"):
        check_writable(tmp_path / name)
    else:
        with pytest.raises(DataError):
            check_writable(tmp_path / name)
