"""HashSIFT: bits of a learned linear projection of SIFT (Suárez et al., 2021)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap._support.errors import ArgumentError
from doap.baselines.opencv import sift
from doap.describer import PatchDescriber, ShowsSettings
from doap.images import Pyramid
from doap.metrics import pack_bits
from doap.types import Kind


class HashSIFT(ShowsSettings, PatchDescriber):
    """The signs of a projection of SIFT.

    Args:
        projection: (D, 129): a bias and 128 weights for each bit.
    """

    reads_image = True
    kind: Kind = "binary"
    # HashSIFT crops 6.75 keypoint sizes; a frame is 6 sizes wide.
    extent = 6.75 / 6
    name = "hashsift"

    @staticmethod
    def recognise(content: object) -> bool:
        """Return whether the content of a file is a projection: floats (D, 129), with D a multiple of 8."""
        if not isinstance(content, np.ndarray) or content.ndim != 2 or not np.issubdtype(content.dtype, np.floating):
            return False
        return bool(len(content)) and len(content) % 8 == 0 and content.shape[1] == 129

    def __init__(self, projection: NDArray[np.floating]) -> None:
        if not np.isfinite(projection).all():
            raise ArgumentError("projection: expected finite numbers, got NaN or infinity.")
        self._sift = sift(extent=self.extent)
        self.dim, self.patch_size = len(projection), self._sift.patch_size
        self._bias = torch.from_numpy(projection[:, 0].astype(np.float32))
        self._weights = torch.from_numpy(projection[:, 1:].astype(np.float32))

    def describe_patches(self, patches: Tensor) -> Tensor:
        """Describe patches (N, 1, 32, 32) as (N, D/8) uint8."""
        return self._binarise(self._sift.describe_patches(patches))

    def describe(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> Tensor:
        """Describe frames (N, 2, 3) of a grey image as (N, D/8) uint8."""
        return self._binarise(self._sift.describe(image, frames))

    def _binarise(self, described: Tensor) -> Tensor:
        # The projection was learned on OpenCV's SIFT, whose vectors have a length of about 512.
        return pack_bits(512 * described @ self._weights.T + self._bias)
