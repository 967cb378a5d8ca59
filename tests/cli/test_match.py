"""The `doap match` command."""

import json

import cv2
import numpy as np
import pytest

from doap._support.errors import DataError
from doap.cli.terminal import check_writable
from doap.images import read_grey
from oracles.photos import write_photo


def assert_one_line(ran, *words):
    assert (ran.returncode, ran.stdout) == (1, ""), ran.stderr
    lines = ran.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("doap: ")
    for word in words:
        assert word in lines[0]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A photo and a rotated, scaled copy of it."""
    folder = tmp_path_factory.mktemp("photos")
    image = read_grey(write_photo(folder / "0.png", 0))
    moved = cv2.warpAffine(image, cv2.getRotationMatrix2D((160, 120), 15, 0.9), (320, 240))
    cv2.imwrite(str(folder / "1.png"), moved)
    return folder


def test_matches_are_counted_verified_and_drawn(doap, photos, tmp_path):
    ran = doap(
        "match", photos / "0.png", photos / "1.png", "--model", "homography", "--out", tmp_path / "m.png", "--json"
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    values = json.loads(ran.stdout)
    assert set(values) == {"keypoints", "matches", "inliers", "inlier_ratio", "matrix", "out"}
    assert min(values["keypoints"]) >= values["matches"] >= values["inliers"] > 50
    assert values["inlier_ratio"] == values["inliers"] / values["matches"] > 0.5
    turn = cv2.getRotationMatrix2D((160, 120), 15, 0.9)
    np.testing.assert_allclose(np.array(values["matrix"])[:2], turn, atol=0.5)
    assert cv2.imread(values["out"]).shape[2] == 3


def test_text_output_is_a_line_of_counts(doap, photos, tmp_path):
    ran = doap(
        "match", photos / "0.png", photos / "1.png", "--max-keypoints", 100, "--ratio", 0.8, "--out", tmp_path / "m.jpg"
    )
    counts, picture = ran.stdout.splitlines()
    assert counts.startswith("100 and 100 keypoints · ")
    assert counts.endswith(" inliers · doap-128")
    assert picture == f"Wrote {tmp_path / 'm.jpg'}"
    assert [path.name for path in tmp_path.iterdir()] == ["m.jpg"]


def test_a_photo_without_keypoints_has_no_matches(doap, photos, tmp_path):
    cv2.imwrite(str(tmp_path / "black.png"), np.zeros((60, 80), np.uint8))
    ran = doap("match", photos / "0.png", tmp_path / "black.png", "--out", tmp_path / "m.png", "--json")
    values = json.loads(ran.stdout)
    assert (values["keypoints"][1], values["matches"], values["inliers"]) == (0, 0, 0)
    assert (values["inlier_ratio"], values["matrix"]) == (None, None)
    assert (tmp_path / "m.png").stat().st_size > 1000


def test_a_photo_without_keypoints_is_named_with_a_hint(doap, photos, tmp_path):
    black = tmp_path / "black.png"
    cv2.imwrite(str(black), np.zeros((60, 80), np.uint8))
    ran = doap("match", photos / "0.png", black)
    assert ran.returncode == 0
    assert ran.stderr.startswith(f"{black}: no keypoints detected. ")
    assert len(ran.stderr.splitlines()) == 1


def test_errors_are_one_line(doap, photos, tmp_path):
    photo = photos / "0.png"
    assert_one_line(doap("match", photo, photos / "2.png"), "2.png", "No such file")
    (tmp_path / "cut.png").write_bytes(photo.read_bytes()[:3000])
    assert_one_line(doap("match", photo, tmp_path / "cut.png"), "cut.png", "truncated")
    assert_one_line(doap("match", photo, photo, "--out", tmp_path / "m.docx"), "m.docx", "*.png")
    assert_one_line(doap("match", photo, photo, "--out", tmp_path / "no" / "m.png"), "does not exist")
    assert_one_line(doap("match", photo, photo, "--descriptor", "rootshift"), "rootshift", "rootsift")


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


@pytest.mark.data("strecha")
def test_real_photos_of_one_scene_have_inliers(doap, data_folder):
    folder = data_folder / "strecha" / "fountain-P11"
    values = json.loads(
        doap("match", folder / "0000.jpg", folder / "0001.jpg", "--max-keypoints", 1000, "--json").stdout
    )
    assert values["inliers"] > 200


@pytest.mark.parametrize("name", ["\udcff.png", "a.\udcff", "a"])
def test_a_picture_name_that_opencv_cannot_take_does_not_crash(tmp_path, name):
    """OpenCV itself ends the process if a name is not UTF-8."""
    if name.endswith(".png"):
        check_writable(tmp_path / name)
    else:
        with pytest.raises(DataError, match="expected an image file"):
            check_writable(tmp_path / name)
