"""Patches from an image: each frame is sampled at S×S points, from a copy of the image blurred to suit its scale."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.checks import check_shape
from doap.errors import ArgumentError

Image = NDArray[Any]

# cv2.remap counts pixels in 16 bits, in what it reads as in what it writes.
_LONGEST_SIDE = 32766
_TILE = 16384
# Maps of about this many samples stay in the cache between being made and being read.
_SAMPLES_AT_ONCE = 1 << 17
# The blur of a photograph, in its pixels: what SIFT supposes too.
_SIGMA = 0.5


class Pyramid:
    """An image in ever coarser copies, two to the octave; made once, good for any number of calls.

    Level k is blurred to σ = 0.5·2^(k/2) pixels of the image, and holds every 2^⌊k/2⌋-th pixel in
    each direction. So a level always has a blur of 0.5 to 0.71 of its own pixels, as a sharp
    photograph has. Pixel 0 stays pixel 0: coordinates are divided by `stride(k)` and there is no
    half pixel to remember.

    Args:
        image: (height, width), uint8 or float32. The levels have its type.

    Attributes:
        levels: the copies, the image itself first.
    """

    def __init__(self, image: Image) -> None:
        height, width = check_shape(image, "height width", name="image").values()
        if image.dtype not in (np.uint8, np.float32):
            raise ArgumentError(f"image: expected uint8 or float32, got {image.dtype}; convert it first")
        if not height or not width:
            raise ArgumentError(f"image: expected one pixel or more, got {height}×{width}")
        self.levels = [np.ascontiguousarray(image)]
        for level in range(1, 2 * int(math.log2(max(height, width))) + 1):
            self.levels.append(_coarser(self.levels[-1], halve=level % 2 == 0))

    @staticmethod
    def stride(level: int) -> int:
        """How many pixels of the image lie between two of a level."""
        return 1 << (level // 2)


def extract_patches(image: Image | Pyramid, frames: NDArray[np.floating], size: int = 32) -> Image:
    """Sample the patch of each frame.

    Samples stand at the pixel centres of an S×S grid over [−1, 1]²: u_i = (2i + 1)/S − 1. Their
    distance in the image decides the level of the pyramid, and for a frame that is not square it is
    the longer one, after the largest singular value of A: the patch may lose detail across, but
    nothing is sampled too thinly, for blur only hides and aliasing invents. Where a frame leaves
    the image, the pixel at the border is repeated.

    Args:
        image: (height, width), uint8 or float32, or its `Pyramid`.
        frames: (N, 2, 3).
        size: S.

    Returns:
        (N, S, S) of the image's type; uint8 is rounded.
    """
    count = check_shape(frames, "N 2 3", name="frames")["N"]
    if not 1 <= size <= _TILE // 4:
        raise ArgumentError(f"size: expected 1 to {_TILE // 4} pixels, got {size}")
    lost = count - int(np.isfinite(frames).all(axis=(1, 2)).sum())
    if lost:
        raise ArgumentError(f"frames: expected finite numbers, got {lost} frames with others; keep those `inside`")
    pyramid = image if isinstance(image, Pyramid) else Pyramid(image)
    precise = frames.astype(np.float64)
    level_of = _levels(precise, size, len(pyramid.levels))
    patches = np.empty((count, size, size), pyramid.levels[0].dtype)
    for level in np.unique(level_of):
        chosen = np.flatnonzero(level_of == level)
        _sample(pyramid.levels[level], precise[chosen] / pyramid.stride(level), chosen, patches)
    return patches


def resize_patches(patches: NDArray[Any], size: int) -> NDArray[Any]:
    """(N, S, S) → (N, size, size) of the same type, each new pixel the mean of the area it covers."""
    import cv2

    resized = np.empty((len(patches), size, size), patches.dtype)
    for patch, out in zip(patches, resized, strict=True):
        out[:] = cv2.resize(patch, (size, size), interpolation=cv2.INTER_AREA)
    return resized


def inside(frames: NDArray[np.floating], height: int, width: int, margin: float = 0.0) -> NDArray[np.bool_]:
    """Whether all four corners of each frame lie in the image.

    Pixels are squares around their centres, so an image reaches from −0.5 to width − 0.5, and the
    frame of the whole image is inside it. A frame that is not finite is not.

    Args:
        frames: (N, 2, 3).
        height, width: of the image.
        margin: pixels to keep from the border; negative to allow frames to leave a little.

    Returns:
        (N,) bool.
    """
    check_shape(frames, "N 2 3", name="frames")
    # The corners are t ± (first column) ± (second column).
    reach = np.abs(frames[:, :, :2]).sum(axis=2, dtype=np.float64) + margin
    centre = frames[:, :, 2].astype(np.float64)
    within = (centre - reach >= -0.5) & (centre + reach <= np.array([width, height]) - 0.5)
    return np.asarray(within.all(axis=1))


def _coarser(image: Image, *, halve: bool) -> Image:
    """The next level: twice the variance, so the blur to add is the blur that is there."""
    import cv2

    if not halve:
        return _blurred(image, _SIGMA)
    blurred = _blurred(image, _SIGMA * math.sqrt(2))
    # With an even side the last pixel would fall between samples; one more makes the last sample
    # stand beyond it.
    height, width = blurred.shape
    grown = cv2.copyMakeBorder(blurred, 0, 1 - height % 2, 0, 1 - width % 2, cv2.BORDER_REPLICATE)
    return np.ascontiguousarray(grown[::2, ::2])


def _blurred(image: Image, sigma: float) -> Image:
    import cv2

    return cv2.GaussianBlur(image, (0, 0), sigma, borderType=cv2.BORDER_REPLICATE)


def _levels(frames: NDArray[np.float64], size: int, count: int) -> NDArray[np.intp]:
    """(N,) the level whose blur is nearest to half the distance of samples: level 2·log₂(step), rounded."""
    (a, b), (c, d) = frames[:, :, :2].transpose(1, 2, 0)
    # The largest singular value of [[a, b], [c, d]], in closed form.
    largest = (np.hypot(a + d, b - c) + np.hypot(a - d, b + c)) / 2
    step = np.maximum(largest * 2 / size, 1)
    return np.asarray(np.minimum(np.rint(2 * np.log2(step)), count - 1), dtype=np.intp)


def _sample(image: Image, frames: NDArray[np.float64], places: NDArray[np.intp], patches: Image) -> None:
    """Sample frames, given in the coordinates of `image`, bilinearly, into their places among the patches."""
    import cv2

    size = patches.shape[1]
    at_once = max(1, min(_SAMPLES_AT_ONCE // size**2, _LONGEST_SIDE // size))
    u = (2 * np.arange(size) + 1) / size - 1
    grid = np.stack([*(axis.ravel() for axis in np.meshgrid(u, u)), np.ones(size * size)]).astype(np.float32)
    for members, crop, offset in _crops(image, frames):
        local = frames[members] - offset
        for first in range(0, len(members), at_once):
            some = local[first : first + at_once].astype(np.float32)
            x, y = (np.clip(some[:, axis] @ grid, 0, crop.shape[1 - axis] - 1).reshape(-1, size) for axis in (0, 1))
            sampled = cv2.remap(crop, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
            patches[places[members[first : first + at_once]]] = sampled.reshape(-1, size, size)


def _crops(image: Image, frames: NDArray[np.float64]) -> Iterator[tuple[NDArray[np.intp], Image, NDArray[np.float64]]]:
    """Parts of an image that cv2.remap can read, each with the frames to sample there and what moves them to it."""
    everything = np.arange(len(frames))
    if max(image.shape) <= _LONGEST_SIDE:
        yield everything, image, np.zeros((2, 3))
        return
    height, width = image.shape
    tile_of = (np.clip(frames[:, :, 2], 0, [width - 1, height - 1]) // _TILE).astype(np.intp)
    for tile in np.unique(tile_of, axis=0):
        # Samples are at most about a level's pixel apart, so a patch reaches less than half a tile
        # over its centre.
        left, top = np.maximum(tile * _TILE - _TILE // 2 + 1, 0)
        crop = image[top : top + 2 * _TILE - 2, left : left + 2 * _TILE - 2]
        offset = np.array([[0, 0, left], [0, 0, top]], dtype=np.float64)
        yield everything[(tile_of == tile).all(axis=1)], crop, offset
