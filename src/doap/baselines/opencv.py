"""Descriptors of OpenCV, for patches or for frames of an image.

Given a patch, they read the same pixels as a network. This is a disadvantage for some: SIFT reads
half a bin beyond its 4×4 bins, a quarter more than the patch. Given a frame of an image, they read
everything they need at the resolution they were designed for, as in normal use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap._support.errors import ArgumentError
from doap.describer import PatchDescriber, ShowsSettings, check_patches
from doap.images import Pyramid, extract_patches, resize_frames
from doap.types import Kind

# Patches that are resampled together, and the smallest amount of work for a thread.
_AT_ONCE = 64


class OpenCVBaseline(ShowsSettings, PatchDescriber):
    """A descriptor of OpenCV, computed for one keypoint in the centre of a tile.

    A tile is the input the engine was designed for: the patch with `side` pixels, the surroundings
    the engine reads, and the keypoint on an integer pixel, because most engines round it. A tile is
    cut from the image, or made from a patch by repeating its border. Tiles are described one by
    one. In a mosaic of tiles, engines that blur or diffuse the image would mix patches, and slow
    engines would not be faster.

    Args:
        name: Name in `doap.baselines.BASELINES`.
        create: Creates the engine, a `cv2.Feature2D`, which cannot be pickled; called once per thread.
        dim: D.
        kind: `real` or `binary`.
        patch_size: S.
        side: Side of the patch within the tile, in pixels.
        tile: Side of the tile in pixels. If it is odd, the centre of the patch is the keypoint's
            pixel. If it is even, the centre is the corner before that pixel, for engines whose
            pattern of n pixels spans −n/2 to n/2 − 1.
        keypoint_size: `KeyPoint.size` for which the engine describes the `side` pixels.
        finish: Function (N, D) → (N, D) applied to the engine's output.
        extent: Side of the described region, divided by the side of the detector's frame.
        native: Creates the engine that describes SIFT's keypoints in their octaves, for `compute_natively`; by default,
            `create` describes all of them in its first octave.
    """

    reads_image = True

    def __init__(
        self,
        name: str,
        create: Callable[[], Any],
        *,
        dim: int,
        kind: Kind,
        patch_size: int,
        side: int,
        tile: int,
        keypoint_size: float,
        finish: Callable[[Tensor], Tensor] | None = None,
        native: Callable[[], Any] | None = None,
        extent: float = 1.0,
    ) -> None:
        if patch_size < 8:
            raise ArgumentError(f"patch_size: expected 8 pixels or more, got {patch_size}")
        self.name, self.dim, self.patch_size, self.extent = name, dim, patch_size, extent
        self.kind: Kind = kind
        self._create, self._finish, self._native = create, finish, native
        self._side, self._tile, self._keypoint_size = side, tile, keypoint_size
        self._weights = _resampling(patch_size, side, tile)
        # Fails now, and not at the first patch, if OpenCV lacks the engine.
        create()

    def describe_patches(self, patches: Tensor) -> Tensor:
        """Describe patches with as many threads as torch uses.

        Args:
            patches: (N, 1, S, S) floats in 0…1, on any device; rounded to 8 bits for OpenCV. N may
                be 0.

        Returns:
            (N, D) float32 or (N, D/8) uint8 on the CPU. Gradient-based descriptors of a flat patch
            are zeros.
        """
        check_patches(patches, self.patch_size)
        parts = patches.detach().cpu().split(_AT_ONCE)
        return self._in_threads([partial(self._tiles, some) for some in parts], len(patches))

    def describe(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> Tensor:
        """Describe frames (N, 2, 3) of a grey image, with tiles cut from the image."""
        wide = resize_frames(resize_frames(frames, self.extent), self._tile / self._side)
        pyramid = image if isinstance(image, Pyramid) else Pyramid(image)
        parts = [wide[start : start + _AT_ONCE] for start in range(0, len(wide), _AT_ONCE)]
        return self._in_threads([partial(extract_patches, pyramid, some, self._tile) for some in parts], len(frames))

    def compute_natively(self, image: NDArray[np.uint8], keypoints: Sequence[Any]) -> NDArray[Any]:
        """Describe all keypoints of an image with one call of OpenCV, as in normal use.

        It is much faster than tiles and therefore what a benchmark of speed has to time. The keypoints are described
        at the scales that the engine chooses, so that the descriptors of some engines have other supports.

        Args:
            image: Grey pixels (H, W).
            keypoints: `cv2.KeyPoint` of `cv2.SIFT.detect`.

        Returns:
            (N′, D) float32 or (N′, D/8) uint8; engines drop keypoints close to the border.
        """
        # Engines other than SIFT read `octave` as an index of their own pyramid.
        given = [
            _keypoint(one.pt[0], one.pt[1], self.extent * one.size, one.angle, one.octave if self._native else 0)
            for one in keypoints
        ]
        engine = (self._native or self._create)()
        described: NDArray[Any] = engine.compute(image, given)[1]
        return described

    def _tiles(self, patches: Tensor) -> NDArray[np.uint8]:
        """Resample patches (N, 1, S, S) to tiles (N, T, T)."""
        pixels = (patches[:, 0].float() * 255).round().clamp(0, 255)
        tiles: NDArray[np.uint8] = (self._weights @ pixels @ self._weights.T).round().to(torch.uint8).numpy()
        return tiles

    def _in_threads(self, parts: Sequence[Callable[[], NDArray[np.uint8]]], count: int) -> Tensor:
        """Describe `count` tiles with as many threads as torch uses; a part returns up to 64."""
        binary = self.kind == "binary"
        described = np.zeros((count, self.dim // 8 if binary else self.dim), np.uint8 if binary else np.float32)
        threads = max(1, min(torch.get_num_threads(), len(parts)))
        with ThreadPoolExecutor(threads) as pool:
            # Each thread has its own engine. The parts are dealt out to the threads in turn.
            for _ in pool.map(lambda first: self._fill(described, parts, first, threads), range(threads)):
                pass
        rows = torch.from_numpy(described)
        return rows if self._finish is None else self._finish(rows)

    def _fill(
        self, described: NDArray[Any], parts: Sequence[Callable[[], NDArray[np.uint8]]], first: int, step: int
    ) -> None:
        """Write the descriptors of parts first, first + step, … to their rows."""
        keypoint = _keypoint(self._tile // 2, self._tile // 2, self._keypoint_size, 0)
        engine = self._create()
        for number in range(first, len(parts), step):
            for row, tile in enumerate(parts[number](), start=number * _AT_ONCE):
                described[row] = engine.compute(tile, [keypoint])[1][0]


def _keypoint(x: float, y: float, size: float, angle: float, octave: int = 0) -> Any:
    import cv2

    # AKAZE reads its pyramid level from `class_id` and terminates the process if there is none.
    return cv2.KeyPoint(x, y, size, angle=angle, response=0, octave=octave, class_id=0)


def _resampling(patch_size: int, side: int, tile: int) -> Tensor:
    """Return weights (T, S) that resample S pixels to T: linear, antialiased, border repeated."""
    position = (torch.arange(tile) - (tile - 1) / 2) * patch_size / side + (patch_size - 1) / 2
    apart = (position.clamp(0, patch_size - 1)[:, None] - torch.arange(patch_size)).abs()
    weights = (1 - apart / max(1, patch_size / side)).clamp(min=0)
    return weights / weights.sum(dim=1, keepdim=True)
