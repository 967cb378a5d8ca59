"""Descriptors of OpenCV, computed on patches.

They see the patches that a network sees, no more. It costs them a little: SIFT of a 32×32 patch has a cosine of about
0.97 with SIFT of the photo that the patch was cut from, and `colmap-sift` shows what it is worth on the photo itself.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from doap.errors import ArgumentError, check_shape
from doap.networks import Kind

# Tiles of so many patches are made together; a thread is worth its start for as many.
_AT_ONCE = 64


class Peer:
    """A descriptor of OpenCV, computed for one keypoint in the middle of each patch.

    Each patch is sampled anew as a tile, in which the engine finds what it was made for: the patch enlarged or reduced
    to `side` pixels, around it the pixels of its border as far as the engine reads, and the keypoint on a whole pixel,
    for most engines round it to one. Patches are described one by one: engines that blur or diffuse a whole image would
    let patches see each other in a mosaic of them, and those that take long take as long with a mosaic.

    Args:
        name: its name in `doap.peers.PEERS`.
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
        self._middle, self._keypoint_size = tile // 2, keypoint_size
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
        threads = min(torch.get_num_threads(), 1 + count // _AT_ONCE)
        with ThreadPoolExecutor(threads) as pool:
            described = list(pool.map(self._describe_in_turn, patches.detach().cpu().tensor_split(threads)))
        return self._finish(torch.cat(described))

    def _describe_in_turn(self, patches: Tensor) -> Tensor:
        """(N, 1, S, S) → (N, D) or (N, D/8) as the engine has it."""
        import cv2

        binary = self.kind == "binary"
        described = np.zeros((len(patches), self.dim // 8 if binary else self.dim), np.uint8 if binary else np.float32)
        # AKAZE reads the number of its level in `class_id`, and without one it ends the process.
        keypoint = cv2.KeyPoint(
            self._middle, self._middle, self._keypoint_size, angle=0, response=0, octave=0, class_id=0
        )
        engine = self._create()
        rows = iter(described)
        for some in patches.split(_AT_ONCE):
            pixels = (some[:, 0].float() * 255).round().clamp(0, 255)
            tiles = (self._weights @ pixels @ self._weights.T).round().to(torch.uint8).numpy()
            for tile in tiles:
                next(rows)[:] = engine.compute(tile, [keypoint])[1][0]
        return torch.from_numpy(described)


def _resampling(patch_size: int, side: int, tile: int) -> Tensor:
    """(T, S) weights that make T pixels of S: linear, or wider when the patch gets smaller; the border is repeated."""
    place = (torch.arange(tile) - (tile - 1) / 2) * patch_size / side + (patch_size - 1) / 2
    apart = (place.clamp(0, patch_size - 1)[:, None] - torch.arange(patch_size)).abs()
    weights = (1 - apart / max(1, patch_size / side)).clamp(min=0)
    return weights / weights.sum(dim=1, keepdim=True)
