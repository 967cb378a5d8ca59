"""Sample the patches of frames from an image pyramid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap._support.checks import MAX_PATCH_SIZE, check_shape
from doap._support.errors import ArgumentError

Image = NDArray[Any]

# cv2.remap uses 16-bit pixel coordinates for its input and output.
_MAX_SIDE = 32766
# Coordinate maps of about this many samples fit the cache.
_SAMPLES_AT_ONCE = 1 << 17
# Assumed blur of a photo in pixels, as in SIFT.
_SIGMA = 0.5


class Pyramid:
    """An image pyramid with two levels per octave, for repeated calls of `extract_patches`.

    Level k is blurred to σ = 0.5·2^(k/2) pixels of the image and contains every 2^⌊k/2⌋-th pixel in
    each direction. A level therefore has a blur of 0.5 to 0.71 of its own pixels, like a sharp
    photo. Pixel 0 stays pixel 0, so coordinates are divided by `stride(k)` without an offset.

    Args:
        image: (H, W), uint8 or float32. The levels have the same type.

    Attributes:
        levels: Images of the pyramid, the input first.
    """

    def __init__(self, image: Image) -> None:
        height, width = check_shape(image, "height width", name="image").values()
        if image.dtype not in (np.uint8, np.float32):
            raise ArgumentError(f"image: expected uint8 or float32, got {image.dtype}. Convert it first.")
        if not height or not width:
            raise ArgumentError(f"image: expected at least one pixel, got {height}×{width}.")
        self.levels = [np.ascontiguousarray(image)]
        for level in range(1, 2 * int(math.log2(max(height, width))) + 1):
            self.levels.append(_coarser(self.levels[-1], halve=level % 2 == 0))

    @staticmethod
    def stride(level: int) -> int:
        """Return the distance between pixels of a level, in pixels of the image."""
        return 1 << (level // 2)


def extract_patches(image: Image | Pyramid, frames: NDArray[np.floating], size: int = 32) -> Image:
    """Sample the patch of each frame.

    Samples are at the pixel centres of an S×S grid over [−1, 1]²: u_i = (2i + 1)/S − 1. Their
    distance in the image selects the level of the pyramid. For a frame that is not square, the
    largest singular value of A decides: the patch may lose detail in one direction but has no
    aliasing. Border pixels are repeated outside the image.

    >>> from doap.images import frames_from_arrays
    >>> image = np.zeros((100, 100), np.uint8)
    >>> extract_patches(image, frames_from_arrays([[50, 50], [20, 70]], [12, 8], [0, 45])).shape
    (2, 32, 32)

    Args:
        image: (H, W), uint8 or float32, or its `Pyramid`.
        frames: (N, 2, 3).
        size: Side S of the patches in pixels.

    Returns:
        (N, S, S) of the type of the image; uint8 values are rounded.
    """
    count = check_shape(frames, "N 2 3", name="frames")["N"]
    if not 1 <= size <= MAX_PATCH_SIZE:
        raise ArgumentError(f"size: expected 1 to {MAX_PATCH_SIZE} pixels, got {size}.")
    infinite = count - int(np.isfinite(frames).all(axis=(1, 2)).sum())
    if infinite:
        raise ArgumentError(f"frames: {infinite} frames are not finite. Select frames with `inside`.")
    pyramid = image if isinstance(image, Pyramid) else Pyramid(image)
    if max(pyramid.levels[0].shape) > _MAX_SIDE:
        raise ArgumentError(f"image: expected sides of at most {_MAX_SIDE:,} pixels. Extract larger images in tiles.")
    precise = frames.astype(np.float64)
    level_of = _levels(precise, size, len(pyramid.levels))
    patches = np.empty((count, size, size), pyramid.levels[0].dtype)
    for level in np.unique(level_of):
        chosen = np.flatnonzero(level_of == level)
        _sample(pyramid.levels[level], precise[chosen] / pyramid.stride(level), chosen, patches)
    return patches


def resize_patches(patches: NDArray[Any], size: int) -> NDArray[Any]:
    """Resize patches (N, S, S) to (N, size, size) by area averaging."""
    import cv2

    resized = np.empty((len(patches), size, size), patches.dtype)
    for patch, out in zip(patches, resized, strict=True):
        out[:] = cv2.resize(patch, (size, size), interpolation=cv2.INTER_AREA)
    return resized


def _coarser(image: Image, *, halve: bool) -> Image:
    """Return the next level. Its variance doubles, so the blur to add equals the present one."""
    import cv2

    if not halve:
        return _blurred(image, _SIGMA)
    blurred = _blurred(image, _SIGMA * math.sqrt(2))
    # Padding an even side puts the last sample beyond the last pixel, not before it.
    height, width = blurred.shape
    grown = cv2.copyMakeBorder(blurred, 0, 1 - height % 2, 0, 1 - width % 2, cv2.BORDER_REPLICATE)
    return np.ascontiguousarray(grown[::2, ::2])


def _blurred(image: Image, sigma: float) -> Image:
    import cv2

    return cv2.GaussianBlur(image, (0, 0), sigma, borderType=cv2.BORDER_REPLICATE)


def _levels(frames: NDArray[np.float64], size: int, count: int) -> NDArray[np.intp]:
    """Return the levels (N,) whose blur is nearest to half the sample distance: 2·log₂(step)."""
    (a, b), (c, d) = frames[:, :, :2].transpose(1, 2, 0)
    # Largest singular value of [[a, b], [c, d]] in closed form.
    largest = (np.hypot(a + d, b - c) + np.hypot(a - d, b + c)) / 2
    step = np.maximum(largest * 2 / size, 1)
    return np.asarray(np.minimum(np.rint(2 * np.log2(step)), count - 1), dtype=np.intp)


def _sample(image: Image, frames: NDArray[np.float64], rows: NDArray[np.intp], patches: Image) -> None:
    """Sample frames, in coordinates of `image`, bilinearly into these rows of the patches."""
    import cv2

    size = patches.shape[1]
    at_once = max(1, min(_SAMPLES_AT_ONCE // size**2, _MAX_SIDE // size))
    u = (2 * np.arange(size) + 1) / size - 1
    right, down = np.meshgrid(u, u)
    grid = np.stack([right.ravel(), down.ravel(), np.ones(size * size)]).astype(np.float32)
    height, width = image.shape
    for first in range(0, len(frames), at_once):
        some = frames[first : first + at_once].astype(np.float32)
        x = np.clip(some[:, 0] @ grid, 0, width - 1).reshape(-1, size)
        y = np.clip(some[:, 1] @ grid, 0, height - 1).reshape(-1, size)
        sampled = cv2.remap(image, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        patches[rows[first : first + at_once]] = sampled.reshape(-1, size, size)
