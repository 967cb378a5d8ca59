"""The detector interface: a grey image in, frames of its keypoints out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from doap.images import frames_from_keypoints

if TYPE_CHECKING:
    import cv2

Image = NDArray[np.uint8]
DetectedFrames = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Frames (N, 2, 3) and responses (N,)."""

# Smaller images have no keypoints, and some detectors fail on them or corrupt memory (AKAZE).
_MIN_SIDE = 3


@runtime_checkable
class Detector(Protocol):
    """Interface of all detectors.

    Attributes:
        name: Name in `DETECTORS`.
        magnification: Patch side relative to the detector's own measure of size.
    """

    @property
    def name(self) -> str: ...

    @property
    def magnification(self) -> float: ...

    def detect(self, image: Image, max_keypoints: int | None = None) -> DetectedFrames:
        """Detect keypoints, strongest first.

        Args:
            image: (H, W) uint8, grey.
            max_keypoints: Maximum number of keypoints; None returns all.

        Returns:
            Frames (N, 2, 3) and responses (N,), both float32.
        """
        ...


@dataclass(frozen=True, repr=False)
class OpenCVDetector:
    """A detector of OpenCV behind the `Detector` interface.

    Attributes:
        name: Name in `DETECTORS`.
        find: Function from a grey image (H, W) to its `cv2.KeyPoint`s in any order, with pixel
            centres at integers. It creates the OpenCV object for each image, because OpenCV objects
            cannot be pickled.
        magnification: Patch side relative to `KeyPoint.size`.
    """

    name: str
    find: Callable[[Image], Sequence[cv2.KeyPoint]]
    magnification: float

    def __repr__(self) -> str:
        settings = self.find.keywords if isinstance(self.find, partial) else {}
        shown = {"name": self.name, **settings, "magnification": self.magnification}
        return f"OpenCVDetector({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def keypoints(self, image: Image, max_keypoints: int | None = None) -> Sequence[cv2.KeyPoint]:
        """Return OpenCV keypoints, strongest first. Images with a side under 3 pixels have none."""
        found = self.find(image) if min(image.shape) >= _MIN_SIDE else []
        # Orientations of one blob have equal responses, and OpenCV does not guarantee their order.
        return sorted(found, key=lambda point: (-point.response, point.pt, point.size, point.angle))[:max_keypoints]

    def detect(self, image: Image, max_keypoints: int | None = None) -> DetectedFrames:
        """Detect keypoints; see `Detector.detect`."""
        found = self.keypoints(image, max_keypoints)
        responses = np.array([point.response for point in found], np.float32)
        return frames_from_keypoints(found, self.magnification), responses
