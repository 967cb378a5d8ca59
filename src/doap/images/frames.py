"""Frames: where a patch lies in an image, and how it is turned, scaled and sheared.

A frame is [A | t], 2×3: x = A·u + t takes u in [−1, 1]², with u = (right, down), onto the patch. t
is the centre of the patch, the columns of A are half its sides, all in pixels, pixel centres at
integers. Frames are (N, 2, 3) float32; what is computed from them is computed in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from doap.checks import check_shape

if TYPE_CHECKING:
    import cv2

Frames = NDArray[np.float32]
Floats = NDArray[np.float64]
SIFT_EXTENT = 6.0
"""Half the side of a patch over the keypoint's σ: OpenCV's `size` is 2σ and a patch is 6 sizes wide."""


def frames_from_keypoints(keypoints: Sequence[cv2.KeyPoint], magnification: float = 6.0) -> Frames:
    """Frames of OpenCV keypoints.

    `KeyPoint.size` is a diameter (2σ for SIFT), so half the side of a patch is magnification × size
    / 2. An angle of −1 is OpenCV's word for "none" and becomes 0.

    Args:
        keypoints: N of them.
        magnification: side of the patch over `KeyPoint.size`; 6 suits blobs such as SIFT's.

    Returns:
        (N, 2, 3).
    """
    rows = [(*keypoint.pt, keypoint.size, keypoint.angle) for keypoint in keypoints]
    x, y, size, angle = np.array(rows, dtype=np.float64).reshape(-1, 4).T
    return frames_from_arrays(np.stack([x, y], 1), magnification * size / 2, np.where(angle == -1, 0, angle))


def frames_from_arrays(xy: ArrayLike, scale: ArrayLike, angle: ArrayLike | None = None) -> Frames:
    """Square frames.

    >>> frames_from_arrays([[10, 20]], [4], [90])[0].round(3) + 0
    array([[ 0., -4., 10.],
           [ 4.,  0., 20.]], dtype=float32)

    Args:
        xy: (N, 2), centres.
        scale: (N,), half the side of the patch.
        angle: (N,), degrees, clockwise as the image is seen; upright where not given.

    Returns:
        (N, 2, 3).
    """
    scale = np.asarray(scale, dtype=np.float64)
    count = check_shape(scale, "N", name="scale")["N"]
    turn = np.zeros(count) if angle is None else np.radians(np.asarray(angle, dtype=np.float64))
    check_shape(turn, str(count), name="angle")
    cos, sin = scale * np.cos(turn), scale * np.sin(turn)
    # With y down, this turns from right towards down: clockwise.
    return frames_from_affine(_points(xy, count), np.stack([cos, -sin, sin, cos], 1).reshape(-1, 2, 2))


def frames_from_affine(xy: ArrayLike, shape: ArrayLike) -> Frames:
    """Frames of any shape.

    Args:
        xy: (N, 2), centres t.
        shape: (N, 2, 2), the matrices A.

    Returns:
        (N, 2, 3).
    """
    shape = np.asarray(shape, dtype=np.float64)
    count = check_shape(shape, "N 2 2", name="shape")["N"]
    return np.concatenate([shape, _points(xy, count)[:, :, None]], axis=2).astype(np.float32)


def frames_from_lafs(lafs: Any) -> Frames:
    """Frames of kornia's local affine frames, which have the same meaning.

    Args:
        lafs: (1, N, 2, 3) or (N, 2, 3), tensor or array.

    Returns:
        (N, 2, 3), a copy.
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
    """(N, 2) centres t, as (x, y)."""
    check_shape(frames, "N 2 3", name="frames")
    return frames[:, :, 2].astype(np.float32)


def scales(frames: NDArray[np.floating]) -> NDArray[np.float32]:
    """(N,) √|det A|: half the side of the square that has the frame's area."""
    area = np.abs(np.linalg.det(_shape(frames)))
    return np.asarray(np.sqrt(area), dtype=np.float32)


def angles(frames: NDArray[np.floating]) -> NDArray[np.float32]:
    """(N,) degrees in [−180, 180], clockwise: where the patch's right lies in the image (the first column of A)."""
    right = _shape(frames)[:, :, 0]
    return np.degrees(np.arctan2(right[:, 1], right[:, 0])).astype(np.float32)


def resize_frames(frames: Frames, factor: float) -> Frames:
    """Frames (N, 2, 3) around the same centres, `factor` times as wide."""
    return frames * np.array([factor, factor, 1], np.float32)


def transform_frames(frames: NDArray[np.floating], homography: ArrayLike) -> Frames:
    """Carry frames to another image by a homography, linearised at each centre.

    A centre that the homography sends to infinity gives a frame that is not finite, and `inside` is
    false for it.

    Args:
        frames: (N, 2, 3).
        homography: (3, 3), x₁ ~ H·x₀.

    Returns:
        (N, 2, 3).
    """
    matrix = np.asarray(homography, dtype=np.float64)
    check_shape(matrix, "3 3", name="homography")
    shape, xy = _shape(frames), frames[:, :, 2].astype(np.float64)
    projected = xy @ matrix[:, :2].T + matrix[:, 2]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        depth = projected[:, 2, None]
        image = projected[:, :2] / depth
        # Quotient rule on x₁ = (H₁·x₀) / (H₃·x₀): the slope is (H₁ − x₁·H₃) / (H₃·x₀).
        jacobian = (matrix[:2, :2] - image[:, :, None] * matrix[2, :2]) / depth[:, :, None]
        return frames_from_affine(image, jacobian @ shape)


def _points(xy: ArrayLike, count: int) -> Floats:
    points = np.asarray(xy, dtype=np.float64)
    # An empty list has lost its second axis.
    points = points.reshape(-1, 2) if points.size == 0 else points
    check_shape(points, f"{count} 2", name="xy")
    return points


def _shape(frames: NDArray[np.floating]) -> Floats:
    check_shape(frames, "N 2 3", name="frames")
    return frames[:, :, :2].astype(np.float64)
