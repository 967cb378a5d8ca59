"""Blobs of the difference of Gaussians, as OpenCV's SIFT finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import cv2


def detect_sift(image: NDArray[np.uint8], contrast: float = 0.04) -> list[cv2.KeyPoint]:
    """Oriented keypoints of a grey image (H, W), strongest first; `size` is a diameter, `angle` is in degrees.

    A spot with two strong directions gives two keypoints. Lower `contrast` finds more and weaker ones.
    """
    import cv2

    found = cv2.SIFT.create(contrastThreshold=contrast).detect(image, None)
    # Equal responses (the orientations of one spot) would otherwise stand in an order nobody promises.
    return sorted(found, key=lambda point: (-point.response, point.pt, point.size, point.angle))
