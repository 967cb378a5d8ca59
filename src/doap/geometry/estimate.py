"""Homography, fundamental or essential matrix of two images from matches of which many are wrong (OpenCV's MAGSAC)."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from doap.checks import check_choice, check_shape
from doap.errors import ArgumentError
from doap.types import Geometry

GeometryModel = Literal["fundamental", "homography", "essential"]

_FEWEST: dict[GeometryModel, int] = {"fundamental": 8, "homography": 4, "essential": 5}
_CONFIDENCE, _ITERATIONS = 0.99999, 10_000


def estimate_geometry(
    xy0: ArrayLike,
    xy1: ArrayLike,
    model: GeometryModel = "fundamental",
    *,
    threshold: float = 1.5,
    cameras: tuple[ArrayLike, ArrayLike] | None = None,
) -> Geometry:
    """Fit a model to matches and say which of them agree with it.

    Too few matches, or none that agree, are no error: no matrix and no inliers.

    Args:
        xy0: (M, 2) points of image 0.
        xy1: (M, 2) what they are matched with in image 1.
        model: `homography` for planes and turning cameras, `fundamental` for any scene, `essential` if the cameras are
            known.
        threshold: pixels that a match may be off.
        cameras: (3, 3) and (3, 3), the intrinsics of both images; for `essential` alone.
    """
    import cv2

    check_choice(model, get_args(GeometryModel), name="model")
    if (cameras is not None) != (model == "essential"):
        raise ArgumentError(f"cameras: expected for the model essential and for no other, got model {model!r}")
    points0, points1 = np.asarray(xy0, np.float64), np.asarray(xy1, np.float64)
    count = check_shape(points0, "M 2", name="xy0")["M"]
    check_shape(points1, f"{count} 2", name="xy1")
    nothing = Geometry(None, np.zeros(count, np.bool_))
    if count < _FEWEST[model]:
        return nothing
    try:
        if cameras is not None:
            (points0, focal0), (points1, focal1) = (
                _normalised(points, camera) for points, camera in zip((points0, points1), cameras, strict=True)
            )
            matrix, mask = cv2.findEssentialMat(
                points0,
                points1,
                np.eye(3),
                method=cv2.USAC_MAGSAC,
                prob=_CONFIDENCE,
                threshold=threshold * 2 / (focal0 + focal1),
                maxIters=_ITERATIONS,
            )
        elif model == "homography":
            matrix, mask = cv2.findHomography(
                points0, points1, cv2.USAC_MAGSAC, threshold, maxIters=_ITERATIONS, confidence=_CONFIDENCE
            )
        else:
            matrix, mask = cv2.findFundamentalMat(
                points0, points1, cv2.USAC_MAGSAC, threshold, confidence=_CONFIDENCE, maxIters=_ITERATIONS
            )
    except cv2.error:
        # OpenCV 5 throws where no model of a few matches held.
        return nothing
    if matrix is None or np.shape(matrix) != (3, 3) or not np.any(mask):
        return nothing
    return Geometry(np.asarray(matrix, np.float64), np.asarray(mask).ravel().astype(np.bool_))


def _normalised(points: NDArray[np.float64], camera: ArrayLike) -> tuple[NDArray[np.float64], float]:
    """Points as seen by a camera of focal length 1, and the focal length that was."""
    intrinsics = np.asarray(camera, np.float64)
    check_shape(intrinsics, "3 3", name="cameras")
    rays = np.linalg.solve(intrinsics, np.column_stack([points, np.ones(len(points))]).T).T
    return rays[:, :2] / rays[:, 2:], float(intrinsics[0, 0] + intrinsics[1, 1]) / 2
