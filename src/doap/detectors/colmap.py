"""COLMAP's SIFT: blobs of the difference of Gaussians."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import import_pycolmap
from doap.detectors.detector import DetectedFrames, Image
from doap.images import frames_from_arrays
from doap.images.frames import COLMAP_PIXEL_CENTRE

# COLMAP aborts the process for images with a side of 15 pixels or less.
_MIN_SIDE = 16
_UNLIMITED = 1_000_000_000


@dataclass(frozen=True)
class ColmapDetector:
    """Detector of COLMAP's keypoints, largest first.

    COLMAP reports no responses and prefers large keypoints, so σ serves as the response: `ranks_by_size`.

    Attributes:
        name: Name in `DETECTORS`.
        magnification: Patch side relative to σ.
        by_default: Whether to detect the same keypoints as COLMAP does by default; see `colmap_default`.
    """

    name: str
    magnification: float
    by_default: bool = False
    ranks_by_size: ClassVar[bool] = True

    def detect(self, image: Image, max_keypoints: int | None = None) -> DetectedFrames:
        """Detect keypoints; see `Detector.detect`."""
        if self.by_default:
            keypoints, _ = _extract(image, max_keypoints)
        else:
            keypoints = colmap_sift(image, max_keypoints=max_keypoints)[0][:max_keypoints]
        return colmap_frames(keypoints, self.magnification), keypoints[:, 2]


def colmap(magnification: float = 12.0) -> ColmapDetector:
    """Return a detector of oriented blobs. A blob with two strong orientations gives two keypoints.

    These are the keypoints of the baselines `colmap-sift` and `dsp-sift`; see `colmap_sift`.

    Args:
        magnification: Patch side relative to σ. The default of 12 gives SIFT's own support.
    """
    return ColmapDetector("colmap", magnification)


def colmap_default(magnification: float = 12.0) -> ColmapDetector:
    """Return a detector of the keypoints that COLMAP detects by default.

    They are localised slightly better than those of `colmap`, so reconstructions have more points. The limit is
    COLMAP's, too: a blob with two strong orientations counts once, and the level of the pyramid in which the limit is
    reached is completed. The detector can therefore return more than `max_keypoints` keypoints.

    Args:
        magnification: Patch side relative to σ. The default of 12 gives SIFT's own support.
    """
    return ColmapDetector("colmap-default", magnification, by_default=True)


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
    pooling: dict[str, Any] = {"domain_size_pooling": True, "dsp_num_scales": scales}
    if scales == 1:
        pooling |= {"dsp_min_scale": 1.0, "dsp_max_scale": 1.0}
    return _extract(image, max_keypoints, **pooling)


def _extract(
    image: Image, max_keypoints: int | None, **options: Any
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return keypoints and descriptors as `colmap_sift` does, with other options of COLMAP's SIFT."""
    pycolmap = import_pycolmap()
    if min(image.shape) < _MIN_SIDE:
        return np.zeros((0, 4), np.float32), np.zeros((0, 128), np.float32)
    sift = {"max_num_features": max_keypoints or _UNLIMITED, **options}
    chosen = pycolmap.FeatureExtractionOptions(use_gpu=False, num_threads=1, sift=sift)
    extractor = pycolmap.FeatureExtractor.create(chosen, pycolmap.Device.cpu)
    found, codes = extractor.extract_from_uint8_array(np.ascontiguousarray(image))
    rows = [(point.x, point.y, point.compute_scale(), point.compute_orientation()) for point in found]
    precise = np.array(rows, np.float64).reshape(-1, 4)
    precise[:, :2] -= COLMAP_PIXEL_CENTRE
    keypoints = precise.astype(np.float32)
    x, y, sigma, angle = keypoints.T
    order = np.lexsort((angle, y, x, -sigma))
    return keypoints[order], codes.data[order] / np.float32(512)
