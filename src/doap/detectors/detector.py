"""The detector interface: a grey image in, frames of its keypoints out."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]
DetectedFrames = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Frames (N, 2, 3) and responses (N,)."""


@runtime_checkable
class Detector(Protocol):
    """Interface of all detectors.

    Attributes:
        name: Name in `DETECTORS`.
        magnification: Patch side relative to the detector's own measure of size.
    """

    @property
    def name(self) -> str: ...

    @property
    def magnification(self) -> float: ...

    def detect(self, image: Image, max_keypoints: int | None = None) -> DetectedFrames:
        """Detect keypoints, strongest first.

        Args:
            image: (H, W) uint8, grey.
            max_keypoints: Maximum number of keypoints; None returns all.

        Returns:
            Frames (N, 2, 3) and responses (N,), both float32.
        """
        ...
