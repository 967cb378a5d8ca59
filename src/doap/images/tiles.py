"""Overlapping tiles of a large image, so that a detector needs memory for one tile only.

Tiles exist at full resolution and at every second, fourth, … pixel, as in the octaves of SIFT. A keypoint belongs to
the finest resolution at which its surroundings fit into the overlap of the tiles, and to the tile whose core contains
its centre. It is therefore found once, with all the pixels that an untiled detector would see. Only a keypoint whose
size is at the limit between two resolutions, where its size differs by rounding, may be found twice or not at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import ArgumentError
from doap.images.frames import centres
from doap.images.patches import Pyramid

MIN_TILE = 512
"""Minimum side of a tile."""
MIN_SURROUNDINGS = 1.5
"""Half the side of the surroundings that a detector sees, relative to half the side of a frame (6 σ for SIFT)."""
# Tiles begin at multiples of this number, so that their octaves contain the same pixels as those of the whole image.
_ALIGNMENT = 64

Frames = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Tile:
    """A part of an image, at one resolution.

    Attributes:
        pixels: (H, W) uint8.
        stride: Distance between its pixels, in pixels of the image.
        offset: (2,) position of its first pixel (x, y), in pixels of this resolution.
        core: Lower and upper limits (2, 2) of the centres (x, y) of its own keypoints, in its pixels.
        reach: Lower and upper limit of the surroundings of its own keypoints, in its pixels.
    """

    pixels: NDArray[np.uint8]
    stride: int
    offset: NDArray[np.int64]
    core: NDArray[np.float64]
    reach: tuple[float, float]

    def to_image(self) -> NDArray[np.float64]:
        """Return the homography (3, 3) from the pixels of the tile to those of the image."""
        x, y = self.stride * self.offset
        return np.array([[self.stride, 0, x], [0, self.stride, y], [0, 0, 1]], np.float64)

    def owns(self, frames: Frames, extent: float) -> NDArray[np.bool_]:
        """Return which keypoints (N,) belong to this tile.

        Args:
            frames: (N, 2, 3) in the pixels of the tile.
            extent: Side of the patches, divided by the side of the frames.
        """
        centre = centres(frames)
        inside = ((centre >= self.core[0]) & (centre < self.core[1])).all(axis=1)
        reach = max(extent, MIN_SURROUNDINGS) * np.abs(frames[:, :, :2]).sum(axis=2).max(axis=1, initial=0)
        return np.asarray(inside & (reach > self.reach[0]) & (reach <= self.reach[1]))


def cut_tiles(image: NDArray[np.uint8], side: int) -> list[Tile]:
    """Return the tiles of an image (H, W): one if both sides are at most `side`.

    The lower resolutions take a third of the memory of the image, and three times its memory while they are made. The
    overlap of two tiles is a quarter of `side`.
    """
    if side < MIN_TILE:
        raise ArgumentError(f"tile: expected {MIN_TILE} pixels or more, got {side}.")
    margin = max(1, side // 8 // _ALIGNMENT) * _ALIGNMENT
    step = (side - 2 * margin) // _ALIGNMENT * _ALIGNMENT
    tiles, reach = [], 0.0
    # Every second level of the pyramid has half the resolution.
    for octave, level in enumerate(Pyramid(image).levels[::2] if max(image.shape) > side else [image]):
        last = max(level.shape) <= side
        limits = (reach, math.inf if last else float(margin))
        corners = [(0, 0)] if last else product(*(range(0, length, step) for length in level.shape))
        tiles += [_cut(level, 1 << octave, top, left, step, margin, limits) for top, left in corners]
        if last:
            break
        reach = margin / 2
    return tiles


def _cut(
    level: NDArray[np.uint8], stride: int, top: int, left: int, step: int, margin: int, reach: tuple[float, float]
) -> Tile:
    """Return the tile whose core begins at a pixel of a level. The outer cores extend beyond the image."""
    size = np.array(level.shape[::-1])
    begin = np.array([left, top])
    whole = math.isinf(reach[1])
    first = np.maximum(begin - margin, 0)
    end = size if whole else np.minimum(begin + step + margin, size)
    lower = np.where(begin == 0, -np.inf, begin - 0.5)
    upper = np.where(whole | (begin + step >= size), np.inf, begin + step - 0.5)
    pixels = level[first[1] : end[1], first[0] : end[0]]
    return Tile(pixels, stride, first, np.stack([lower, upper]) - first, reach)
