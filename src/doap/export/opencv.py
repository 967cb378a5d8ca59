"""Use a descriptor of doap in code written for OpenCV."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from doap._support.checks import check_shape
from doap._support.errors import ArgumentError
from doap.describer import Describer
from doap.descriptor import as_describer
from doap.detectors import Detector, as_detector
from doap.extractor import detect_in_mask
from doap.images import ImageSource, angles, as_grey, centres, frames_from_keypoints, scales

if TYPE_CHECKING:
    import cv2

Image = NDArray[np.uint8]
Described = tuple[tuple["cv2.KeyPoint", ...], NDArray[Any] | None]


class Feature2D:
    """Object with the interface of `cv2.Feature2D`: a replacement for `cv2.SIFT.create()` in Python code.

    It computes the same features as `doap.extract`, except that it does not downscale large images, as OpenCV does not
    either. It keeps keypoints near the border; their patches repeat the border pixels. OpenCV's own C++ functions
    (`cv2.AffineFeature`, the stitcher) do not accept Python objects.

    >>> import cv2, numpy as np
    >>> features = Feature2D("orb")
    >>> features.descriptorSize(), features.defaultNorm() == cv2.NORM_HAMMING
    (32, True)
    >>> features.detectAndCompute(np.zeros((50, 50), np.uint8), None)
    ((), None)

    Args:
        descriptor: Name, file or object; see `doap.load`.
        detector: Name or object; None is SIFT. Its magnification defines the patch size of keypoints of any origin.
        max_keypoints: Maximum number of keypoints per image.
        device: Device of the network: "auto", "cpu", "cuda", "cuda:N" or "mps".
    """

    def __init__(
        self,
        descriptor: str | Path | Describer = "doap-128",
        detector: str | Detector | None = None,
        max_keypoints: int = 2048,
        device: str | torch.device = "auto",
    ) -> None:
        if max_keypoints < 1:
            raise ArgumentError(f"max_keypoints: expected 1 or more, got {max_keypoints}.")
        self.descriptor, self.detector = as_describer(descriptor, device), as_detector(detector)
        self.max_keypoints = max_keypoints

    def detect(self, image: ImageSource, mask: Image | None = None) -> tuple[cv2.KeyPoint, ...]:
        """Detect keypoints, strongest first.

        Args:
            image: Grey or colour image as from `cv2.imread`, or another form that `doap.extract` accepts.
            mask: (H, W) uint8; keypoints are detected where it is not zero.
        """
        return self._keypoints(*self._detect(as_grey(image), mask))

    def compute(self, image: ImageSource, keypoints: Sequence[cv2.KeyPoint]) -> Described:
        """Return the N keypoints unchanged and their descriptors, (N, D) float32 or (N, D/8) uint8; None if N is 0."""
        frames = frames_from_keypoints(keypoints, self.detector.magnification)
        return self._described(as_grey(image), tuple(keypoints), frames)

    def detectAndCompute(  # noqa: N802 - OpenCV's name
        self,
        image: ImageSource,
        mask: Image | None = None,
        descriptors: object = None,  # noqa: ARG002 - OpenCV's output argument
        useProvidedKeypoints: bool = False,  # noqa: N803 - OpenCV's name
    ) -> Described:
        """Detect keypoints and describe them.

        OpenCV's keypoints have a size and an angle, but no affine shape. The descriptors of affine detectors are
        therefore better than those of `detect` followed by `compute`; for other detectors they are equal.
        """
        if useProvidedKeypoints:
            # OpenCV's Python binding does not support it either: keypoints are an output only.
            raise ArgumentError("useProvidedKeypoints: expected False, got True. Call compute(image, keypoints).")
        grey = as_grey(image)
        frames, responses = self._detect(grey, mask)
        return self._described(grey, self._keypoints(frames, responses), frames)

    def descriptorSize(self) -> int:  # noqa: N802
        """Return the number of columns of the descriptors: D, or D/8 bytes."""
        return self.descriptor.dim // 8 if self._binary else self.descriptor.dim

    def descriptorType(self) -> int:  # noqa: N802
        """Return `cv2.CV_32F` or `cv2.CV_8U`."""
        import cv2

        return cv2.CV_8U if self._binary else cv2.CV_32F

    def defaultNorm(self) -> int:  # noqa: N802
        """Return the norm for a matcher: `cv2.NORM_L2` or `cv2.NORM_HAMMING`."""
        import cv2

        return cv2.NORM_HAMMING if self._binary else cv2.NORM_L2

    @property
    def _binary(self) -> bool:
        return self.descriptor.kind == "binary"

    def _detect(self, grey: Image, mask: Image | None) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        if mask is not None:
            check_shape(mask, f"{grey.shape[0]} {grey.shape[1]}", name="mask")
        return detect_in_mask(partial(self.detector.detect, grey), self.max_keypoints, mask, np.eye(3))

    def _keypoints(self, frames: NDArray[np.float32], responses: NDArray[np.float32]) -> tuple[cv2.KeyPoint, ...]:
        import cv2

        # Angles are non-negative, because −1 means "no angle" in OpenCV.
        columns = (centres(frames), scales(frames) * 2 / self.detector.magnification, angles(frames) % 360, responses)
        return tuple(
            cv2.KeyPoint(float(x), float(y), float(size), float(angle), float(response))
            for (x, y), size, angle, response in zip(*columns, strict=True)
        )

    def _described(self, grey: Image, keypoints: tuple[cv2.KeyPoint, ...], frames: NDArray[np.float32]) -> Described:
        if not keypoints:
            return (), None
        return keypoints, self.descriptor.describe(grey, frames).cpu().numpy()
