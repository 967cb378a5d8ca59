"""Poses: known cameras are recovered, and errors and epipolar distances agree with independent computations."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from doap._support.errors import ShapeError
from doap.geometry.pose import Camera, Pose, epipolar_errors, estimate_pose, pose_error, rotation_angle

CAMERA = Camera(np.array([[700.0, 0, 320], [0, 690, 240], [0, 0, 1]]))
WIDE = Camera(np.array([[400.0, 0, 300], [0, 400, 200], [0, 0, 1]]), (-0.12, 0.03, 0.001, -0.002))

seeds = st.integers(0, 2**32 - 1)


def random_pose(random):
    return Pose(Rotation.from_quat(random.normal(size=4)).as_matrix(), random.normal(size=3))


def project(camera, pose, points):
    """Project world points (N, 3) with OpenCV, an implementation independent of `Camera`."""
    vector, _ = cv2.Rodrigues(pose.rotation)
    pixels, _ = cv2.projectPoints(
        points, vector, pose.translation, camera.matrix, np.array(camera.distortion or [0.0] * 4)
    )
    return pixels[:, 0]


def two_views(random, wrong=0):
    """Return the exact matches of a random scene, `wrong` of them replaced, and the true relative pose."""
    points = random.uniform([-2, -1.5, 6], [2, 1.5, 12], (150, 3))
    first = Pose(Rotation.from_euler("xyz", [2, -3, 1], degrees=True).as_matrix(), np.array([0.1, 0.0, 0.2]))
    second = Pose(Rotation.from_euler("xyz", [-4, 12, 5], degrees=True).as_matrix(), np.array([-2.5, 0.3, 0.4]))
    xy0, xy1 = project(CAMERA, first, points), project(WIDE, second, points)
    xy1[:wrong] = random.uniform(0, 400, (wrong, 2))
    return xy0, xy1, second.relative_to(first)


@given(seeds)
def test_rotation_angle_agrees_with_scipy(seed):
    rotation = Rotation.from_quat(np.random.default_rng(seed).normal(size=4))
    assert rotation_angle(rotation.as_matrix()) == pytest.approx(np.degrees(rotation.magnitude()), abs=1e-9)


@pytest.mark.parametrize("degrees", [0, 1e-7, 1e-3, 179.9999])
def test_small_and_large_angles_keep_their_precision(degrees):
    matrix = Rotation.from_rotvec([0, np.radians(degrees), 0]).as_matrix()
    assert rotation_angle(matrix) == pytest.approx(degrees, rel=1e-6, abs=1e-12)


@given(seeds)
def test_pose_error_agrees_with_quaternions_and_arc_cosines(seed):
    random = np.random.default_rng(seed)
    estimated, truth = random_pose(random), random_pose(random)
    one, other = (Rotation.from_matrix(pose.rotation).as_quat() for pose in (estimated, truth))
    rotation = np.degrees(2 * np.arccos(min(abs(one @ other), 1)))
    unit0, unit1 = (pose.translation / np.linalg.norm(pose.translation) for pose in (estimated, truth))
    translation = np.degrees(np.arccos(min(abs(unit0 @ unit1), 1)))
    assert pose_error(estimated, truth) == pytest.approx(max(rotation, translation), abs=1e-4)


@given(seeds, st.floats(0.01, 100))
def test_length_and_sign_of_the_translation_do_not_count(seed, scale):
    pose = random_pose(np.random.default_rng(seed))
    assert pose_error(Pose(pose.rotation, -scale * pose.translation), pose) == pytest.approx(0, abs=1e-5)


@given(seeds)
def test_relative_pose_maps_camera_coordinates_of_one_view_to_the_other(seed):
    random = np.random.default_rng(seed)
    first, second = random_pose(random), random_pose(random)
    points = random.normal(size=(5, 3))
    relative = second.relative_to(first)
    seen0 = points @ first.rotation.T + first.translation
    seen1 = points @ second.rotation.T + second.translation
    np.testing.assert_allclose(seen0 @ relative.rotation.T + relative.translation, seen1, atol=1e-9)


def test_normalise_inverts_the_projection_of_a_distorted_camera():
    points = np.random.default_rng(0).uniform([-1, -1, 4], [1, 1, 6], (50, 3))
    pixels = project(WIDE, Pose(np.eye(3), np.zeros(3)), points)
    np.testing.assert_allclose(WIDE.normalise(pixels), points[:, :2] / points[:, 2:], atol=1e-5)


@pytest.mark.parametrize(("wrong", "limit"), [(0, 0.05), (75, 0.5)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_true_pose_is_found_even_if_half_of_the_matches_are_wrong(wrong, limit, seed):
    xy0, xy1, truth = two_views(np.random.default_rng(2), wrong)
    assert pose_error(estimate_pose(xy0, xy1, CAMERA, WIDE, seed=seed), truth) < limit


def test_a_seed_gives_the_same_pose_every_time():
    xy0, xy1, _ = two_views(np.random.default_rng(3), wrong=100)
    first, again = (estimate_pose(xy0, xy1, CAMERA, WIDE, seed=5) for _ in range(2))
    np.testing.assert_array_equal(first.rotation, again.rotation)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_fewer_than_five_matches_have_no_pose(count):
    xy0, xy1, _ = two_views(np.random.default_rng(4))
    assert estimate_pose(xy0[:count], xy1[:count], CAMERA, WIDE) is None


def test_degenerate_matches_are_no_error_and_point_sets_of_different_sizes_are():
    same = np.full((20, 2), 100.0)
    found = estimate_pose(same, same, CAMERA, CAMERA)
    assert found is None or np.isfinite(found.rotation).all()
    with pytest.raises(ShapeError):
        estimate_pose(np.zeros((9, 2)), np.zeros((8, 2)), CAMERA, CAMERA)
    with pytest.raises(ShapeError):
        epipolar_errors(np.zeros((9, 2)), np.zeros((8, 2)), (CAMERA, CAMERA), random_pose(np.random.default_rng(0)))


def test_projections_of_one_point_agree_with_any_length_of_the_translation():
    xy0, xy1, truth = two_views(np.random.default_rng(5))
    for scale in (1, 7):
        pose = Pose(truth.rotation, scale * truth.translation)
        assert epipolar_errors(xy0, xy1, (CAMERA, WIDE), pose).max() < 1e-2


def test_epipolar_errors_equal_the_distances_to_the_lines_of_opencv():
    matrices = [np.array([[size, 0, 320], [0, size, 240], [0, 0, 1.0]]) for size in (600.0, 450.0)]
    cameras, pose = tuple(Camera(matrix) for matrix in matrices), random_pose(np.random.default_rng(6))
    xy0, xy1 = np.random.default_rng(7).uniform(0, 600, (2, 50, 2))
    cross = np.cross(np.eye(3), pose.translation).T
    inverse0, inverse1 = (np.linalg.inv(matrix) for matrix in matrices)
    fundamental = inverse1.T @ -cross.T @ pose.rotation @ inverse0
    expected = []
    for point0, point1 in zip(xy0, xy1, strict=True):
        line1 = cv2.computeCorrespondEpilines(point0[None], 1, fundamental)[0, 0]
        line0 = cv2.computeCorrespondEpilines(point1[None], 2, fundamental)[0, 0]
        expected.append(max(abs(line0 @ [*point0, 1]), abs(line1 @ [*point1, 1])))
    np.testing.assert_allclose(epipolar_errors(xy0, xy1, cameras, pose), expected, rtol=1e-6)


def test_the_epipole_has_an_infinite_error_and_no_matches_have_none():
    forwards = Pose(np.eye(3), np.array([0, 0, 1.0]))
    camera = Camera(np.diag([500.0, 500, 1]))
    assert epipolar_errors([[0, 0]], [[5, 5]], (camera, camera), forwards).tolist() == [np.inf]
    assert epipolar_errors(np.zeros((0, 2)), np.zeros((0, 2)), (camera, camera), forwards).shape == (0,)
