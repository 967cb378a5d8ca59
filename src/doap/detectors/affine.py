"""SIFT blobs with affine shape, estimated by kornia, for strongly slanted surfaces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from doap._support.errors import MissingExtra
from doap.detectors.detector import DetectedFrames, Image
from doap.detectors.opencv import OpenCVDetector, sift
from doap.images import frames_from_keypoints, frames_from_lafs, resize_frames


@dataclass(frozen=True)
class AffineDetector:
    """Adapt the shape and orientation of another detector's keypoints to their texture.

    One step of Baumberg's iteration (2000) equalises the second moments of the gradients. The
    dominant gradient of the resulting patch defines its orientation. The orientation of `base` is
    discarded, because it differs in slanted views, so a blob gives one keypoint.

    Attributes:
        name: Name in `DETECTORS`.
        base: Detector whose keypoints are adapted. The moments are measured in its patches.
        magnification: Side of a square with the area of the patch, relative to `KeyPoint.size`.
    """

    name: str
    base: OpenCVDetector
    magnification: float

    @property
    def ranks_by_size(self) -> bool:
        """Whether the size of a keypoint serves as its response."""
        return self.base.ranks_by_size

    def detect(self, image: Image, max_keypoints: int | None = None) -> DetectedFrames:
        """Detect keypoints; see `Detector.detect`."""
        try:
            from kornia.feature import LAFAffineShapeEstimator, LAFOrienter
        except ImportError as error:
            raise MissingExtra("kornia", "kornia") from error
        import torch

        blobs = {(point.pt, point.size): point for point in self.base.keypoints(image)}
        found = list(blobs.values())[:max_keypoints]
        frames = frames_from_keypoints(found, self.base.magnification)
        if found:
            pixels = torch.from_numpy(np.ascontiguousarray(image))[None, None].float() / 255
            lafs = torch.from_numpy(frames)[None]
            with torch.no_grad():
                shaped = LAFAffineShapeEstimator(preserve_orientation=False)(lafs, pixels)
                frames = frames_from_lafs(LAFOrienter()(shaped, pixels))
        frames = resize_frames(frames, self.magnification / self.base.magnification)
        return frames, np.array([self.base.response(point) for point in found], np.float32)


def affine(contrast: float = 0.02, magnification: float = 6.0) -> AffineDetector:
    """Return a detector of SIFT blobs with affine shape.

    Use it for surfaces slanted by about 60° or more. Less slanted ones match better without it.

    Args:
        contrast: Contrast threshold. Lower values find more and weaker blobs.
        magnification: Side of a square with the area of the patch, relative to `KeyPoint.size` (2 σ).
    """
    return AffineDetector("affine", sift(contrast), magnification)
