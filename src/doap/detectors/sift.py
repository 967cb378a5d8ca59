"""OpenCV's SIFT: blobs of the difference of Gaussians."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from doap.detectors.detector import Image, OpenCVDetector

if TYPE_CHECKING:
    import cv2


def sift(contrast: float = 0.02, magnification: float = 6.0, *, precise: bool = True) -> OpenCVDetector:
    """Return a detector of oriented blobs. A blob with two strong orientations gives two keypoints.

    >>> import numpy as np
    >>> frames, responses = sift().detect(np.zeros((64, 64), np.uint8), max_keypoints=100)
    >>> frames.shape, responses.shape
    ((0, 2, 3), (0,))

    Args:
        contrast: Contrast threshold. Lower values find more and weaker blobs. The default is
            COLMAP's, half of OpenCV's.
        magnification: Patch side relative to `KeyPoint.size` (2 σ). The default of 6 gives SIFT's
            own support, a patch side of 12 σ.
        precise: Align the upscaled first octave with the image. Without it, OpenCV shifts all
            keypoints by a quarter of a pixel.
    """
    return OpenCVDetector("sift", partial(_find, contrast=contrast, precise=precise), magnification)


def _find(image: Image, contrast: float, precise: bool) -> Sequence[cv2.KeyPoint]:
    import cv2

    return cv2.SIFT.create(contrastThreshold=contrast, enable_precise_upscale=precise).detect(image, None)
