"""Descriptors of OpenCV, of patches or of frames of a photo.

Of a patch they see what a network sees, no more. It costs them something: SIFT shares gradients of half a bin beyond
its 4×4 bins, so it looks at a quarter more than the patch. Of a frame of a photo they see all that they look at, at the
resolution they were made for, which is how they are used.
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

from doap.checks import check_shape
from doap.errors import ArgumentError
from doap.images import Pyramid, extract_patches
from doap.types import Kind

# Tiles of so many patches are made together; a thread is worth its start for as many.
_AT_ONCE = 64


class OpenCVBaseline:
    """A descriptor of OpenCV, computed for one keypoint in the middle of a tile.

    In a tile the engine finds what it was made for: the patch with `side` pixels, as much around it as the engine
    reads, and the keypoint on a whole pixel, for most engines round it to one. A tile is cut out of the photo, or made
    of a patch by repeating its border. Tiles are described one by one: engines that blur or diffuse a whole image would
    let patches see each other in a mosaic of them, and those that take long take as long with a mosaic.

    Args:
        name: its name in `doap.baselines.BASELINES`.
        create: makes the engine, a `cv2.Feature2D`; one for each thread.
        dim: D.
        kind: `real` or `binary`.
        patch_size: S.
        side: pixels of the tile that the patch spans.
        tile: pixels of a side of the tile. If it is odd, the middle of the patch is the keypoint's pixel. If it is
            even, the middle is the corner before it, for engines whose pattern of n pixels goes from −n/2 to n/2 − 1.
        keypoint_size: the `KeyPoint.size` with which the engine looks at the `side` pixels.
        finish: what becomes of the numbers of the engine, (N, D) → (N, D).
    """

    extent = 1.0

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
        finish: Callable[[Tensor], Tensor] = lambda described: described,
    ) -> None:
        if patch_size < 8:
            raise ArgumentError(f"patch_size: expected 8 pixels or more, got {patch_size}")
        self.name, self.dim, self.patch_size = name, dim, patch_size
        self.kind: Kind = kind
        self._create, self._finish = create, finish
        self._side, self._tile, self._keypoint_size = side, tile, keypoint_size
        self._weights = _resampling(patch_size, side, tile)
        # A person wants to know that there is no such engine before the first patch.
        create()

    def describe(self, patches: Tensor) -> Tensor:
        """Describe patches, with as many threads as torch uses.

        Args:
            patches: (N, 1, S, S) floats in 0…1, on any device; rounded to 8 bits, as OpenCV wants them. N may be 0.

        Returns:
            (N, D) float32 or (N, D/8) uint8, on the CPU. A flat patch is zeros if the descriptor is made of gradients.
        """
        count = check_shape(patches, f"N 1 {self.patch_size} {self.patch_size}", name="patches")["N"]
        if not patches.is_floating_point():
            raise ArgumentError(f"patches: expected floats in 0…1, got {patches.dtype}; divide by 255")
        parts = patches.detach().cpu().split(_AT_ONCE)
        return self._in_threads([partial(self._tiles, some) for some in parts], count)

    def describe_frames(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> Tensor:
        """As `describe`, of frames (N, 2, 3) of a grey image, of which all that the engine looks at is cut out."""
        wide = frames.copy()
        wide[:, :, :2] *= self._tile / self._side
        pyramid = image if isinstance(image, Pyramid) else Pyramid(image)
        parts = [wide[start : start + _AT_ONCE] for start in range(0, len(wide), _AT_ONCE)]
        return self._in_threads([partial(extract_patches, pyramid, some, self._tile) for some in parts], len(frames))

    def _tiles(self, patches: Tensor) -> NDArray[np.uint8]:
        """(n, T, T) of patches (n, 1, S, S)."""
        pixels = (patches[:, 0].float() * 255).round().clamp(0, 255)
        tiles: NDArray[np.uint8] = (self._weights @ pixels @ self._weights.T).round().to(torch.uint8).numpy()
        return tiles

    def _in_threads(self, parts: Sequence[Callable[[], NDArray[np.uint8]]], count: int) -> Tensor:
        """Describe `count` tiles, of which each part makes some, with as many threads as torch uses."""
        binary = self.kind == "binary"
        described = np.zeros((count, self.dim // 8 if binary else self.dim), np.uint8 if binary else np.float32)
        threads = max(1, min(torch.get_num_threads(), len(parts)))
        with ThreadPoolExecutor(threads) as pool:
            # Each thread has an engine of its own, and every so many-th part.
            for _ in pool.map(lambda first: self._fill(described, parts, first, threads), range(threads)):
                pass
        return self._finish(torch.from_numpy(described))

    def _fill(
        self, described: NDArray[Any], parts: Sequence[Callable[[], NDArray[np.uint8]]], first: int, step: int
    ) -> None:
        """Write the descriptors of the parts first, first + step, … to their rows."""
        import cv2

        # AKAZE reads the number of its level in `class_id`, and without one it ends the process.
        keypoint = cv2.KeyPoint(
            self._tile // 2, self._tile // 2, self._keypoint_size, angle=0, response=0, octave=0, class_id=0
        )
        engine = self._create()
        for number in range(first, len(parts), step):
            for row, tile in enumerate(parts[number](), start=number * _AT_ONCE):
                described[row] = engine.compute(tile, [keypoint])[1][0]


def _resampling(patch_size: int, side: int, tile: int) -> Tensor:
    """(T, S) weights that make T pixels of S: linear, or wider when the patch gets smaller; the border is repeated."""
    place = (torch.arange(tile) - (tile - 1) / 2) * patch_size / side + (patch_size - 1) / 2
    apart = (place.clamp(0, patch_size - 1)[:, None] - torch.arange(patch_size)).abs()
    weights = (1 - apart / max(1, patch_size / side)).clamp(min=0)
    return weights / weights.sum(dim=1, keepdim=True)
