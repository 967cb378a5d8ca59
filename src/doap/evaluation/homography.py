"""How good matches between two images of a plane are: the accuracy of matches, and of the homography they give."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from doap.checks import check_shape
from doap.errors import ArgumentError

Floats = NDArray[np.float64]


def reprojection_errors(xy0: ArrayLike, xy1: ArrayLike, homography: ArrayLike) -> Floats:
    """How far matches are from the truth, in pixels of image 1.

    Args:
        xy0: (M, 2) points of image 0.
        xy1: (M, 2) what they are matched with.
        homography: (3, 3), x₁ ~ H·x₀.

    Returns:
        (M,); infinite for a point that the homography sends to infinity.
    """
    points1 = np.asarray(xy1, np.float64)
    return _distances(_carried(np.asarray(xy0, np.float64), homography), points1)


def matching_accuracy(errors: Floats, thresholds: ArrayLike) -> Floats:
    """The share of matches that are right, for each of T thresholds; without matches 0 (the M of MMA is over images).

    >>> matching_accuracy(np.array([0.5, 2.0, 9.0, 30.0]), [1, 3, 10]).tolist()
    [0.25, 0.5, 0.75]

    Args:
        errors: (M,), of `reprojection_errors`.
        thresholds: (T,) pixels that a right match may be off.
    """
    limits = np.asarray(thresholds, np.float64)
    if not len(errors):
        return np.zeros(len(limits))
    return np.asarray((errors[:, None] <= limits).mean(axis=0))


def corner_error(estimated: NDArray[np.float64] | None, truth: ArrayLike, size: tuple[int, int]) -> float:
    """The mean distance, in pixels of image 1, between the corners of image 0 as two homographies carry them.

    Args:
        estimated: (3, 3), or None where none was found, which is infinitely far off.
        truth: (3, 3).
        size: (height, width) of image 0; its corners are the centres of its outermost pixels.
    """
    if estimated is None:
        return float("inf")
    right, bottom = size[1] - 1.0, size[0] - 1.0
    corners = np.array([[0, 0], [right, 0], [right, bottom], [0, bottom]])
    return float(_distances(_carried(corners, estimated), _carried(corners, truth)).mean())


def area_under_recall(errors: ArrayLike, threshold: float) -> float:
    """The area under the share of errors up to e, from e = 0 to the threshold, over the threshold: 1 is perfect.

    With errors e₁ ≤ e₂ ≤ … of n, the share is a line from (0, 0) through the points (eᵢ, i/n), and level after the last
    below the threshold.

    >>> area_under_recall([1.0, float("inf")], 2.0)
    0.375

    Args:
        errors: (n,), infinite where nothing was found.
        threshold: above 0.
    """
    ordered = np.sort(np.asarray(errors, np.float64))
    check_shape(ordered, "n", name="errors")
    if not len(ordered) or not threshold > 0:
        raise ArgumentError(f"errors and threshold: expected some and one above 0, got {len(ordered)} and {threshold}")
    below = ordered[ordered < threshold]
    share = np.arange(len(below) + 1) / len(ordered)
    x, y = np.array([0, *below, threshold]), np.array([*share, share[-1]])
    return float((np.diff(x) * (y[1:] + y[:-1]) / 2).sum() / threshold)


def _carried(points: Floats, homography: ArrayLike) -> Floats:
    matrix = np.asarray(homography, np.float64)
    check_shape(points, "N 2", name="points")
    check_shape(matrix, "3 3", name="homography")
    projected = points @ matrix[:, :2].T + matrix[:, 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(projected[:, :2] / projected[:, 2:])


def _distances(points0: Floats, points1: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        apart = np.linalg.norm(points0 - points1, axis=1)
    return np.asarray(np.nan_to_num(apart, nan=np.inf, posinf=np.inf))
