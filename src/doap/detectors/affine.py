"""Blobs whose patches are stretched as the texture under them is, so that a slanted surface looks the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from doap.detectors.detector import DetectedFrames, Image, OpenCVDetector
from doap.detectors.sift import sift
from doap.errors import MissingExtra
from doap.images import frames_from_keypoints, frames_from_lafs, resize_frames


@dataclass(frozen=True)
class AffineDetector:
    """Another detector's keypoints, stretched and turned by what is seen in their patches.

    kornia does both: one step towards equal second moments of the gradients in all directions
    (Baumberg, 2000), then the dominant gradient of the stretched patch becomes its right. The
    orientation that `base` found is not kept: in a slanted view it is another. So a spot is one
    keypoint.

    Attributes:
        name: its name in `DETECTORS`.
        base: whose keypoints are adapted; the moments are measured in its patches.
        magnification: side of a square of the patch's area over `KeyPoint.size`.
    """

    name: str
    base: OpenCVDetector
    magnification: float

    def detect(self, image: Image, max_keypoints: int | None = None) -> DetectedFrames:
        """As `Detector.detect`."""
        try:
            from kornia.feature import LAFAffineShapeEstimator, LAFOrienter
        except ImportError as error:
            raise MissingExtra("kornia", "kornia") from error
        import torch

        spots = {(point.pt, point.size): point for point in self.base.keypoints(image)}
        found = list(spots.values())[:max_keypoints]
        frames = frames_from_keypoints(found, self.base.magnification)
        if found:
            pixels = torch.from_numpy(np.ascontiguousarray(image))[None, None].float() / 255
            with torch.no_grad():
                stretched = LAFAffineShapeEstimator(preserve_orientation=False)(torch.from_numpy(frames)[None], pixels)
                frames = frames_from_lafs(LAFOrienter()(stretched, pixels))
        frames = resize_frames(frames, self.magnification / self.base.magnification)
        return frames, np.array([point.response for point in found], np.float32)


def affine(contrast: float = 0.02, magnification: float = 6.0) -> AffineDetector:
    """SIFT's blobs with affine shape, for surfaces at a slant of about 60° and more; others match better without.

    Args:
        contrast: a lower one finds more and weaker blobs.
        magnification: side of a square of the patch's area over `KeyPoint.size`, which is 2σ.
    """
    return AffineDetector("affine", sift(contrast), magnification)
