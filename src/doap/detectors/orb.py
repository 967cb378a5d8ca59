"""FAST corners at several scales with the direction of their brightness, as OpenCV's ORB finds them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from doap.detectors.detector import Image, OpenCVDetector

if TYPE_CHECKING:
    import cv2

# OpenCV holds the ratio of two levels in single precision.
_RATIO = float(np.float32(1.2))
_MORE_THAN_ANY = 1_000_000


def orb(threshold: int = 20, magnification: float = 1.0) -> OpenCVDetector:
    """Oriented corners, ranked by Harris' measure.

    Args:
        threshold: grey levels by which the ring around a corner differs from it.
        magnification: side of a patch over `KeyPoint.size`, which is 31 pixels of the corner's
            level.
    """
    return OpenCVDetector("orb", partial(_find, threshold), magnification)


def _find(threshold: int, image: Image) -> Sequence[cv2.KeyPoint]:
    import cv2

    found = cv2.ORB.create(nfeatures=_MORE_THAN_ANY, scaleFactor=_RATIO, fastThreshold=threshold).detect(image, None)
    height, width = image.shape
    for point in found:
        x, y = point.pt
        point.pt = _in_image(x, width, point.octave), _in_image(y, height, point.octave)
    return found


def _in_image(coordinate: float, side: int, level: int) -> float:
    """Where a corner is, from where ORB says it is.

    ORB multiplies the pixel of the level by 1.2^level. But the level has a whole number of pixels,
    and corners of the image, not centres of pixels, are what both have in common: up to 1.6 pixels
    come together at the coarsest level.
    """
    ratio = np.float32(_RATIO**level)
    pixels = np.rint(np.float32(side) * (np.float32(1) / ratio))
    return float((coordinate / ratio + 0.5) * side / pixels - 0.5)
