"""SIFT as COLMAP describes it, also pooled over domain sizes (Dong and Soatto, 2015).

COLMAP describes its own keypoints only, and from the photo. So these are the peers that patches are not enough for.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from doap.checks import check_shape
from doap.detectors import ColmapDetector, colmap
from doap.detectors.colmap import colmap_frames, colmap_sift
from doap.errors import ArgumentError
from doap.images import Pyramid
from doap.types import Kind


class ColmapBaseline:
    """RootSIFT of COLMAP's own keypoints.

    Args:
        name: its name in `doap.baselines.BASELINES`.
        scales: domain sizes that are pooled.
    """

    dim = 128
    kind: Kind = "real"
    extent = 1.0
    # Nothing is cut out; it is the size for those who cut patches for all.
    patch_size = 32

    def __init__(self, name: str, scales: int) -> None:
        self.name, self._scales = name, scales

    @property
    def detector(self) -> ColmapDetector:
        """The only one whose frames it knows."""
        return colmap()

    def describe(self, patches: Tensor) -> NoReturn:
        """Not possible."""
        raise ArgumentError(
            f"{self.name}: expected a photo, got {len(patches)} patches; it describes keypoints of COLMAP in the photo "
            "itself, so judge it on image sequences with --detector colmap"
        )

    def describe_frames(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> Tensor:
        """(N, 128) unit rows of frames (N, 2, 3) that `detector` found in this very image (height, width)."""
        check_shape(frames, "N 2 3", name="frames")
        pixels = image.levels[0] if isinstance(image, Pyramid) else image
        enough = None
        rows, keypoints, descriptors = self._rows(pixels, frames, 1)
        if -1 in rows:
            # Where COLMAP stops at so many keypoints, it has not seen the finer ones that would take the place of some.
            enough = len(frames)
            rows, keypoints, descriptors = self._rows(pixels, frames, 1, enough)
        if -1 in rows:
            raise ArgumentError(
                f"{self.name}: expected frames that COLMAP finds in the image, got {rows.count(-1)} others of "
                f"{len(rows)}; detect them with --detector colmap"
            )
        if self._scales > 1:
            # Pooling takes long. COLMAP has the largest first, level by level, and neighbouring levels overlap in size.
            smallest = keypoints[rows, 2].min(initial=np.inf)
            enough = enough or int((keypoints[:, 2] >= smallest / 1.5).sum())
            rows, _, descriptors = self._rows(pixels, frames, self._scales, enough)
        assert -1 not in rows, "however many scales are pooled, the keypoints are the same"
        # COLMAP has rounded them to whole 512ths.
        return normalize(torch.from_numpy(descriptors[np.array(rows, np.int64)]))

    def _rows(
        self, pixels: NDArray[np.uint8], frames: NDArray[np.float32], scales: int, max_keypoints: int | None = None
    ) -> tuple[list[int], NDArray[np.float32], NDArray[np.float32]]:
        """Where each frame is among COLMAP's keypoints, −1 for one that is not; the keypoints; their descriptors."""
        keypoints, descriptors = colmap_sift(pixels, scales, max_keypoints)
        own = colmap_frames(keypoints, self.detector.magnification)
        row_of = {frame.tobytes(): row for row, frame in enumerate(own)}
        return [row_of.get(frame.tobytes(), -1) for frame in frames.astype(np.float32)], keypoints, descriptors


def dsp_sift() -> ColmapBaseline:
    """RootSIFT pooled over ten domain sizes, from a sixth of SIFT's to three times it, as COLMAP has them."""
    return ColmapBaseline("dsp-sift", 10)


def colmap_rootsift() -> ColmapBaseline:
    """The same without pooling: what pooling gains is the difference of the two."""
    return ColmapBaseline("colmap-sift", 1)
