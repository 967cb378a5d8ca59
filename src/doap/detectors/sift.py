"""Blobs of the difference of Gaussians, as OpenCV's SIFT finds them."""

from __future__ import annotations

from functools import partial

from doap.detectors.detector import OpenCVDetector


def sift(contrast: float = 0.04, magnification: float = 6.0) -> OpenCVDetector:
    """Oriented blobs; a spot with two strong directions gives two keypoints.

    Args:
        contrast: a lower one finds more and weaker blobs.
        magnification: side of a patch over `KeyPoint.size`, which is 2σ; six of them are what SIFT itself looks at.
    """
    return OpenCVDetector("sift", partial(_create, contrast), magnification)


def _create(contrast: float) -> object:
    import cv2

    return cv2.SIFT.create(contrastThreshold=contrast)
