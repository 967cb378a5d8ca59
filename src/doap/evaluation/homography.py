"""Accuracy of matches between two images of a plane, and of the homography estimated from them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from doap._support.errors import ArgumentError

Floats = NDArray[np.float64]


def reprojection_errors(xy0: ArrayLike, xy1: ArrayLike, homography: ArrayLike) -> Floats:
    """Return the reprojection errors (M,) of matches (M, 2) in pixels of image 1, where x₁ ~ H·x₀.

    The error of a point that the homography maps to infinity is infinite.
    """
    points1 = np.asarray(xy1, np.float64)
    return _distances(project(np.asarray(xy0, np.float64), homography), points1)


def matching_accuracy(errors: Floats, thresholds: ArrayLike) -> Floats:
    """Return the share of correct matches for each of T thresholds; 0 if there are no matches.

    >>> matching_accuracy(np.array([0.5, 2.0, 9.0, 30.0]), [1, 3, 10]).tolist()
    [0.25, 0.5, 0.75]
    """
    limits = np.asarray(thresholds, np.float64)
    if not len(errors):
        return np.zeros(len(limits))
    return np.asarray((errors[:, None] <= limits).mean(axis=0))


def corner_error(estimated: NDArray[np.float64] | None, truth: ArrayLike, size: tuple[int, int]) -> float:
    """Return the mean distance between the corners of image 0 projected by two homographies, in pixels of image 1.

    The error is infinite if there is no estimate. `size` is (height, width) of image 0; its corners are the centres of
    its corner pixels.
    """
    if estimated is None:
        return float("inf")
    right, bottom = size[1] - 1.0, size[0] - 1.0
    corners = np.array([[0, 0], [right, 0], [right, bottom], [0, bottom]])
    return float(_distances(project(corners, estimated), project(corners, truth)).mean())


def area_under_recall(errors: ArrayLike, threshold: float) -> float:
    """Return the area under the cumulative error curve from 0 to the threshold, divided by the threshold.

    With sorted errors e₁ ≤ e₂ ≤ … eₙ, the curve connects (0, 0) with the points (eᵢ, i/n) and is constant
    after the last error below the threshold. A perfect method scores 1.

    >>> area_under_recall([1.0, float("inf")], 2.0)
    0.375
    """
    ordered = np.sort(np.asarray(errors, np.float64))
    if not len(ordered):
        raise ArgumentError("errors: expected at least one error, got none.")
    if not threshold > 0:
        raise ArgumentError(f"threshold: expected a number above 0, got {threshold}.")
    below = ordered[ordered < threshold]
    share = np.arange(len(below) + 1) / len(ordered)
    x, y = np.array([0, *below, threshold]), np.array([*share, share[-1]])
    return float((np.diff(x) * (y[1:] + y[:-1]) / 2).sum() / threshold)


def project(points: Floats, homography: ArrayLike) -> Floats:
    """Map points (N, 2) by a homography (3, 3); points at infinity are infinite or NaN."""
    matrix = np.asarray(homography, np.float64)
    projected = points @ matrix[:, :2].T + matrix[:, 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(projected[:, :2] / projected[:, 2:])


def _distances(points0: Floats, points1: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        apart = np.linalg.norm(points0 - points1, axis=1)
    return np.asarray(np.nan_to_num(apart, nan=np.inf, posinf=np.inf))
