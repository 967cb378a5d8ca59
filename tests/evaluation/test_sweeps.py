"""Sweeps of rotation and scale: the views, the ratios, and who falls."""

from __future__ import annotations

import json

import cv2
import numpy as np
import pytest

from doap.baselines import rootsift
from doap.detectors import fast
from doap.errors import ArgumentError, DataError
from doap.evaluation.cached_describer import CachedDescriber
from doap.evaluation.controls import CONTROLS
from doap.evaluation.sweeps import SWEEPS, falls, open_sweeps, view_of
from doap.images import centres, read_grey
from oracles.photos import write_photo


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    return write_photo(tmp_path_factory.mktemp("photos") / "a.png", 0, 120, 160)


@pytest.fixture(scope="module")
def benchmark(photo):
    return open_sweeps(photo, max_keypoints=150)


@pytest.fixture(scope="module")
def judged(benchmark):
    return benchmark.judge(CachedDescriber(rootsift()), seed=0)


def value(judged, name):
    return next(figure.total.value for figure in judged.figures if figure.name == name)


def curve(judged, name):
    return next(dict(curve.points) for curve in judged.curves if curve.name == name)


@pytest.mark.parametrize("setting", [(0, 1), (30, 1), (90, 1), (180, 1), (0, 2), (0, 0.5)])
def test_a_view_shows_the_photo_where_its_homography_says(setting):
    """Blobs of known places, found again by their centres of mass."""
    photo = np.zeros((100, 140), np.uint8)
    for x, y in [(30, 20), (100, 70)]:
        alone = photo.copy()
        cv2.circle(alone, (x, y), 8, 200, -1)
        alone = cv2.GaussianBlur(alone, (0, 0), 2)
        view, homography = view_of(alone, *setting)
        rows, columns = np.indices(view.shape)
        weight = view / view.sum(dtype=float)
        expected = homography @ [x, y, 1]
        assert ((columns * weight).sum(), (rows * weight).sum()) == pytest.approx(tuple(expected[:2]), abs=0.1)


@pytest.mark.parametrize("setting", [(45, 1), (180, 1), (0, 2), (0, 0.5)])
def test_a_view_holds_the_whole_photo(setting):
    view, homography = view_of(np.zeros((61, 90), np.uint8), *setting)
    corners = homography @ np.array([[0, 0, 1], [89, 0, 1], [0, 60, 1], [89, 60, 1]]).T
    assert corners[:2].min() >= -0.5
    assert (corners[:2].max(axis=1) <= np.array(view.shape[::-1]) - 0.5).all()


def test_view_at_rest_is_sampled_anew(photo):
    image = read_grey(photo)
    _, homography = view_of(image, 0, 1)
    np.testing.assert_allclose(homography[:2, 2] % 1, 0.3)


def test_keypoints_around_the_photo_are_left_out(benchmark):
    image = next(iter(benchmark.photos.values())).image
    for views in benchmark.views.values():
        for view in views.values():
            back = np.linalg.inv(view.homography) @ np.c_[centres(view.photo.frames), np.ones(len(view.photo.frames))].T
            assert back[:2].min() >= -0.5 - 1e-6
            assert (back[:2].max(axis=1) <= np.array(image.shape[::-1]) - 0.5 + 1e-6).all()


def test_an_oriented_descriptor_holds_under_rotation(judged):
    assert value(judged, "inlier ratio at 0°, ×1") > 0.85
    assert value(judged, "rotation fall") < 0.2
    assert list(curve(judged, "rotation")) == [degrees for degrees, _ in SWEEPS["rotation"]]
    assert list(curve(judged, "scale")) == [factor for _, factor in SWEEPS["scale"]]


def test_keypoints_in_both_match_better_than_all(judged):
    assert curve(judged, "scale, keypoints in both")[0.5] > curve(judged, "scale")[0.5]
    assert curve(judged, "scale, keypoints in both")[1.0] == pytest.approx(curve(judged, "scale")[1.0], abs=0.05)


def test_the_fall_is_the_share_lost_in_the_worst_view(judged):
    ratios = curve(judged, "rotation")
    assert value(judged, "rotation fall") == pytest.approx(1 - min(ratios.values()) / ratios[0.0])


def test_a_descriptor_without_orientation_falls(photo):
    judged = open_sweeps(photo, detector=fast(), max_keypoints=100).judge(CachedDescriber(rootsift()), seed=0)
    assert value(judged, "inlier ratio at 0°, ×1") > 0.6
    assert value(judged, "rotation fall") > 0.8


@pytest.mark.parametrize("name", CONTROLS)
def test_descriptors_that_know_nothing_are_hardly_ever_right(benchmark, name):
    """Chance is the share of a view's keypoints that lie near the true place: one or two of 150."""
    judged = benchmark.judge(CachedDescriber(CONTROLS[name]()), seed=0)
    assert value(judged, "inlier ratio at 0°, ×1") < 0.1
    assert value(judged, "rotation fall") == 1


def test_nothing_to_lose_is_all_lost():
    assert falls(np.array([[0.8, 0.4, 0.6], [0.0, 0.0, 0.1], [0.5, 0.5, 0.5]]), 0).tolist() == [0.5, 1, 0]


def test_of_a_folder_the_first_photos_are_taken(tmp_path):
    for seed, name in enumerate("cab"):
        write_photo(tmp_path / f"{name}.png", seed, 60, 80)
    told = []
    benchmark = open_sweeps(tmp_path, max_keypoints=20, photos=2, progress=lambda *one: told.append(one))
    assert list(benchmark.photos) == ["a.png", "b.png"]
    assert told == [(0, 2, "a.png"), (1, 2, "b.png"), (2, 2, "done")]
    figure = benchmark.judge(CachedDescriber(rootsift()), seed=0).figures[0]
    assert (figure.name, figure.better, figure.unit) == ("rotation fall", "lower", "photos")
    assert figure.total.value == pytest.approx(np.mean([part.value for part in figure.parts.values()]))


def test_a_large_photo_is_made_smaller_first(photo):
    benchmark = open_sweeps(photo, max_keypoints=20, longest_side=80)
    assert benchmark.photos["a.png"].image.shape == (60, 80)


def test_protocol_can_be_written_as_json(benchmark):
    assert json.loads(json.dumps(benchmark.protocol))["views of scale"][0] == [0.0, 0.5]


def test_a_photo_without_keypoints_is_refused(tmp_path):
    path = tmp_path / "flat.png"
    cv2.imwrite(str(path), np.full((60, 80), 128, np.uint8))
    with pytest.raises(DataError, match=r"flat\.png: expected a photo with keypoints of sift, got one without any"):
        open_sweeps(path)


@pytest.mark.parametrize("missing", ["nothing.png", "nothing"])
def test_a_missing_photo_is_refused(tmp_path, missing):
    with pytest.raises(DataError, match="expected an image file, got No such file"):
        open_sweeps(tmp_path / missing)


def test_bad_settings_are_refused(photo):
    with pytest.raises(
        ArgumentError, match="max_keypoints, photos and longest_side: expected 1 or more, got 0, 3 and 1600"
    ):
        open_sweeps(photo, max_keypoints=0)
