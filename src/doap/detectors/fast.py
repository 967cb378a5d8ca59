"""OpenCV's FAST: corners at a single scale."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from doap.detectors.detector import Image, OpenCVDetector

if TYPE_CHECKING:
    import cv2


def fast(threshold: int = 20, magnification: float = 3.5) -> OpenCVDetector:
    """Return a detector of corners without scale or orientation, whose patches are upright and of one size.

    Use it for video, or images of one upright camera. `orb` finds the same corners with scale and
    orientation.

    Args:
        threshold: Minimum difference in grey levels between a corner and the ring around it.
        magnification: Patch side relative to `KeyPoint.size`, which is always 7 pixels.
    """
    return OpenCVDetector("fast", partial(_find, threshold=threshold), magnification)


def _find(image: Image, threshold: int) -> Sequence[cv2.KeyPoint]:
    import cv2

    return cv2.FastFeatureDetector.create(threshold).detect(image, None)
