"""A descriptor of doap where OpenCV expects one of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from doap.checks import check_shape
from doap.describer import Describer
from doap.detectors import Detector, sift
from doap.errors import ArgumentError
from doap.images import angles, centres, frames_from_keypoints, scales
from doap.pipeline import describe_frames

if TYPE_CHECKING:
    import cv2

Image = NDArray[np.uint8]
Described = tuple[tuple["cv2.KeyPoint", ...], NDArray[Any] | None]


class Feature2D:
    """An object with the face of `cv2.Feature2D`: code written for `cv2.SIFT.create()` takes it instead.

    What it finds and gives is what `doap.extract` does, except that a large image is not made smaller first, as OpenCV
    does not either. Keypoints near the border are kept: their patches repeat the pixels there. OpenCV's own C++
    functions (`cv2.AffineFeature`, the stitcher) cannot take an object of Python.

    >>> import cv2, numpy as np
    >>> from doap.baselines import teblid
    >>> features = Feature2D(teblid())
    >>> features.descriptorSize(), features.defaultNorm() == cv2.NORM_HAMMING
    (32, True)
    >>> features.detectAndCompute(np.zeros((50, 50), np.uint8), None)
    ((), None)

    Args:
        descriptor: a `Descriptor`, a peer such as `rootsift()`, or anything with their face.
        detector: where to look; SIFT's blobs if not given. Its magnification says how large a patch a keypoint of
            any origin stands for.
        max_keypoints: keypoints to keep, the strongest.
    """

    def __init__(self, descriptor: Describer, detector: Detector | None = None, max_keypoints: int = 2048) -> None:
        if max_keypoints < 1:
            raise ArgumentError(f"max_keypoints: expected 1 or more, got {max_keypoints}")
        self.descriptor, self.detector, self.max_keypoints = descriptor, detector or sift(), max_keypoints

    def detect(self, image: Image, mask: Image | None = None) -> tuple[cv2.KeyPoint, ...]:
        """Keypoints of a grey or colour (BGR) image (H, W[, 3]) uint8, the strongest first.

        Args:
            image: the image.
            mask: (H, W) uint8; keypoints are kept where it is not zero.
        """
        return self._keypoints(*self._detect(_grey(image), mask))

    def compute(self, image: Image, keypoints: Sequence[cv2.KeyPoint]) -> Described:
        """The keypoints as given, N of them, and their descriptors: (N, D) float32 or (N, D/8) uint8, None for none."""
        frames = frames_from_keypoints(keypoints, self.detector.magnification)
        return self._described(_grey(image), tuple(keypoints), frames)

    def detectAndCompute(  # noqa: N802 - OpenCV's name
        self,
        image: Image,
        mask: Image | None = None,
        descriptors: object = None,  # noqa: ARG002 - a place that OpenCV has for its output
        useProvidedKeypoints: bool = False,  # noqa: N803 - OpenCV's name
    ) -> Described:
        """`detect`, then `compute`; with the shape of the patches too where a detector knows it.

        A keypoint has a size and an angle and no more. So for the frames of affine detectors these descriptors are
        better than those that `compute` can make of the keypoints; for all others they are the same.
        """
        if useProvidedKeypoints:
            # Nor can keypoints be given to OpenCV here: in Python they are only ever given back.
            raise ArgumentError("useProvidedKeypoints: expected False, got True; call compute(image, keypoints)")
        grey = _grey(image)
        frames, responses = self._detect(grey, mask)
        return self._described(grey, self._keypoints(frames, responses), frames)

    def descriptorSize(self) -> int:  # noqa: N802
        """Columns of the descriptors: D, or D/8 bytes."""
        return self.descriptor.dim // 8 if self._binary else self.descriptor.dim

    def descriptorType(self) -> int:  # noqa: N802
        """`cv2.CV_32F` or `cv2.CV_8U`."""
        import cv2

        return cv2.CV_8U if self._binary else cv2.CV_32F

    def defaultNorm(self) -> int:  # noqa: N802
        """What a matcher should be made with: `cv2.NORM_L2` or `cv2.NORM_HAMMING`."""
        import cv2

        return cv2.NORM_HAMMING if self._binary else cv2.NORM_L2

    def empty(self) -> bool:
        """False: there is something here that detects and describes."""
        return False

    def getDefaultName(self) -> str:  # noqa: N802
        """As OpenCV builds them: `Feature2D.` and a name."""
        return "Feature2D.doap"

    @property
    def _binary(self) -> bool:
        return self.descriptor.kind == "binary"

    def _detect(self, grey: Image, mask: Image | None) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        if mask is None:
            return self.detector.detect(grey, self.max_keypoints)
        check_shape(mask, f"{grey.shape[0]} {grey.shape[1]}", name="mask")
        frames, responses = self.detector.detect(grey)
        x, y = np.clip(np.rint(centres(frames)).astype(np.intp), 0, np.array(grey.shape[::-1]) - 1).T
        # The mask says where to look, so the strongest are chosen among what lies within.
        kept = np.flatnonzero(mask[y, x])[: self.max_keypoints]
        return frames[kept], responses[kept]

    def _keypoints(self, frames: NDArray[np.float32], responses: NDArray[np.float32]) -> tuple[cv2.KeyPoint, ...]:
        import cv2

        # Angles stay clear of −1, OpenCV's word for "none".
        columns = (centres(frames), scales(frames) * 2 / self.detector.magnification, angles(frames) % 360, responses)
        return tuple(
            cv2.KeyPoint(float(x), float(y), float(size), float(angle), float(response))
            for (x, y), size, angle, response in zip(*columns, strict=True)
        )

    def _described(self, grey: Image, keypoints: tuple[cv2.KeyPoint, ...], frames: NDArray[np.float32]) -> Described:
        if not keypoints:
            return (), None
        return keypoints, describe_frames(grey, frames, self.descriptor).cpu().numpy()


def _grey(image: Image) -> Image:
    """What OpenCV calls an image, in grey."""
    import cv2

    if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
        kind = getattr(image, "dtype", type(image).__name__)
        raise ArgumentError(f"image: expected an array of uint8, got {kind}; read it with cv2.imread")
    if not image.size:
        raise ArgumentError(f"image: expected one pixel or more, got {image.shape}")
    channels = image.shape[2] if image.ndim == 3 else 1
    if image.ndim not in (2, 3) or channels not in (1, 3, 4):
        raise ArgumentError(f"image: expected (H, W) or (H, W, 3), got {image.shape}")
    if channels == 1:
        return image.reshape(image.shape[:2])
    code = cv2.COLOR_BGR2GRAY if channels == 3 else cv2.COLOR_BGRA2GRAY
    return np.asarray(cv2.cvtColor(image, code), np.uint8)
