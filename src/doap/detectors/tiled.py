"""Detect keypoints in the tiles of a large image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from doap.detectors.detector import Detector
from doap.images import transform_frames
from doap.images.tiles import Tile

Frames = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class TiledFrames:
    """Keypoints of an image that were detected in tiles.

    Attributes:
        frames: (N, 2, 3) in the pixels of the image.
        responses: (N,), strongest first.
        tile: (N,) number of the tile of each keypoint.
        local: (N, 2, 3) frames in the pixels of the tile.
    """

    frames: Frames
    responses: NDArray[np.float32]
    tile: NDArray[np.intp]
    local: Frames

    def select(self, rows: NDArray[np.intp]) -> TiledFrames:
        """Return some of the keypoints."""
        return TiledFrames(self.frames[rows], self.responses[rows], self.tile[rows], self.local[rows])


def detect_in_tiles(detector: Detector, tiles: Sequence[Tile], extent: float) -> TiledFrames:
    """Detect all keypoints of an image, one tile at a time, and sort them, strongest first.

    Args:
        detector: Detector. If its responses are sizes in pixels, its attribute `ranks_by_size` is true.
        tiles: Tiles from `cut_tiles`.
        extent: Side of the patches, divided by the side of the frames.
    """
    local, frames, responses = [], [], []
    for tile in tiles:
        found, strength = detector.detect(tile.pixels)
        own = tile.owns(found, extent)
        local.append(found[own])
        frames.append(transform_frames(found[own], tile.to_image()))
        responses.append(strength[own] * (tile.stride if getattr(detector, "ranks_by_size", False) else 1))
    counts = [len(found) for found in local]
    number = np.repeat(np.arange(len(tiles)), counts)
    together = TiledFrames(np.concatenate(frames), np.concatenate(responses), number, np.concatenate(local))
    # Equal responses are sorted by position, so that the order does not depend on the tiles.
    x, y = together.frames[:, :, 2].T
    return together.select(np.lexsort((y, x, -together.responses)))
