"""Blobs of a scale space that keeps edges sharp, as OpenCV's AKAZE finds them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from doap.detectors.detector import Image, OpenCVDetector
from doap.detectors.opencv import contrib

if TYPE_CHECKING:
    import cv2


def akaze(threshold: float = 0.001, magnification: float = 5.0) -> OpenCVDetector:
    """Oriented blobs, one direction each.

    Args:
        threshold: a lower one finds more and weaker blobs.
        magnification: side of a patch over `KeyPoint.size`.
    """
    # Here too, for a person wants to know before the first image.
    contrib("AKAZE_create", needed_by="akaze")
    return OpenCVDetector("akaze", partial(_find, threshold), magnification)


def _find(threshold: float, image: Image) -> Sequence[cv2.KeyPoint]:
    engine = contrib("AKAZE_create", needed_by="akaze")(threshold=threshold)
    found: Sequence[cv2.KeyPoint] = engine.detect(image, None)
    return found
