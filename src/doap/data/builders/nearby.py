"""Find keypoints of one image that may show the same physical point."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SAME_POINT_RADIUS = 5.0
"""Keypoints within this distance in pixels may show one physical point and ignore each other."""


def near_pairs(points: NDArray[np.floating], radius: float = SAME_POINT_RADIUS) -> NDArray[np.int64]:
    """Return the indices (P, 2) of all points (N, 2) at most `radius` apart, sorted, smaller first.

    The points are sorted by x. Step k compares all points with their k-th neighbours to the right,
    until no neighbour is near enough.

    >>> near_pairs(np.array([[0.0, 0.0], [9.0, 0.0], [3.0, 4.0]])).tolist()
    [[0, 2]]
    """
    order = points[:, 0].argsort(kind="stable")
    by_x = points[order]
    found = [np.empty((0, 2), np.int64)]
    for step in range(1, len(points)):
        offset = by_x[step:] - by_x[:-step]
        if (offset[:, 0] > radius).all():
            break
        near = np.square(offset).sum(axis=1) <= radius**2
        found.append(np.stack([order[:-step][near], order[step:][near]], axis=1))
    return np.unique(np.sort(np.concatenate(found), axis=1), axis=0)
