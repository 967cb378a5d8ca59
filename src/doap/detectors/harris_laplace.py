"""OpenCV's Harris-Laplace: Harris corners with a scale."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from doap.detectors.detector import Image, OpenCVDetector
from doap.detectors.opencv import contrib

if TYPE_CHECKING:
    import cv2


def harris_laplace(threshold: float = 0.01, magnification: float = 3.0) -> OpenCVDetector:
    """Return a detector of corners with scale but without orientation: all patches are upright.

    Args:
        threshold: Minimum Harris response, as a fraction of the strongest corner of the same level.
        magnification: Patch side relative to `KeyPoint.size`.
    """
    # Fail here, before the first image, if OpenCV lacks the detector.
    contrib("HarrisLaplaceFeatureDetector_create", needed_by="harris-laplace")
    return OpenCVDetector("harris-laplace", partial(_find, threshold=threshold), magnification)


def _find(image: Image, threshold: float) -> Sequence[cv2.KeyPoint]:
    create = contrib("HarrisLaplaceFeatureDetector_create", needed_by="harris-laplace")
    found: Sequence[cv2.KeyPoint] = create(corn_thresh=threshold).detect(image, None)
    for point in found:
        # This detector puts pixel centres at (0.5, 0.5).
        point.pt = point.pt[0] - 0.5, point.pt[1] - 0.5
    return found
