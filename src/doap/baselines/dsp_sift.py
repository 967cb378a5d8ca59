"""COLMAP's SIFT, optionally pooled over domain sizes (DSP-SIFT; Dong and Soatto, 2015).

COLMAP only describes its own keypoints, and needs the image. These baselines are therefore extractors.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from doap._support.checks import check_shape
from doap._support.errors import ArgumentError
from doap.describer import DEFAULT_RATIO, ShowsSettings
from doap.detectors import colmap
from doap.detectors.colmap import colmap_frames, colmap_sift
from doap.extractor import KeypointExtractor
from doap.images import Pyramid
from doap.types import Kind


class ColmapSift(ShowsSettings):
    """RootSIFT of COLMAP's own keypoints, pooled over a number of domain sizes: a `Describer`."""

    dim = 128
    kind: Kind = "real"
    extent = 1.0
    ratio = DEFAULT_RATIO

    def __init__(self, name: str, scales: int) -> None:
        self.name, self._scales = name, scales

    def describe(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> Tensor:
        """Describe frames (N, 2, 3) that the detector `colmap` found in this image as unit rows (N, 128)."""
        check_shape(frames, "N 2 3", name="frames")
        pixels = image.levels[0] if isinstance(image, Pyramid) else image
        # With a limit, COLMAP stops before the finer keypoints that would have replaced some of these.
        for limit in (None, len(frames)):
            rows, keypoints, descriptors = _rows(pixels, frames, 1, limit)
            if -1 not in rows:
                break
        else:
            raise ArgumentError(
                f"{self.name}: expected frames that COLMAP detects in the image, got {rows.count(-1)} "
                f"of {len(rows)} that it does not. Use the detector colmap."
            )
        if self._scales > 1:
            # Pooling is slow. COLMAP returns the largest keypoints first, level by level, and sizes
            # overlap between levels.
            smallest = keypoints[rows, 2].min(initial=np.inf)
            limit = limit or int((keypoints[:, 2] >= smallest / 1.5).sum())
            rows, _, descriptors = _rows(pixels, frames, self._scales, limit)
        assert -1 not in rows, "the keypoints do not depend on the number of pooled scales"
        # COLMAP rounds descriptors to multiples of 1/512.
        return normalize(torch.from_numpy(descriptors[np.array(rows, np.int64)]))

    def fingerprint(self) -> str:
        """Return a checksum of the descriptors of a fixed image."""
        random = np.random.Generator(np.random.PCG64(0))
        image = random.integers(0, 256, (16, 16), np.uint8).repeat(8, axis=0).repeat(8, axis=1)
        described = self.describe(image, colmap().detect(image, 16)[0])
        # The constant 32 is part of the fingerprints in published results.
        return hashlib.sha256(f"{self.kind} {self.dim} 32 ".encode() + described.numpy().tobytes()).hexdigest()


def _rows(
    pixels: NDArray[np.uint8], frames: NDArray[np.float32], scales: int, max_keypoints: int | None = None
) -> tuple[list[int], NDArray[np.float32], NDArray[np.float32]]:
    """Return the row of each frame among COLMAP's keypoints (−1 if absent), and these."""
    keypoints, descriptors = colmap_sift(pixels, scales, max_keypoints)
    own = colmap_frames(keypoints, colmap().magnification)
    row_of = {frame.tobytes(): row for row, frame in enumerate(own)}
    return [row_of.get(frame.tobytes(), -1) for frame in frames.astype(np.float32)], keypoints, descriptors


def dsp_sift() -> KeypointExtractor:
    """Create DSP-SIFT as in COLMAP: RootSIFT pooled over ten domain sizes, 1/6 to 3 times SIFT's."""
    return KeypointExtractor(ColmapSift("dsp-sift", 10), colmap())


def colmap_rootsift() -> KeypointExtractor:
    """Create COLMAP's RootSIFT without pooling."""
    return KeypointExtractor(ColmapSift("colmap-sift", 1), colmap())
