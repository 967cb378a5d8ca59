"""The benchmark `sweeps`: views, inlier ratios and falls."""

import cv2
import numpy as np
import pytest

from doap._support.errors import DataError
from doap.baselines import rootsift
from doap.detectors import fast
from doap.evaluation.candidates import CONTROLS, open_candidate
from doap.evaluation.sweeps import SweepsBenchmark, make_view
from doap.images import centres
from oracles.photos import write_photo


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    return write_photo(tmp_path_factory.mktemp("photos") / "a.png", 0, 120, 160)


@pytest.fixture(scope="module")
def benchmark(photo):
    return SweepsBenchmark(photo, max_keypoints=150)


@pytest.fixture(scope="module")
def scores(benchmark):
    return benchmark.evaluate(open_candidate(rootsift()), seed=0)


def value(scores, name):
    return next(figure.total.value for figure in scores.figures if figure.name == name)


@pytest.mark.parametrize("setting", [(0, 1), (30, 1), (90, 1), (180, 1), (0, 2), (0, 0.5)])
def test_a_view_agrees_with_its_homography(setting):
    """The centres of mass of blobs move as the homography predicts."""
    photo = np.zeros((100, 140), np.uint8)
    for x, y in [(30, 20), (100, 70)]:
        blob = photo.copy()
        cv2.circle(blob, (x, y), 8, 200, -1)
        blob = cv2.GaussianBlur(blob, (0, 0), 2)
        view, homography = make_view(blob, *setting)
        rows, columns = np.indices(view.shape)
        weight = view / view.sum(dtype=float)
        expected = homography @ [x, y, 1]
        assert ((columns * weight).sum(), (rows * weight).sum()) == pytest.approx(tuple(expected[:2]), abs=0.1)


def test_keypoints_around_the_photo_are_left_out(benchmark):
    image = next(iter(benchmark.photos.values())).image
    for views in benchmark.views.values():
        for view in views.values():
            back = np.linalg.inv(view.homography) @ np.c_[centres(view.photo.frames), np.ones(len(view.photo.frames))].T
            assert back[:2].min() >= -0.5 - 1e-6
            assert (back[:2].max(axis=1) <= np.array(image.shape[::-1]) - 0.5 + 1e-6).all()


def test_keypoints_with_orientation_tolerate_rotation(scores):
    assert value(scores, "inlier ratio at 0°, ×1") > 0.85
    assert value(scores, "rotation fall") < 0.2


def test_keypoints_without_orientation_fail_under_rotation(photo):
    scores = SweepsBenchmark(photo, detector=fast(), max_keypoints=100).evaluate(open_candidate(rootsift()), seed=0)
    assert value(scores, "inlier ratio at 0°, ×1") > 0.6
    assert value(scores, "rotation fall") > 0.8


@pytest.mark.parametrize("name", CONTROLS)
def test_controls_score_chance(benchmark, name):
    """The chance level is the share of keypoints near the true position: one or two of 150."""
    scores = benchmark.evaluate(open_candidate(CONTROLS[name]()), seed=0)
    assert value(scores, "inlier ratio at 0°, ×1") < 0.1
    assert value(scores, "rotation fall") == 1


def test_a_missing_photo_or_one_without_keypoints_is_refused(tmp_path):
    cv2.imwrite(str(tmp_path / "flat.png"), np.full((60, 80), 128, np.uint8))
    for name in ("flat.png", "nothing.png"):
        with pytest.raises(DataError):
            SweepsBenchmark(tmp_path / name)
