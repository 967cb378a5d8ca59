"""Points that are the same spot of an image."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SAME_SPOT = 5.0
"""Pixels within which two keypoints may be one physical spot: neither match nor distractor of each other."""


def near_pairs(points: NDArray[np.floating], radius: float = SAME_SPOT) -> NDArray[np.int64]:
    """All pairs of points (N, 2) at most `radius` apart, as (P, 2) positions, smaller first and in order.

    A sweep along x: the k-th neighbour to the right is tried for all points at once, until none is near enough.

    >>> near_pairs(np.array([[0.0, 0.0], [9.0, 0.0], [3.0, 4.0]])).tolist()
    [[0, 2]]
    """
    order = points[:, 0].argsort(kind="stable")
    swept = points[order]
    found = [np.empty((0, 2), np.int64)]
    for step in range(1, len(points)):
        gap = swept[step:] - swept[:-step]
        if (gap[:, 0] > radius).all():
            break
        near = np.square(gap).sum(axis=1) <= radius**2
        found.append(np.stack([order[:-step][near], order[step:][near]], axis=1))
    return np.unique(np.sort(np.concatenate(found), axis=1), axis=0)
