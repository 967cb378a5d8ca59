"""Two-view geometry: known cameras and planes are recovered, and matches without a model are no error."""

import numpy as np
import pytest

from doap.geometry import estimate_geometry

CAMERA = np.array([[700.0, 0, 320], [0, 700, 240], [0, 0, 1]])
# OpenCV 5 raises an error for these matches: some points occur twice, and most lie on one plane.
FAILS_IN_OPENCV = np.fromstring(
    "32 130 84 44 189 183 133 175 178 131 162 139 150 116 156 111 220 99 207 148 25 169 54 60 125 212 78 149 189 "
    "183 133 175 232 57 242 132 83 151 97 87 139 161 56 146 99 85 149 60 176 78 196 107 155 202 101 163 55 185 59 "
    "89 50 157 75 70 178 131 162 139 232 57 231 61 128 104 153 91 52 87 122 34 189 183 133 175 ",
    sep=" ",
).reshape(-1, 4)


def project(points, rotation, shift):
    projected = (points @ rotation.T + shift) @ CAMERA.T
    return projected[:, :2] / projected[:, 2:]


@pytest.fixture
def views():
    """200 matches of two views, the last 60 of them wrong, with the fundamental matrix."""
    random = np.random.default_rng(0)
    points = random.uniform([-2, -1.5, 4], [2, 1.5, 9], (200, 3))
    angle = 0.1
    rotation = np.array([[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]])
    shift = np.array([-0.8, 0.1, 0.05])
    xy0, xy1 = project(points, np.eye(3), np.zeros(3)), project(points, rotation, shift)
    xy1[140:] = random.uniform([0, 0], [640, 480], (60, 2))
    cross = np.array([[0, -shift[2], shift[1]], [shift[2], 0, -shift[0]], [-shift[1], shift[0], 0]])
    inverse = np.linalg.inv(CAMERA)
    return xy0, xy1, inverse.T @ cross @ rotation @ inverse


def same_up_to_scale(one, other):
    one, other = one / np.linalg.norm(one), other / np.linalg.norm(other)
    return min(np.abs(one - other).max(), np.abs(one + other).max())


def test_fundamental_matrix_of_known_cameras_is_found(views):
    xy0, xy1, fundamental = views
    found = estimate_geometry(xy0, xy1)
    assert found.inliers[:140].all()
    assert found.inliers[140:].mean() < 0.1
    assert same_up_to_scale(found.matrix, fundamental) < 1e-3


def test_homography_of_a_plane_is_found():
    random = np.random.default_rng(1)
    homography = np.array([[1.1, 0.1, 5], [-0.05, 0.95, -8], [1e-4, -5e-5, 1]])
    xy0 = random.uniform(0, 500, (100, 2))
    projected = np.column_stack([xy0, np.ones(100)]) @ homography.T
    xy1 = projected[:, :2] / projected[:, 2:]
    xy1[70:] = random.uniform(0, 500, (30, 2))
    found = estimate_geometry(xy0, xy1, "homography")
    assert found.inliers.sum() == pytest.approx(70, abs=1)
    assert same_up_to_scale(found.matrix, homography) < 1e-4


@pytest.mark.parametrize(("model", "count"), [("fundamental", 7), ("homography", 3), ("fundamental", 0)])
def test_too_few_matches_are_no_error(model, count):
    points = np.random.default_rng(0).uniform(0, 100, (count, 2))
    found = estimate_geometry(points, points + 1, model)
    assert found.matrix is None
    assert not found.inliers.any()
    assert found.inliers.shape == (count,)


@pytest.mark.parametrize("model", ["fundamental", "homography"])
@pytest.mark.parametrize("matches", [FAILS_IN_OPENCV, np.ones((20, 4))])
def test_degenerate_matches_are_no_error(model, matches):
    assert estimate_geometry(matches[:, :2], matches[:, 2:], model).inliers.shape == (len(matches),)
