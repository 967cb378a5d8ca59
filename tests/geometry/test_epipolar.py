"""Epipolar errors are 0 for projections of one point and equal the distances to lines that OpenCV computes."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from doap._support.errors import ShapeError
from doap.geometry.epipolar import epipolar_errors
from doap.geometry.pose import Camera, Pose

MATRICES = [
    np.array([[600.0, 0, 320], [0, 600, 240], [0, 0, 1]]),
    np.array([[450.0, 0, 300], [0, 450, 260], [0, 0, 1]]),
]
POSE = Pose(cv2.Rodrigues(np.array([0.1, -0.4, 0.05]))[0], np.array([2.0, 0.3, -0.2]))


def project(camera: Camera, points: np.ndarray) -> np.ndarray:
    distortion = np.array(camera.distortion or (0.0,) * 4)
    return cv2.projectPoints(points, np.zeros(3), np.zeros(3), camera.matrix, distortion)[0][:, 0]


def views(cameras: tuple[Camera, Camera], count: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """Return the projections (N, 2) of random points in front of both cameras."""
    points = np.random.default_rng(0).uniform((-2, -1.5, 6), (2, 1.5, 12), (count, 3))
    return project(cameras[0], points), project(cameras[1], points @ POSE.rotation.T + POSE.translation)


@pytest.mark.parametrize("distortion", [(), (-0.1, 0.02, 0.001, -0.002)])
def test_projections_of_one_point_agree(distortion):
    cameras = Camera(MATRICES[0], distortion), Camera(MATRICES[1], distortion)
    assert epipolar_errors(*views(cameras), cameras, POSE).max() < 1e-3
    doubled = Pose(POSE.rotation, 7 * POSE.translation)
    assert epipolar_errors(*views(cameras), cameras, doubled).max() < 1e-3


def test_errors_equal_the_distances_to_the_lines_of_opencv():
    cameras = Camera(MATRICES[0]), Camera(MATRICES[1])
    xy0, xy1 = views(cameras)
    xy1 = xy1 + np.random.default_rng(1).normal(0, 20, xy1.shape)
    cross = np.cross(np.eye(3), POSE.translation).T
    inverse0, inverse1 = (np.linalg.inv(matrix) for matrix in MATRICES)
    fundamental = inverse1.T @ -cross.T @ POSE.rotation @ inverse0
    expected = []
    for point0, point1 in zip(xy0, xy1, strict=True):
        line1 = cv2.computeCorrespondEpilines(point0[None], 1, fundamental)[0, 0]
        line0 = cv2.computeCorrespondEpilines(point1[None], 2, fundamental)[0, 0]
        expected.append(max(abs(line0 @ [*point0, 1]), abs(line1 @ [*point1, 1])))
    np.testing.assert_allclose(epipolar_errors(xy0, xy1, cameras, POSE), expected, rtol=1e-6)


def test_the_epipole_has_an_infinite_error_and_no_matches_have_none():
    forwards = Pose(np.eye(3), np.array([0, 0, 1.0]))
    camera = Camera(np.diag([500.0, 500, 1]))
    assert epipolar_errors([[0, 0]], [[5, 5]], (camera, camera), forwards).tolist() == [np.inf]
    assert epipolar_errors(np.zeros((0, 2)), np.zeros((0, 2)), (camera, camera), forwards).shape == (0,)
    with pytest.raises(ShapeError, match="xy1"):
        epipolar_errors([[0, 0]], np.zeros((2, 2)), (camera, camera), forwards)
