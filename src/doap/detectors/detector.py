"""What a detector is: an image in, frames of its keypoints out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from doap.images import frames_from_keypoints

if TYPE_CHECKING:
    import cv2

Image = NDArray[np.uint8]
DetectedFrames = tuple[NDArray[np.float32], NDArray[np.float32]]

# A keypoint stands out among its eight neighbours. Without them there is none, and several engines
# throw or, worse, write beyond their memory (AKAZE).
_SMALLEST_SIDE = 3


class Detector(Protocol):
    """Anything that finds frames; `magnification` is the side of a patch over what the detector calls its size."""

    @property
    def name(self) -> str: ...

    @property
    def magnification(self) -> float: ...

    def detect(self, image: Image, max_keypoints: int | None = None) -> DetectedFrames:
        """Frames (N, 2, 3) and responses (N,) of a grey image (H, W), strongest first; all, or the `most` strongest."""
        ...


@dataclass(frozen=True)
class OpenCVDetector:
    """A detector of OpenCV.

    Attributes:
        name: its name in `DETECTORS`.
        find: a grey image (H, W) → its `cv2.KeyPoint`s, in any order, pixel centres at integers. It
            makes the engine for each image, since engines cannot be sent to other processes.
        magnification: side of a patch over `KeyPoint.size`.
    """

    name: str
    find: Callable[[Image], Sequence[cv2.KeyPoint]]
    magnification: float

    def keypoints(self, image: Image, max_keypoints: int | None = None) -> Sequence[cv2.KeyPoint]:
        """OpenCV's own keypoints, strongest first; none of an image with a side under 3 pixels."""
        found = self.find(image) if min(image.shape) >= _SMALLEST_SIDE else []
        # Equal responses (the orientations of one spot) would otherwise stand in an order nobody
        # promises.
        return sorted(found, key=lambda point: (-point.response, point.pt, point.size, point.angle))[:max_keypoints]

    def detect(self, image: Image, max_keypoints: int | None = None) -> DetectedFrames:
        """As `Detector.detect`."""
        found = self.keypoints(image, max_keypoints)
        responses = np.array([point.response for point in found], np.float32)
        return frames_from_keypoints(found, self.magnification), responses
