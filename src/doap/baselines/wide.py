"""A baseline on wider patches, to separate the effect of patch width from that of the descriptor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from doap.baselines.opencv import OpenCVBaseline
from doap.baselines.real import rootsift
from doap.describer import ShowsSettings
from doap.images import Pyramid, resize_frames


class WideBaseline(ShowsSettings):
    """A baseline that describes a region `extent` times as wide as the detector's frame.

    Args:
        baseline: Baseline to run on the wider region.
        extent: Side of the region, divided by the side of the frame.
        name: Name in tables.
    """

    def __init__(self, baseline: OpenCVBaseline, extent: float, name: str) -> None:
        self._baseline, self.extent, self.name = baseline, extent, name
        self.kind, self.dim, self.patch_size = baseline.kind, baseline.dim, baseline.patch_size

    def describe(self, patches: Tensor) -> Tensor:
        """Describe patches (N, 1, S, S) that already show the wider region."""
        return self._baseline.describe(patches)

    def describe_frames(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> Tensor:
        """Describe frames (N, 2, 3) of a grey image, enlarged by `extent`."""
        return self._baseline.describe_frames(image, resize_frames(frames, self.extent))

    def compute_natively(self, image: NDArray[np.uint8], keypoints: Sequence[Any]) -> NDArray[Any]:
        """Describe all keypoints of an image with one call of OpenCV, for timing; see `OpenCVBaseline`."""
        wide = [
            cv2.KeyPoint(one.pt[0], one.pt[1], self.extent * one.size, one.angle, one.response, one.octave, 0)
            for one in keypoints
        ]
        return self._baseline.compute_natively(image, wide)


def rootsift_wide() -> WideBaseline:
    """RootSIFT at 1.5 times its support: what wider patches alone change."""
    return WideBaseline(rootsift(), 1.5, "rootsift-wide")
