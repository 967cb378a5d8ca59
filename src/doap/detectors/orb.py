"""OpenCV's ORB: FAST corners at several scales, oriented by their intensity centroid."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from doap.detectors.detector import Image, OpenCVDetector

if TYPE_CHECKING:
    import cv2

# OpenCV stores the scale factor in single precision.
_SCALE_FACTOR = float(np.float32(1.2))
_UNLIMITED = 1_000_000


def orb(threshold: int = 20, magnification: float = 1.0) -> OpenCVDetector:
    """Return a detector of oriented corners, ranked by their Harris response.

    Args:
        threshold: Minimum difference in grey levels between a corner and the ring around it.
        magnification: Patch side relative to `KeyPoint.size`, which is 31 pixels of the corner's
            level.
    """
    return OpenCVDetector("orb", partial(_find, threshold=threshold), magnification)


def _find(image: Image, threshold: int) -> Sequence[cv2.KeyPoint]:
    import cv2

    found = cv2.ORB.create(nfeatures=_UNLIMITED, scaleFactor=_SCALE_FACTOR, fastThreshold=threshold).detect(image, None)
    height, width = image.shape
    for point in found:
        x, y = point.pt
        point.pt = _image_coordinate(x, width, point.octave), _image_coordinate(y, height, point.octave)
    return found


def _image_coordinate(coordinate: float, side: int, level: int) -> float:
    """Return the position of a corner in the image, given the position that ORB reports.

    ORB multiplies pixel coordinates of the level by 1.2^level. The level has a whole number of
    pixels, however, and shares its outer corners with the image, not its pixel centres. The error
    reaches 1.6 pixels at the coarsest level.
    """
    ratio = np.float32(_SCALE_FACTOR**level)
    pixels = np.rint(np.float32(side) * (np.float32(1) / ratio))
    return float((coordinate / ratio + 0.5) * side / pixels - 0.5)
