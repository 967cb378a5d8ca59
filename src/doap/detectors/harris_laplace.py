"""Harris corners whose scale is that of the strongest difference of Gaussians, as OpenCV finds them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from doap.detectors.detector import Image, OpenCVDetector
from doap.detectors.opencv import contrib

if TYPE_CHECKING:
    import cv2


def harris_laplace(threshold: float = 0.01, magnification: float = 3.0) -> OpenCVDetector:
    """Corners with a scale but without a direction: all patches are upright.

    Args:
        threshold: of Harris' measure, as a share of the strongest corner of a level.
        magnification: side of a patch over `KeyPoint.size`.
    """
    # Here too, for a person wants to know before the first image.
    contrib("HarrisLaplaceFeatureDetector_create", needed_by="harris-laplace")
    return OpenCVDetector("harris-laplace", partial(_find, threshold), magnification)


def _find(threshold: float, image: Image) -> Sequence[cv2.KeyPoint]:
    create = contrib("HarrisLaplaceFeatureDetector_create", needed_by="harris-laplace")
    found: Sequence[cv2.KeyPoint] = create(corn_thresh=threshold).detect(image, None)
    for point in found:
        # Its pixels have their centres at (0.5, 0.5).
        point.pt = point.pt[0] - 0.5, point.pt[1] - 0.5
    return found
