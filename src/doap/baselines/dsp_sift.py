"""COLMAP's SIFT, optionally pooled over domain sizes (DSP-SIFT; Dong and Soatto, 2015).

COLMAP only describes its own keypoints, and needs the image. These baselines therefore cannot
describe patches.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from doap.checks import check_shape
from doap.describer import ShowsSettings
from doap.detectors import ColmapDetector, colmap
from doap.detectors.colmap import colmap_frames, colmap_sift
from doap.errors import ArgumentError
from doap.images import Pyramid
from doap.types import Kind


class ColmapBaseline(ShowsSettings):
    """RootSIFT of COLMAP's own keypoints.

    Args:
        name: Name in `doap.baselines.BASELINES`.
        scales: Number of domain sizes to pool.
    """

    dim = 128
    kind: Kind = "real"
    extent = 1.0
    # No patches are cut; this is the size for callers that cut patches for all descriptors.
    patch_size = 32

    def __init__(self, name: str, scales: int) -> None:
        self.name, self._scales = name, scales

    @property
    def detector(self) -> ColmapDetector:
        """COLMAP's detector, the only one whose frames can be described."""
        return colmap()

    def describe(self, patches: Tensor) -> NoReturn:
        """Raise `ArgumentError`: COLMAP cannot describe patches."""
        raise ArgumentError(
            f"{self.name}: expected an image, got {len(patches)} patches. It only describes COLMAP's "
            "keypoints of an image; use the detector colmap."
        )

    def describe_frames(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> Tensor:
        """Describe frames (N, 2, 3) that `detector` found in this image as unit rows (N, 128)."""
        check_shape(frames, "N 2 3", name="frames")
        pixels = image.levels[0] if isinstance(image, Pyramid) else image
        limit = None
        rows, keypoints, descriptors = self._rows(pixels, frames, 1)
        if -1 in rows:
            # With a limit, COLMAP stops before the finer keypoints that would have replaced some of
            # these.
            limit = len(frames)
            rows, keypoints, descriptors = self._rows(pixels, frames, 1, limit)
        if -1 in rows:
            raise ArgumentError(
                f"{self.name}: expected frames that COLMAP detects in the image, got {rows.count(-1)} "
                f"of {len(rows)} that it does not. Use the detector colmap."
            )
        if self._scales > 1:
            # Pooling is slow. COLMAP returns the largest keypoints first, level by level, and sizes
            # overlap between levels.
            smallest = keypoints[rows, 2].min(initial=np.inf)
            limit = limit or int((keypoints[:, 2] >= smallest / 1.5).sum())
            rows, _, descriptors = self._rows(pixels, frames, self._scales, limit)
        assert -1 not in rows, "the keypoints do not depend on the number of pooled scales"
        # COLMAP rounds descriptors to multiples of 1/512.
        return normalize(torch.from_numpy(descriptors[np.array(rows, np.int64)]))

    def _rows(
        self, pixels: NDArray[np.uint8], frames: NDArray[np.float32], scales: int, max_keypoints: int | None = None
    ) -> tuple[list[int], NDArray[np.float32], NDArray[np.float32]]:
        """Return the row of each frame among COLMAP's keypoints (−1 if absent), and these."""
        keypoints, descriptors = colmap_sift(pixels, scales, max_keypoints)
        own = colmap_frames(keypoints, self.detector.magnification)
        row_of = {frame.tobytes(): row for row, frame in enumerate(own)}
        return [row_of.get(frame.tobytes(), -1) for frame in frames.astype(np.float32)], keypoints, descriptors


def dsp_sift() -> ColmapBaseline:
    """Create DSP-SIFT as in COLMAP: RootSIFT pooled over ten domain sizes, 1/6 to 3 times SIFT's."""
    return ColmapBaseline("dsp-sift", 10)


def colmap_rootsift() -> ColmapBaseline:
    """Create COLMAP's RootSIFT without pooling."""
    return ColmapBaseline("colmap-sift", 1)
