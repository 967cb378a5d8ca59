"""Agreement of matches with a known relative pose."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from doap._support.checks import check_shape
from doap.geometry.pose import Camera, Pose

Floats = NDArray[np.float64]


def epipolar_errors(xy0: ArrayLike, xy1: ArrayLike, cameras: tuple[Camera, Camera], pose: Pose) -> Floats:
    """Return the larger of the distances of matched points to the epipolar lines of each other, in pixels.

    Distances are measured in undistorted coordinates and multiplied by the focal length of their image.

    >>> camera = Camera(np.diag([500.0, 500.0, 1.0]))
    >>> sideways = Pose(np.eye(3), np.array([1.0, 0, 0]))
    >>> epipolar_errors([[0, 0], [0, 0]], [[10, 0], [10, 4]], (camera, camera), sideways).round(3).tolist()
    [0.0, 4.0]

    Args:
        xy0: (M, 2) points of image 0, in pixels.
        xy1: (M, 2) matched points of image 1.
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
