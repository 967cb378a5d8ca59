"""Frames: position, scale, orientation and shape of patches in an image.

A frame is a 2×3 matrix [A | t]. x = A·u + t maps u in [−1, 1]², with u = (right, down), to the
patch. t is the centre of the patch and the columns of A are half its sides, in pixels with centres
at integers. Frames are (N, 2, 3) float32; computations use float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from doap._support.checks import check_shape

if TYPE_CHECKING:
    import cv2

Frames = NDArray[np.float32]
Floats = NDArray[np.float64]
COLMAP_PIXEL_CENTRE = 0.5
"""Position of the centre of the first pixel in COLMAP's coordinates; in doap's, it is (0, 0)."""
SIFT_EXTENT = 6.0
"""Half the patch side relative to σ: SIFT's support is a patch side of 12 σ (6 × `KeyPoint.size`)."""


def frames_from_keypoints(keypoints: Sequence[cv2.KeyPoint], magnification: float = 6.0) -> Frames:
    """Return the frames (N, 2, 3) of OpenCV keypoints.

    `KeyPoint.size` is a diameter (2 σ for SIFT), so half the patch side is magnification × size /
    2. The angle −1, which means no orientation, becomes 0.

    Args:
        keypoints: N keypoints.
        magnification: Patch side relative to `KeyPoint.size`. 6 gives SIFT's support of 12 σ.
    """
    rows = [(*keypoint.pt, keypoint.size, keypoint.angle) for keypoint in keypoints]
    x, y, size, angle = np.array(rows, dtype=np.float64).reshape(-1, 4).T
    return frames_from_arrays(np.stack([x, y], 1), magnification * size / 2, np.where(angle == -1, 0, angle))


def frames_from_arrays(xy: ArrayLike, scale: ArrayLike, angle: ArrayLike | None = None) -> Frames:
    """Return square frames (N, 2, 3).

    >>> frames_from_arrays([[10, 20]], [4], [90])[0].round(3) + 0
    array([[ 0., -4., 10.],
           [ 4.,  0., 20.]], dtype=float32)

    Args:
        xy: (N, 2) centres.
        scale: (N,) half the patch sides in pixels.
        angle: (N,) degrees, clockwise in the image; None is upright.
    """
    scale = np.asarray(scale, dtype=np.float64)
    count = check_shape(scale, "N", name="scale")["N"]
    turn = np.zeros(count) if angle is None else np.radians(np.asarray(angle, dtype=np.float64))
    check_shape(turn, str(count), name="angle")
    cos, sin = scale * np.cos(turn), scale * np.sin(turn)
    # y points down, so this rotation is clockwise.
    return frames_from_affine(_points(xy, count), np.stack([cos, -sin, sin, cos], 1).reshape(-1, 2, 2))


def frames_from_affine(xy: ArrayLike, shape: ArrayLike) -> Frames:
    """Return frames (N, 2, 3) of any shape.

    Args:
        xy: (N, 2) centres t.
        shape: (N, 2, 2) matrices A.
    """
    shape = np.asarray(shape, dtype=np.float64)
    count = check_shape(shape, "N 2 2", name="shape")["N"]
    return np.concatenate([shape, _points(xy, count)[:, :, None]], axis=2).astype(np.float32)


def frames_from_lafs(lafs: Any) -> Frames:
    """Return a copy (N, 2, 3) of kornia's local affine frames, which have the same meaning.

    Args:
        lafs: (1, N, 2, 3) or (N, 2, 3), tensor or array.
    """
    if hasattr(lafs, "detach"):
        lafs = lafs.detach().cpu().numpy()
    array = np.array(lafs, dtype=np.float32)
    if array.ndim == 4:
        check_shape(array, "1 N 2 3", name="lafs")
        array = array[0]
    check_shape(array, "N 2 3", name="lafs")
    return array


def centres(frames: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the centres (N, 2) of frames (N, 2, 3) as (x, y)."""
    check_shape(frames, "N 2 3", name="frames")
    return frames[:, :, 2].astype(np.float32)


def scales(frames: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return √|det A| (N,) of frames (N, 2, 3): half the side of a square of the same area."""
    area = np.abs(np.linalg.det(_shape(frames)))
    return np.asarray(np.sqrt(area), dtype=np.float32)


def angles(frames: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the direction (N,) of the first column of A, in degrees in [−180, 180], clockwise."""
    right = _shape(frames)[:, :, 0]
    return np.degrees(np.arctan2(right[:, 1], right[:, 0])).astype(np.float32)


def resize_frames(frames: Frames, factor: float) -> Frames:
    """Return frames (N, 2, 3) with the same centres, `factor` times as wide."""
    return frames * np.array([factor, factor, 1], np.float32)


def transform_frames(frames: NDArray[np.floating], homography: ArrayLike) -> Frames:
    """Transform frames (N, 2, 3) by a homography, linearised at each centre.

    A centre that is mapped to infinity gives a frame that is not finite, and `inside` is false for
    it.

    >>> double = np.diag([2.0, 2.0, 1.0])
    >>> transform_frames(frames_from_arrays([[10, 20]], [4]), double)[0]
    array([[ 8.,  0., 20.],
           [ 0.,  8., 40.]], dtype=float32)

    Args:
        frames: (N, 2, 3) in image 0.
        homography: (3, 3) from image 0 to image 1, x₁ ~ H·x₀.

    Returns:
        (N, 2, 3) in image 1.
    """
    matrix = np.asarray(homography, dtype=np.float64)
    check_shape(matrix, "3 3", name="homography")
    shape, xy = _shape(frames), frames[:, :, 2].astype(np.float64)
    projected = xy @ matrix[:, :2].T + matrix[:, 2]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        depth = projected[:, 2, None]
        image = projected[:, :2] / depth
        # Quotient rule for x₁ = (H₁·x₀) / (H₃·x₀): the derivative is (H₁ − x₁·H₃) / (H₃·x₀).
        jacobian = (matrix[:2, :2] - image[:, :, None] * matrix[2, :2]) / depth[:, :, None]
        return frames_from_affine(image, jacobian @ shape)


def inside(frames: NDArray[np.floating], height: int, width: int, margin: float = 0.0) -> NDArray[np.bool_]:
    """Return whether all four corners of each frame (N,) are inside the image.

    Pixels are squares around their centres, so the image extends from −0.5 to width − 0.5. A frame
    that is not finite is outside.

    Args:
        frames: (N, 2, 3).
        height, width: Size of the image.
        margin: Required distance from the border in pixels; negative values allow frames to exceed it.
    """
    check_shape(frames, "N 2 3", name="frames")
    # The corners are t ± (first column) ± (second column).
    reach = np.abs(frames[:, :, :2]).sum(axis=2, dtype=np.float64) + margin
    centre = frames[:, :, 2].astype(np.float64)
    within = (centre - reach >= -0.5) & (centre + reach <= np.array([width, height]) - 0.5)
    return np.asarray(within.all(axis=1))


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


def _points(xy: ArrayLike, count: int) -> Floats:
    points = np.asarray(xy, dtype=np.float64)
    # An empty list has no second axis.
    points = points.reshape(-1, 2) if points.size == 0 else points
    check_shape(points, f"{count} 2", name="xy")
    return points


def _shape(frames: NDArray[np.floating]) -> Floats:
    check_shape(frames, "N 2 3", name="frames")
    return frames[:, :, :2].astype(np.float64)
