"""Find corresponding keypoints of two images that are related by a known homography."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from doap.images.frames import centres, scales, transform_frames
from doap.images.patches import inside

Frames = NDArray[np.float32]


def corresponding(
    frames0: Frames, frames1: Frames, homography: NDArray[np.float64], max_distance: float = 3.0
) -> NDArray[np.bool_]:
    """Return which keypoints of two images correspond, as a table (N0, N1).

    Args:
        frames0: (N0, 2, 3) of image 0.
        frames1: (N1, 2, 3) of image 1.
        homography: (3, 3) from image 0 to image 1, x₁ ~ H·x₀.
        max_distance: Maximum distance between centres, in pixels of the image that is coarser
            there.
    """
    projected = transform_frames(frames0, homography)
    at_infinity = np.asarray(~np.isfinite(projected).all(axis=(1, 2)))
    projected[at_infinity] = 0
    zoom = np.maximum(scales(projected) / scales(frames0), 1)
    distance = np.linalg.norm(centres(projected)[:, None] - centres(frames1), axis=2)
    return np.asarray((distance <= max_distance * zoom[:, None]) & ~at_infinity[:, None])


def visible(frames: Frames, homography: NDArray[np.float64], size: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which centres (N,) a homography maps into an image of this (height, width)."""
    points = transform_frames(frames, homography)
    points[:, :, :2] = 0
    return inside(points, *size)
