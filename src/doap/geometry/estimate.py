"""Fit a homography or fundamental matrix to matches with outliers (OpenCV's MAGSAC++)."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from doap._support.checks import check_choice, check_shape
from doap.types import Geometry

GeometryModel = Literal["fundamental", "homography"]
"""Two-view geometry to estimate."""

_MIN_MATCHES: dict[GeometryModel, int] = {"fundamental": 8, "homography": 4}
CONFIDENCE, ITERATIONS = 0.99999, 10_000
"""Confidence and maximum number of iterations of RANSAC."""
# Photos of different scenes have up to 50 inliers among 1,000 matches, at most 7 %, because some wrong matches agree
# with a fundamental matrix by chance. Among 100 matches the share may reach 16 %, but with fewer than 30 inliers.
MIN_INLIERS = 30
"""Minimum number of inliers of two images that overlap."""
MIN_INLIER_RATIO = 0.1
"""Their minimum share of the matches."""


def estimate_geometry(
    xy0: ArrayLike, xy1: ArrayLike, model: GeometryModel = "fundamental", *, threshold: float = 1.5
) -> Geometry:
    """Fit a two-view model to matches and find its inliers.

    >>> xy = np.random.default_rng(0).uniform(0, 100, (20, 2))
    >>> int(estimate_geometry(xy, xy + 5, "homography").inliers.sum())
    20

    Args:
        xy0, xy1: (M, 2) matched points (x, y).
        model: `homography` for planes and rotating cameras, `fundamental` for any scene.
        threshold: Inlier threshold in pixels.

    Returns:
        The (3, 3) matrix and the inliers (M,). With too few matches or no inliers, the matrix is
        None and all matches are outliers.
    """
    import cv2

    check_choice(model, get_args(GeometryModel), name="model")
    points0, points1 = np.asarray(xy0, np.float64), np.asarray(xy1, np.float64)
    count = check_shape(points0, "M 2", name="xy0")["M"]
    check_shape(points1, f"{count} 2", name="xy1")
    nothing = Geometry(None, np.zeros(count, np.bool_))
    if count < _MIN_MATCHES[model]:
        return nothing
    fit = cv2.findHomography if model == "homography" else cv2.findFundamentalMat
    options: dict[str, Any] = {"method": cv2.USAC_MAGSAC, "maxIters": ITERATIONS, "confidence": CONFIDENCE}
    try:
        matrix, mask = fit(points0, points1, ransacReprojThreshold=threshold, **options)
    except cv2.error:
        # OpenCV 5 raises an error if it finds no model for a few matches.
        return nothing
    if matrix is None or np.shape(matrix) != (3, 3) or not np.any(mask):
        return nothing
    return Geometry(np.asarray(matrix, np.float64), np.asarray(mask).ravel().astype(np.bool_))


def is_verified(inliers: int, matches: int) -> bool:
    """Return whether so many inliers show that two images overlap.

    >>> is_verified(40, 200), is_verified(40, 1000), is_verified(12, 14)
    (True, False, False)
    """
    return inliers >= max(MIN_INLIERS, MIN_INLIER_RATIO * matches)
