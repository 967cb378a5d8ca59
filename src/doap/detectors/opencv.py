"""OpenCV's detectors: blobs (SIFT, AKAZE) and corners (ORB, FAST)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from doap._support.errors import MissingExtra
from doap._support.opencv import complete_wheel
from doap.detectors.detector import DetectedFrames, Image
from doap.images import frames_from_keypoints

if TYPE_CHECKING:
    import cv2

# Smaller images have no keypoints, and some detectors fail on them or corrupt memory (AKAZE).
_MIN_SIDE = 3
# OpenCV stores ORB's scale factor in single precision.
_ORB_SCALE_FACTOR = float(np.float32(1.2))
_ORB_UNLIMITED = 1_000_000


@dataclass(frozen=True)
class OpenCVDetector:
    """A detector of OpenCV behind the `Detector` interface.

    Attributes:
        name: Name in `DETECTORS`.
        find: Function from a grey image (H, W) to its `cv2.KeyPoint`s in any order, with pixel centres at integers. It
            creates the OpenCV object for each image, because OpenCV objects cannot be pickled.
        magnification: Patch side relative to `KeyPoint.size`.
        ranks_by_size: Whether the size of a keypoint serves as its response, so that the largest are kept.
    """

    name: str
    find: Callable[[Image], Sequence[cv2.KeyPoint]] = field(repr=False)
    magnification: float
    ranks_by_size: bool = False

    def keypoints(self, image: Image, max_keypoints: int | None = None) -> Sequence[cv2.KeyPoint]:
        """Return OpenCV keypoints, strongest or largest first. Images with a side under 3 pixels have none."""
        found = self.find(image) if min(image.shape) >= _MIN_SIDE else []
        # Orientations of one blob have equal responses and sizes, and OpenCV does not guarantee their order.
        ranked = sorted(found, key=lambda point: (-self.response(point), point.pt, point.size, point.angle))
        return ranked[:max_keypoints]

    def detect(self, image: Image, max_keypoints: int | None = None) -> DetectedFrames:
        """Detect keypoints; see `Detector.detect`."""
        found = self.keypoints(image, max_keypoints)
        responses = np.array([self.response(point) for point in found], np.float32)
        return frames_from_keypoints(found, self.magnification), responses

    def response(self, point: cv2.KeyPoint) -> float:
        """Return the response by which keypoints are ranked."""
        return point.size if self.ranks_by_size else point.response


def sift(contrast: float = 0.02, magnification: float = 6.0, *, precise: bool = True) -> OpenCVDetector:
    """Return a detector of oriented blobs, largest first. A blob with two strong orientations gives two keypoints.

    >>> frames, responses = sift().detect(np.zeros((64, 64), np.uint8), max_keypoints=100)
    >>> frames.shape, responses.shape
    ((0, 2, 3), (0,))

    Args:
        contrast: Contrast threshold. Lower values find more and weaker blobs. The default is COLMAP's, half of
            OpenCV's.
        magnification: Patch side relative to `KeyPoint.size` (2 σ). The default of 6 gives SIFT's own support.
        precise: Align the upscaled first octave with the image. Without it, OpenCV shifts all keypoints by a quarter of
            a pixel.
    """
    return OpenCVDetector("sift", partial(_find_sift, contrast=contrast, precise=precise), magnification, True)


def _find_sift(image: Image, contrast: float, precise: bool) -> Sequence[cv2.KeyPoint]:
    import cv2

    return cv2.SIFT.create(contrastThreshold=contrast, enable_precise_upscale=precise).detect(image, None)


def akaze(threshold: float = 0.001, magnification: float = 5.0) -> OpenCVDetector:
    """Return a detector of blobs of a nonlinear scale space that preserves edges, one orientation each.

    Args:
        threshold: Response threshold. Lower values find more and weaker blobs.
        magnification: Patch side relative to `KeyPoint.size`.
    """
    return OpenCVDetector("akaze", partial(_find_akaze, threshold=threshold), magnification)


def _find_akaze(image: Image, threshold: float) -> Sequence[cv2.KeyPoint]:
    found: Sequence[cv2.KeyPoint] = contrib("AKAZE_create", needed_by="akaze")(threshold=threshold).detect(image, None)
    return found


def fast(threshold: int = 20, magnification: float = 3.5) -> OpenCVDetector:
    """Return a detector of corners without scale or orientation, whose patches are upright and of one size.

    Use it for video, or images of one upright camera. `orb` finds the same corners with scale and orientation.

    Args:
        threshold: Minimum difference in grey levels between a corner and the ring around it.
        magnification: Patch side relative to `KeyPoint.size`, which is always 7 pixels.
    """
    return OpenCVDetector("fast", partial(_find_fast, threshold=threshold), magnification)


def _find_fast(image: Image, threshold: int) -> Sequence[cv2.KeyPoint]:
    import cv2

    return cv2.FastFeatureDetector.create(threshold).detect(image, None)


def orb(threshold: int = 20, magnification: float = 1.0) -> OpenCVDetector:
    """Return a detector of oriented corners at several scales, ranked by their Harris response.

    Args:
        threshold: Minimum difference in grey levels between a corner and the ring around it.
        magnification: Patch side relative to `KeyPoint.size`, which is 31 pixels of the corner's level.
    """
    return OpenCVDetector("orb", partial(_find_orb, threshold=threshold), magnification)


def _find_orb(image: Image, threshold: int) -> Sequence[cv2.KeyPoint]:
    import cv2

    orb = cv2.ORB.create(nfeatures=_ORB_UNLIMITED, scaleFactor=_ORB_SCALE_FACTOR, fastThreshold=threshold)
    found = orb.detect(image, None)
    height, width = image.shape
    for point in found:
        x, y = point.pt
        point.pt = _image_coordinate(x, width, point.octave), _image_coordinate(y, height, point.octave)
    return found


def _image_coordinate(coordinate: float, side: int, level: int) -> float:
    """Return the position of a corner in the image, given the position that ORB reports.

    ORB multiplies pixel coordinates of the level by 1.2^level. The level has a whole number of pixels, however, and
    shares its outer corners with the image, not its pixel centres. The error reaches 1.6 pixels at the coarsest level.
    """
    ratio = np.float32(_ORB_SCALE_FACTOR**level)
    pixels = np.rint(np.float32(side) * (np.float32(1) / ratio))
    return float((coordinate / ratio + 0.5) * side / pixels - 0.5)


def contrib(function: str, *, needed_by: str) -> Callable[..., Any]:
    """Return a function of OpenCV's contrib modules, or raise `MissingExtra`.

    Builds without contrib have an empty `cv2.xfeatures2d`. Before version 5, some of its functions were in `cv2`.
    """
    import cv2

    for module in (getattr(cv2, "xfeatures2d", None), cv2):
        found: Callable[..., Any] | None = getattr(module, function, None)
        if found is not None:
            return found
    library = f"{needed_by}: the contrib function xfeatures2d.{function} of OpenCV"
    raise MissingExtra(library, install=complete_wheel(contrib=True))
