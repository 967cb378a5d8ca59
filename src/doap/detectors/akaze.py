"""OpenCV's AKAZE: blobs of a nonlinear scale space that preserves edges."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from doap.detectors.detector import Image, OpenCVDetector
from doap.detectors.opencv import contrib

if TYPE_CHECKING:
    import cv2


def akaze(threshold: float = 0.001, magnification: float = 5.0) -> OpenCVDetector:
    """Return a detector of oriented blobs, one orientation each.

    Args:
        threshold: Response threshold. Lower values find more and weaker blobs.
        magnification: Patch side relative to `KeyPoint.size`.
    """
    # Fail here, before the first image, if OpenCV lacks the detector.
    contrib("AKAZE_create", needed_by="akaze")
    return OpenCVDetector("akaze", partial(_find, threshold=threshold), magnification)


def _find(image: Image, threshold: float) -> Sequence[cv2.KeyPoint]:
    engine = contrib("AKAZE_create", needed_by="akaze")(threshold=threshold)
    found: Sequence[cv2.KeyPoint] = engine.detect(image, None)
    return found
