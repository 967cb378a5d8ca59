"""Cameras and poses: relative pose of two images from matches, its error, and the agreement of matches with a pose."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from doap._support.checks import check_shape
from doap._support.errors import DataError, import_extra
from doap.geometry.estimate import CONFIDENCE, ITERATIONS
from doap.images.frames import COLMAP_PIXEL_CENTRE

Floats = NDArray[np.float64]

_MIN_MATCHES = 5
# Order of the parameters of COLMAP's camera models: intrinsics first, then OpenCV's distortion coefficients.
MODELS = {
    "SIMPLE_PINHOLE": ("f", "cx", "cy"),
    "PINHOLE": ("fx", "fy", "cx", "cy"),
    "SIMPLE_RADIAL": ("f", "cx", "cy", "k1"),
    "RADIAL": ("f", "cx", "cy", "k1", "k2"),
    "OPENCV": ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2"),
}


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
    of many images determines the sign: with `signed`, the angle can be up to 180°.
    """
    rotation = rotation_angle(truth.rotation.T @ estimated.rotation)
    cross = np.linalg.norm(np.cross(estimated.translation, truth.translation))
    along = float(estimated.translation @ truth.translation)
    angle = float(np.degrees(np.arctan2(cross, along if signed else abs(along))))
    return max(rotation, angle)


def estimate_pose(
    xy0: ArrayLike, xy1: ArrayLike, camera0: Camera, camera1: Camera, *, threshold: float = 1.0, seed: int = 0
) -> Pose | None:
    """Estimate the relative pose of two calibrated images from matches with many outliers (LO-RANSAC of PoseLib).

    Args:
        xy0, xy1: (M, 2) matched points, in pixels.
        camera0, camera1: Intrinsics.
        threshold: Inlier threshold in pixels; divided by the mean focal length of both cameras.
        seed: Random seed of RANSAC.

    Returns:
        The pose from camera 0 to camera 1, with a translation of arbitrary length; None if there are fewer than five
        matches or no pose was found.
    """
    poselib = import_extra("poselib", "eval")
    points0, points1 = camera0.normalise(xy0), camera1.normalise(xy1)
    check_shape(points1, f"{len(points0)} 2", name="xy1")
    if len(points0) < _MIN_MATCHES:
        return None
    # The published results depend on this order.
    order = np.random.default_rng(seed).permutation(len(points0))
    camera = {"model": "SIMPLE_PINHOLE", "width": 1, "height": 1, "params": [1.0, 0.0, 0.0]}
    options = {
        "max_epipolar_error": threshold * 2 / (camera0.focal_length + camera1.focal_length),
        "max_iterations": ITERATIONS,
        "success_prob": CONFIDENCE,
        "seed": seed,
    }
    pose, found = poselib.estimate_relative_pose(points0[order], points1[order], camera, camera, options, {})
    return Pose(np.asarray(pose.R), np.asarray(pose.t)) if any(found["inliers"]) else None


def epipolar_errors(xy0: ArrayLike, xy1: ArrayLike, cameras: tuple[Camera, Camera], pose: Pose) -> Floats:
    """Return the larger of the distances of matched points to the epipolar lines of each other, in pixels.

    Distances are measured in undistorted coordinates and multiplied by the focal length of their image.

    >>> camera = Camera(np.diag([500.0, 500.0, 1.0]))
    >>> sideways = Pose(np.eye(3), np.array([1.0, 0, 0]))
    >>> epipolar_errors([[0, 0], [0, 0]], [[10, 0], [10, 4]], (camera, camera), sideways).round(3).tolist()
    [0.0, 4.0]

    Args:
        xy0, xy1: (M, 2) matched points, in pixels.
        cameras: Intrinsics of both images.
        pose: Transformation from camera 0 to camera 1.

    Returns:
        (M,) distances; infinite for the epipole, which has no epipolar line.
    """
    points0, points1 = cameras[0].normalise(xy0), cameras[1].normalise(xy1)
    count = check_shape(points0, "M 2", name="xy0")["M"]
    check_shape(points1, f"{count} 2", name="xy1")
    x, y, z = pose.translation / np.linalg.norm(pose.translation)
    essential = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) @ pose.rotation
    homogeneous0, homogeneous1 = (np.column_stack([points, np.ones(count)]) for points in (points0, points1))
    lines0, lines1 = homogeneous1 @ essential, homogeneous0 @ essential.T
    residuals = np.abs((homogeneous1 * lines1).sum(axis=1))
    lengths = (
        np.hypot(*lines[:, :2].T) / camera.focal_length for lines, camera in zip((lines0, lines1), cameras, strict=True)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        distances = [residuals / length for length in lengths]
    return np.asarray(np.nan_to_num(np.maximum(*distances), nan=np.inf, posinf=np.inf))


def pose_from_colmap(rigid: object) -> Pose:
    """Convert a `pycolmap.Rigid3d`, such as `image.cam_from_world()`."""
    return Pose(np.asarray(rigid.rotation.matrix()), np.asarray(rigid.translation))  # type: ignore[attr-defined]


def camera_from_colmap(camera: object) -> Camera:
    """Convert a camera of COLMAP, whose first pixel has its centre at (0.5, 0.5)."""
    model, parameters = camera.model.name, camera.params  # type: ignore[attr-defined]
    if model not in MODELS:
        raise DataError(f"camera: expected one of {', '.join(MODELS)}, got COLMAP's model {model}.")
    named = dict(zip(MODELS[model], map(float, parameters), strict=True))
    focal_x, focal_y = named.get("fx", named.get("f", 0.0)), named.get("fy", named.get("f", 0.0))
    centre_x, centre_y = named["cx"] - COLMAP_PIXEL_CENTRE, named["cy"] - COLMAP_PIXEL_CENTRE
    matrix = np.array([[focal_x, 0, centre_x], [0, focal_y, centre_y], [0, 0, 1]])
    distortion = tuple(named.get(key, 0.0) for key in ("k1", "k2", "p1", "p2"))
    return Camera(matrix, distortion if any(distortion) else ())
