"""Groups from synthetic views of one photo."""

from itertools import pairwise

import numpy as np
import pytest

from doap.data.builders import synthetic
from doap.data.builders.synthetic import _matching_keypoints, synthetic_groups
from doap.data.builders.tracks import SAME_POINT_RADIUS, near_pairs
from doap.images import frames_from_arrays
from doap.images.synthetic_views import SyntheticViews
from oracles.photos import write_photo

VIEWS = SyntheticViews(count=4, keypoints=80)


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    return write_photo(tmp_path_factory.mktemp("photo") / "a.png", seed=0)


def build(photo, number=0, views=VIEWS):
    return synthetic_groups(photo, "scene", "a.png", 32, seed=0, number=number, views=views)


def correlation(one, other):
    return np.corrcoef(one.ravel().astype(float), other.ravel().astype(float))[0, 1]


def test_patches_correlate_within_a_group_and_not_across_groups(photo):
    patches, groups = build(photo)
    starts = np.cumsum(groups.count) - groups.count
    same = [
        correlation(patches[s], patches[s + k]) for s, c in zip(starts, groups.count, strict=True) for k in range(1, c)
    ]
    other = [correlation(patches[s], patches[t]) for s, t in pairwise(starts)]
    assert len(groups.count) > 30
    assert groups.count.min() >= 2
    assert np.median(same) > 0.8
    assert abs(np.median(other)) < 0.3


def test_keypoints_at_the_same_point_ignore_each_other(photo, monkeypatch):
    found = []

    def spied(points):
        found.append(points)
        return near_pairs(points)

    views = SyntheticViews(count=4, keypoints=400)
    monkeypatch.setattr(synthetic, "near_pairs", spied)
    _, groups = build(photo, views=views)
    (centre,) = found
    distance = np.linalg.norm(centre[:, None] - centre, axis=2)
    near = (distance <= SAME_POINT_RADIUS).sum() - len(centre)
    assert 0 < 2 * len(groups.ignore) <= near
    # If all keypoints were near each other, all groups would ignore each other.
    monkeypatch.setattr(synthetic, "near_pairs", lambda points: np.argwhere(np.triu(np.ones((len(points),) * 2), k=1)))
    _, groups = build(photo, views=views)
    number = len(groups.count)
    assert groups.ignore.tolist() == [[first, second] for first in range(number) for second in range(first + 1, number)]


def test_frames_match_only_if_position_scale_and_angle_agree():
    frame = frames_from_arrays([[50.0, 60.0]], [10.0], [30.0])
    for change, agrees in (
        (([[52.0, 60.0]], [10.0], [30.0]), True),
        (([[54.0, 60.0]], [10.0], [30.0]), False),
        (([[50.0, 60.0]], [12.0], [30.0]), True),
        (([[50.0, 60.0]], [15.0], [30.0]), False),
        (([[50.0, 60.0]], [10.0], [45.0]), True),
        (([[50.0, 60.0]], [10.0], [395.0]), True),
        (([[50.0, 60.0]], [10.0], [60.0]), False),
    ):
        assert (len(_matching_keypoints(frame, frames_from_arrays(*change), SyntheticViews())[0]) == 1) is agrees


def test_photo_without_keypoints_gives_no_groups(tmp_path):
    import cv2

    cv2.imwrite(str(tmp_path / "flat.png"), np.full((200, 200), 90, np.uint8))
    patches, groups = build(tmp_path / "flat.png")
    assert (patches.shape, len(groups.count)) == ((0, 32, 32), 0)
