"""COLMAP's SIFT: blobs of the difference of Gaussians."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from doap.detectors.detector import DetectedFrames, Image
from doap.errors import import_extra
from doap.images import frames_from_arrays

# COLMAP aborts the process for images with a side of 15 pixels or less.
_MIN_SIDE = 16
_UNLIMITED = 1_000_000_000


@dataclass(frozen=True)
class ColmapDetector:
    """Detector of COLMAP's keypoints, largest first.

    COLMAP reports no responses and prefers large keypoints, so σ serves as the response.

    Attributes:
        name: Name in `DETECTORS`.
        magnification: Patch side relative to σ.
    """

    name: str
    magnification: float

    def detect(self, image: Image, max_keypoints: int | None = None) -> DetectedFrames:
        """Detect keypoints; see `Detector.detect`."""
        keypoints, _ = colmap_sift(image, max_keypoints=max_keypoints)
        return colmap_frames(keypoints, self.magnification)[:max_keypoints], keypoints[:max_keypoints, 2]


def colmap(magnification: float = 12.0) -> ColmapDetector:
    """Return a detector of oriented blobs. A blob with two strong orientations gives two keypoints.

    Args:
        magnification: Patch side relative to σ. The default of 12 gives SIFT's own support.
    """
    return ColmapDetector("colmap", magnification)


def colmap_frames(keypoints: NDArray[np.float32], magnification: float) -> NDArray[np.float32]:
    """Return the frames (N, 2, 3) of keypoints (N, 4) from `colmap_sift`."""
    sigma, angle = keypoints[:, 2], np.degrees(keypoints[:, 3])
    return frames_from_arrays(keypoints[:, :2], magnification * sigma / 2, angle)


def colmap_sift(
    image: Image, scales: int = 1, max_keypoints: int | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the keypoints and descriptors of COLMAP, which can only describe its own keypoints.

    COLMAP has two extractors with different keypoints, and one of them pools over domain sizes.
    That one is used in both cases: its keypoints do not depend on the number of sizes, and one size
    is SIFT.

    Args:
        image: (H, W) uint8.
        scales: Number of domain sizes to pool over, from 1/6 to 3 times SIFT's as in COLMAP; 1 is
            SIFT.
        max_keypoints: Approximate number of blobs, largest first; None returns all. COLMAP always
            completes a level of its pyramid, and a blob may have two orientations.

    Returns:
        Keypoints (N, 4) float32, largest first: x, y with pixel centres at integers, σ, and the
        clockwise angle in radians. RootSIFT descriptors (N, 128) float32, in multiples of 1/512.
    """
    pycolmap = import_extra("pycolmap", "colmap")
    if min(image.shape) < _MIN_SIDE:
        return np.zeros((0, 4), np.float32), np.zeros((0, 128), np.float32)
    pycolmap.logging.minloglevel = pycolmap.logging.FATAL.value
    options = pycolmap.FeatureExtractionOptions(use_gpu=False, num_threads=1)
    options.sift.max_num_features = max_keypoints or _UNLIMITED
    options.sift.domain_size_pooling = True
    options.sift.dsp_num_scales = scales
    if scales == 1:
        options.sift.dsp_min_scale = options.sift.dsp_max_scale = 1.0
    extractor = pycolmap.FeatureExtractor.create(options, pycolmap.Device.cpu)
    found, codes = extractor.extract_from_uint8_array(np.ascontiguousarray(image))
    # COLMAP puts the centre of the first pixel at (0.5, 0.5).
    rows = [(point.x - 0.5, point.y - 0.5, point.compute_scale(), point.compute_orientation()) for point in found]
    keypoints = np.array(rows, np.float32).reshape(-1, 4)
    x, y, sigma, angle = keypoints.T
    order = np.lexsort((angle, y, x, -sigma))
    return keypoints[order], codes.data[order] / np.float32(512)
