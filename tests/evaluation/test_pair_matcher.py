"""Matches of image files: turned photos keep their geometry."""

from pathlib import Path

import numpy as np
import pytest

import doap
from doap.baselines import rootsift
from doap.detectors import sift
from doap.evaluation.candidates import open_candidate
from doap.evaluation.pair_matcher import PairMatcher, SharedKeypoints, turn
from doap.images import centres

PHOTO = Path(doap.__file__).parent / "images" / "samples" / "photo.jpg"


@pytest.mark.parametrize("quarters", range(-1, 5))
def test_quarter_turns_move_whole_pixels(quarters):
    image = np.random.default_rng(0).integers(0, 256, (37, 50), np.uint8)
    assert np.array_equal(turn(image, 90 * quarters), np.rot90(image, -quarters))


@pytest.mark.parametrize("degrees", [45, 90, 200])
def test_points_of_a_turned_photo_are_those_of_the_file(degrees):
    matcher = PairMatcher(open_candidate(rootsift()), SharedKeypoints(sift(), 500), degrees=degrees)
    xy0, xy1 = matcher.matched_points(PHOTO, PHOTO)
    assert len(xy0) > 200
    assert (np.linalg.norm(xy0 - xy1, axis=1) < 1).mean() > 0.8


def test_keypoints_around_a_turned_photo_are_left_out():
    shared = SharedKeypoints(sift(), 2000)
    xy = centres(PairMatcher(open_candidate(rootsift()), shared).features(PHOTO, 45).frames)
    back = np.c_[xy, np.ones(len(xy))] @ shared.to_file(PHOTO, 45).T
    assert len(xy) < len(shared.keypoints(PHOTO, 45)[0])
    assert back[:, :2].min() >= -0.5 - 1e-3
    assert (back[:, :2].max(axis=0) <= np.array(shared.image(PHOTO).shape[::-1]) - 0.5 + 1e-3).all()
