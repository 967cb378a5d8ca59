"""Blobs of the difference of Gaussians, as OpenCV's SIFT finds them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from doap.detectors.detector import Image, OpenCVDetector

if TYPE_CHECKING:
    import cv2


def sift(contrast: float = 0.02, magnification: float = 6.0, *, precise: bool = True) -> OpenCVDetector:
    """Oriented blobs; a spot with two strong directions gives two keypoints.

    Args:
        contrast: a lower one finds more and weaker blobs; half of OpenCV's default is what COLMAP
            has.
        magnification: side of a patch over `KeyPoint.size`, which is 2σ; six of them are what SIFT
            itself looks at.
        precise: enlarge the image around its middle. OpenCV's default moves all keypoints by a
            quarter of a pixel.
    """
    return OpenCVDetector("sift", partial(_find, contrast, precise), magnification)


def _find(contrast: float, precise: bool, image: Image) -> Sequence[cv2.KeyPoint]:
    import cv2

    return cv2.SIFT.create(contrastThreshold=contrast, enable_precise_upscale=precise).detect(image, None)
