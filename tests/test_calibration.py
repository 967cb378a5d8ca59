"""Calibration: the score against a slow oracle, its properties, and the presets of all detectors."""

import csv

import cv2
import numpy as np
import pytest
import torch

from doap._support.errors import ArgumentError, DataError, ShapeError
from doap._support.random_streams import stream
from doap.baselines import BASELINES, rootsift
from doap.calibration import calibrate
from doap.detectors import DETECTORS, sift
from doap.images import centres, frames_from_arrays, read_grey, transform_frames
from doap.images.frames import corresponding
from doap.images.synthetic_views import SyntheticViews, change_appearance, random_homography, warp
from oracles.photos import write_photo

ONE_VIEW = SyntheticViews(count=1)


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    return write_photo(tmp_path_factory.mktemp("photo") / "a.png", seed=0)


def small(images, magnifications=None, **options):
    settings = {"views": ONE_VIEW, "max_keypoints": 120, **options}
    return calibrate(images, rootsift(), sift(), magnifications, **settings)


def slow_score(photo, magnification, max_keypoints):
    """Score one image pair, match by match and rank by rank."""
    random = stream(0, "calibration views", 0)
    homography = random_homography(photo.shape, ONE_VIEW, random)
    view = change_appearance(warp(photo, homography), random)
    frames0, frames1 = (sift(magnification=magnification).detect(image, max_keypoints)[0] for image in (photo, view))
    there = transform_frames(frames0, homography)
    back = transform_frames(frames1, np.linalg.inv(homography))
    within = [
        [-0.5 <= x <= image.shape[1] - 0.5 and -0.5 <= y <= image.shape[0] - 0.5 for x, y in centres(frames)]
        for frames, image in ((there, view), (back, photo))
    ]
    growth = np.sqrt(np.linalg.det(there[:, :, :2]) / np.linalg.det(frames0[:, :, :2]))
    frames0, there, growth, frames1 = frames0[within[0]], there[within[0]], growth[within[0]], frames1[within[1]]
    right = {
        (i, j)
        for i in range(len(frames0))
        for j in range(len(frames1))
        if np.hypot(*(there[i, :, 2] - frames1[j, :, 2])) <= 3 * max(1, growth[i])
    }
    distances = torch.cdist(
        rootsift().describe(photo, frames0).double(), rootsift().describe(view, frames1).double()
    ).numpy()
    matches = [
        (distances[i, j], (i, j)) for i, j in enumerate(distances.argmin(axis=1)) if distances[:, j].argmin() == i
    ]
    score = hits = 0
    for rank, (_, pair) in enumerate(sorted(matches), start=1):
        if pair in right:
            hits += 1
            score += hits / rank
    return score / len({i for i, _ in right})


def test_the_score_is_the_average_precision_of_matches(photo):
    tried = [2.0, 6.0]
    found = small([photo], tried)
    expected = [slow_score(read_grey(photo), magnification, 120) for magnification in tried]
    assert [trial.score for trial in found.trials] == pytest.approx(expected, abs=1e-3)
    assert 0.2 < expected[1] < 1


def test_the_best_magnification_is_neither_the_smallest_nor_the_largest(photo):
    found = small([photo], [60.0, 6.0, 0.5])
    assert [trial.magnification for trial in found.trials] == [0.5, 6.0, 60.0]
    assert found.best == found.trials[1]
    assert not found.open_ended
    assert small([photo], [0.5, 6.0]).open_ended


def test_the_default_is_half_octaves_around_the_detectors_magnification(photo):
    tried = [trial.magnification for trial in small([photo], max_keypoints=20).trials]
    np.testing.assert_allclose(tried, 6 * 2 ** (np.arange(-3, 4) / 2))


def test_scores_do_not_depend_on_the_detectors_present_magnification(photo):
    now, other = (calibrate([photo], rootsift(), sift(magnification=m), [5.0], max_keypoints=120) for m in (6.0, 1.5))
    assert now.trials[0].score == pytest.approx(other.trials[0].score, abs=1e-3)


def test_binary_descriptors_can_be_calibrated(photo):
    found = calibrate([photo], BASELINES["teblid"](), sift(), [6.0], views=ONE_VIEW, max_keypoints=120)
    assert 0.1 < found.best.score < 1


def test_views_depend_on_the_seed_only(photo):
    assert small([photo], [6.0]) == small([photo], [6.0])
    assert small([photo], [6.0]) != small([photo], [6.0], seed=1)


def test_pixels_and_a_file_give_the_same_scores(photo):
    assert small([read_grey(photo)], [6.0]) == small([photo], [6.0])


def test_a_photo_without_keypoints_is_skipped_and_counted(photo):
    flat = np.full((200, 200), 90, np.uint8)
    found = small([flat, photo], [6.0], views=SyntheticViews(count=2))
    assert (found.pairs, found.skipped) == (2, 2)
    with pytest.raises(
        DataError, match=r"no keypoint of sift was detected again in a synthetic view of any of 1 image"
    ):
        small([flat])


def test_pixels_with_the_channels_first_are_an_error():
    with pytest.raises(ShapeError, match=r"image: expected \(H, W\), .* got \(3, 9, 9\)"):
        small([np.zeros((3, 9, 9), np.uint8)])


def test_the_error_names_a_damaged_photo(photo, tmp_path):
    (tmp_path / "cut.png").write_bytes(photo.read_bytes()[:2000])
    with pytest.raises(DataError, match=r"cut\.png"):
        small([tmp_path / "cut.png"])


@pytest.mark.parametrize("wrong", [[0.0, 6.0], [-1.0], [float("nan")], [float("inf")]])
def test_magnifications_must_be_above_zero(photo, wrong):
    with pytest.raises(ArgumentError, match="magnifications: expected finite numbers above 0"):
        small([photo], wrong)


def test_progress_is_reported_after_each_image(photo):
    calls = []
    pixels = read_grey(photo)
    small([photo, pixels], [6.0], max_keypoints=20, progress=lambda *call: calls.append(call))
    assert calls == [(1, 2, str(photo)), (2, 2, "image 1")]


def test_descriptor_and_detector_may_be_names(photo):
    named = calibrate([photo], "rootsift", "sift", [6.0], views=ONE_VIEW, max_keypoints=120, device="cpu")
    assert named == small([photo], [6.0])


def test_partners_are_within_a_distance_in_pixels_of_the_coarser_image():
    doubled = np.diag([2.0, 2.0, 1.0])
    frames0 = frames_from_arrays([[10, 10]], [4])
    for x, same in ((20, True), (25.9, True), (26.1, False)):
        frames1 = frames_from_arrays([[x, 20]], [8])
        assert corresponding(frames0, frames1, doubled).tolist() == [[same]]
        assert corresponding(frames1, frames0, np.linalg.inv(doubled)).tolist() == [[same]]


def test_a_point_mapped_to_infinity_has_no_partner():
    horizon = np.array([[1, 0, 0], [0, 1, 0], [0.1, 0, -1]])
    frame = frames_from_arrays([[10, 5]], [3])
    assert not corresponding(frame, frame, horizon).any()
    assert corresponding(frame[:0], frame, np.eye(3)).shape == (0, 1)


@pytest.mark.data("photos")
@pytest.mark.parametrize("name", DETECTORS)
def test_the_preset_scores_at_least_nine_tenths_of_the_best(data_folder, name):
    with (data_folder / "photos" / "LEDGER.csv").open() as ledger:
        files = [row["file"] for row in csv.DictReader(ledger) if row["split"] == "train"]
    photos = [cv2.resize(read_grey(data_folder / "photos" / file), (400, 300)) for file in (files[150], files[600])]
    # Without an orientation, nothing matches in a rotated view at any patch size.
    views = SyntheticViews(count=2, max_roll=10 if name == "fast" else 45)
    detector = DETECTORS[name]()
    tried = [detector.magnification * step for step in (0.5, 0.7, 1, 1.4, 2)]
    found = calibrate(photos, rootsift(), detector, tried, views=views, max_keypoints=300)
    assert found.trials[2].score > 0.9 * found.best.score
