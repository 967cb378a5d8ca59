"""Blobs of the difference of Gaussians, as COLMAP's SIFT finds them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from doap.detectors.detector import DetectedFrames, Image
from doap.errors import import_extra
from doap.images import frames_from_arrays

# With a side of 15 pixels or less COLMAP ends the process.
_SMALLEST_SIDE = 16
_MORE_THAN_ANY = 1_000_000_000


@dataclass(frozen=True)
class ColmapDetector:
    """COLMAP's keypoints, the largest first.

    COLMAP tells no responses. When it has to choose, it keeps the largest keypoints, so their σ is
    what stands here.

    Attributes:
        name: its name in `DETECTORS`.
        magnification: side of a patch over σ.
    """

    name: str
    magnification: float

    def detect(self, image: Image, max_keypoints: int | None = None) -> DetectedFrames:
        """As `Detector.detect`."""
        keypoints, _ = colmap_sift(image, max_keypoints=max_keypoints)
        return colmap_frames(keypoints, self.magnification)[:max_keypoints], keypoints[:max_keypoints, 2]


def colmap(magnification: float = 12.0) -> ColmapDetector:
    """Oriented blobs; a spot with two strong directions gives two keypoints.

    Args:
        magnification: side of a patch over σ; twelve are what SIFT itself looks at.
    """
    return ColmapDetector("colmap", magnification)


def colmap_frames(keypoints: NDArray[np.float32], magnification: float) -> NDArray[np.float32]:
    """(N, 2, 3) frames of keypoints (N, 4) as `colmap_sift` has them."""
    sigma, angle = keypoints[:, 2], np.degrees(keypoints[:, 3])
    return frames_from_arrays(keypoints[:, :2], magnification * sigma / 2, angle)


def colmap_sift(
    image: Image, scales: int = 1, max_keypoints: int | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Keypoints and descriptors of COLMAP, which describes no keypoints but its own.

    COLMAP has two extractors, with different keypoints, and only one of them pools over domain
    sizes. That one is used here for both: it finds the same keypoints however many sizes it pools,
    and a single size is SIFT itself.

    Args:
        image: (height, width) uint8.
        scales: domain sizes to pool over, from a sixth of SIFT's to three times it, as COLMAP has
            them; 1 is SIFT's.
        max_keypoints: spots that are enough, the largest; COLMAP goes on to the end of a level of
            its pyramid, and a spot may have two directions, so that there may be more keypoints.
            None is all.

    Returns:
        (N, 4) float32 x, y, σ and the angle in radians, clockwise, pixel centres at integers, the
        largest first; and (N, 128) float32 RootSIFT, in whole 512ths.
    """
    pycolmap = import_extra("pycolmap", "colmap")
    if min(image.shape) < _SMALLEST_SIDE:
        return np.zeros((0, 4), np.float32), np.zeros((0, 128), np.float32)
    pycolmap.logging.minloglevel = pycolmap.logging.FATAL.value
    options = pycolmap.FeatureExtractionOptions(use_gpu=False, num_threads=1)
    options.sift.max_num_features = max_keypoints or _MORE_THAN_ANY
    options.sift.domain_size_pooling = True
    options.sift.dsp_num_scales = scales
    if scales == 1:
        options.sift.dsp_min_scale = options.sift.dsp_max_scale = 1.0
    extractor = pycolmap.FeatureExtractor.create(options, pycolmap.Device.cpu)
    found, codes = extractor.extract_from_uint8_array(np.ascontiguousarray(image))
    # COLMAP has the centre of the first pixel at (0.5, 0.5).
    rows = [(point.x - 0.5, point.y - 0.5, point.compute_scale(), point.compute_orientation()) for point in found]
    keypoints = np.array(rows, np.float32).reshape(-1, 4)
    x, y, sigma, angle = keypoints.T
    order = np.lexsort((angle, y, x, -sigma))
    return keypoints[order], codes.data[order] / np.float32(512)
