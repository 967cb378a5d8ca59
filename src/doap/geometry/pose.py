"""Relative camera pose of two images: estimation from matches, and its error in degrees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from doap._support.checks import check_choice, check_shape
from doap._support.errors import import_extra
from doap.geometry.estimate import CONFIDENCE, ITERATIONS, estimate_geometry

Floats = NDArray[np.float64]
PoseEstimator = Literal["poselib", "opencv"]

_MIN_MATCHES = 5


@dataclass(frozen=True, eq=False)
class Camera:
    """A pinhole camera with radial and tangential distortion, pixel centres at integers.

    Attributes:
        matrix: (3, 3) intrinsics.
        distortion: OpenCV's coefficients (k1, k2, p1, p2, …); empty for an undistorted camera.
    """

    matrix: Floats
    distortion: tuple[float, ...] = ()

    @property
    def focal_length(self) -> float:
        """Mean of the horizontal and the vertical focal length in pixels."""
        return float(self.matrix[0, 0] + self.matrix[1, 1]) / 2

    def normalise(self, points: ArrayLike) -> Floats:
        """Return the undistorted image coordinates (N, 2), for focal length 1, of pixels (N, 2).

        >>> camera = Camera(np.array([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]]))
        >>> camera.normalise([[320, 240], [820, 240]]).tolist()
        [[0.0, 0.0], [1.0, 0.0]]
        """
        import cv2

        pixels = np.asarray(points, np.float64)
        check_shape(pixels, "N 2", name="points")
        if not len(pixels):
            return np.empty((0, 2))
        coefficients = np.array(self.distortion or (0.0, 0.0, 0.0, 0.0))
        return np.asarray(cv2.undistortPoints(pixels[:, None], self.matrix, coefficients), np.float64)[:, 0]


@dataclass(frozen=True, eq=False)
class Pose:
    """A rigid transformation x′ = rotation · x + translation, for example from world to camera coordinates.

    Attributes:
        rotation: (3, 3).
        translation: (3,).
    """

    rotation: Floats
    translation: Floats

    def relative_to(self, other: Pose) -> Pose:
        """Return the transformation from the camera of `other` to the camera of this pose."""
        rotation = self.rotation @ other.rotation.T
        return Pose(rotation, self.translation - rotation @ other.translation)


@dataclass(frozen=True, eq=False)
class EstimatedPose:
    """A relative pose estimated from M matches; the length of its translation is arbitrary.

    Attributes:
        pose: from camera 0 to camera 1.
        inliers: (M,) bool, the matches that agree with it.
    """

    pose: Pose
    inliers: NDArray[np.bool_]


def rotation_angle(rotation: ArrayLike) -> float:
    """Return the angle of a rotation matrix (3, 3) in degrees.

    The arc tangent keeps its precision for small angles, where the arc cosine of the trace loses half of the digits.

    >>> rotation_angle([[0, -1, 0], [1, 0, 0], [0, 0, 1]])
    90.0
    """
    matrix = np.asarray(rotation, np.float64)
    axis = np.array([matrix[2, 1] - matrix[1, 2], matrix[0, 2] - matrix[2, 0], matrix[1, 0] - matrix[0, 1]])
    return float(np.degrees(np.arctan2(np.linalg.norm(axis), np.trace(matrix) - 1)))


def pose_error(estimated: Pose, truth: Pose, *, signed: bool = False) -> float:
    """Return the larger of the rotation error and the angle between the translations, in degrees.

    An essential matrix leaves the sign of the translation to a test that all points lie in front of both cameras. As
    is usual since SuperGlue, the sign does not count: the angle between translations is at most 90°. A reconstruction
    of many images determines the sign.

    Args:
        estimated: Estimated relative pose.
        truth: True relative pose.
        signed: Whether the sign of the translation counts, so that its angle can be up to 180°.
    """
    rotation = rotation_angle(truth.rotation.T @ estimated.rotation)
    cross = np.linalg.norm(np.cross(estimated.translation, truth.translation))
    along = float(estimated.translation @ truth.translation)
    angle = float(np.degrees(np.arctan2(cross, along if signed else abs(along))))
    return max(rotation, angle)


def check_installed(estimator: PoseEstimator) -> None:
    """Raise `MissingExtra` if the library of an estimator is not installed."""
    if estimator == "poselib":
        import_extra("poselib", "eval")


def estimate_pose(
    xy0: ArrayLike,
    xy1: ArrayLike,
    camera0: Camera,
    camera1: Camera,
    *,
    estimator: PoseEstimator = "poselib",
    threshold: float = 1.0,
    seed: int = 0,
) -> EstimatedPose | None:
    """Estimate the relative pose of two calibrated images from matches with many outliers.

    Args:
        xy0: (M, 2) points of image 0, in pixels.
        xy1: (M, 2) matched points of image 1.
        camera0, camera1: Intrinsics.
        estimator: `poselib` (LO-RANSAC, needs the extra `eval`) or `opencv` (essential matrix by MAGSAC++).
        threshold: Inlier threshold in pixels; divided by the mean focal length of both cameras.
        seed: Random seed of RANSAC.

    Returns:
        The pose, or None if there are fewer than five matches or no pose was found.
    """
    check_choice(estimator, get_args(PoseEstimator), name="estimator")
    points0, points1 = camera0.normalise(xy0), camera1.normalise(xy1)
    check_shape(points1, f"{len(points0)} 2", name="xy1")
    if len(points0) < _MIN_MATCHES:
        return None
    limit = threshold * 2 / (camera0.focal_length + camera1.focal_length)
    # OpenCV has no seed for each call: another order of the matches draws other samples.
    order = np.random.default_rng(seed).permutation(len(points0))
    run = _with_opencv if estimator == "opencv" else _with_poselib
    found = run(points0[order], points1[order], limit, seed)
    if found is None:
        return None
    inliers = np.zeros(len(order), np.bool_)
    inliers[order] = found.inliers
    return EstimatedPose(found.pose, inliers)


def _with_opencv(points0: Floats, points1: Floats, limit: float, _seed: int) -> EstimatedPose | None:
    import cv2

    unit = np.eye(3)
    geometry = estimate_geometry(points0, points1, "essential", threshold=limit, cameras=(unit, unit))
    if geometry.matrix is None:
        return None
    inliers = geometry.inliers
    _, rotation, translation, _ = cv2.recoverPose(geometry.matrix, points0[inliers], points1[inliers], unit)
    return EstimatedPose(Pose(np.asarray(rotation, np.float64), np.asarray(translation, np.float64).ravel()), inliers)


def _with_poselib(points0: Floats, points1: Floats, limit: float, seed: int) -> EstimatedPose | None:
    poselib = import_extra("poselib", "eval")
    camera = {"model": "SIMPLE_PINHOLE", "width": 1, "height": 1, "params": [1.0, 0.0, 0.0]}
    options = {
        "max_epipolar_error": limit,
        "max_iterations": ITERATIONS,
        "success_prob": CONFIDENCE,
        "seed": seed,
    }
    pose, found = poselib.estimate_relative_pose(points0, points1, camera, camera, options, {})
    inliers = np.asarray(found["inliers"], np.bool_)
    if not inliers.any():
        return None
    return EstimatedPose(Pose(np.asarray(pose.R), np.asarray(pose.t)), inliers)
