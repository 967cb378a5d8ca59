"""Which keypoints of two images show the same spot, given the homography between the images."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from doap.images.frames import centres, scales, transform_frames
from doap.images.patches import inside

Frames = NDArray[np.float32]


def partners(frames0: Frames, frames1: Frames, homography: NDArray[np.float64], near: float = 3.0) -> NDArray[np.bool_]:
    """Which keypoints of two images are the same spot.

    Args:
        frames0: (N0, 2, 3) of image 0.
        frames1: (N1, 2, 3) of image 1.
        homography: (3, 3), x₁ ~ H·x₀.
        near: distance of their centres at most, in pixels of the coarser image, there where they
            are.

    Returns:
        (N0, N1) bool.
    """
    carried = transform_frames(frames0, homography)
    at_infinity = np.asarray(~np.isfinite(carried).all(axis=(1, 2)))
    carried[at_infinity] = 0
    finer = np.maximum(scales(carried) / scales(frames0), 1)
    apart = np.linalg.norm(centres(carried)[:, None] - centres(frames1), axis=2)
    return np.asarray((apart <= near * finer[:, None]) & ~at_infinity[:, None])


def within(frames: Frames, homography: NDArray[np.float64], size: tuple[int, ...]) -> NDArray[np.bool_]:
    """(N,) whether the centres lie in the other image."""
    points = transform_frames(frames, homography)
    points[:, :, :2] = 0
    return inside(points, *size)
