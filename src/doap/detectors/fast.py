"""FAST corners at the scale of the image, as OpenCV finds them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from doap.detectors.detector import Image, OpenCVDetector

if TYPE_CHECKING:
    import cv2


def fast(threshold: int = 20, magnification: float = 3.5) -> OpenCVDetector:
    """Corners that know neither scale nor direction: all patches are upright and of one size.

    They suit video and images of one camera held upright; `orb` finds the same corners, scaled and
    oriented.

    Args:
        threshold: grey levels by which the ring around a corner differs from it.
        magnification: side of a patch over `KeyPoint.size`, which is always 7 pixels.
    """
    return OpenCVDetector("fast", partial(_find, threshold), magnification)


def _find(threshold: int, image: Image) -> Sequence[cv2.KeyPoint]:
    import cv2

    return cv2.FastFeatureDetector.create(threshold).detect(image, None)
