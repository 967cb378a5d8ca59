"""Features of image files and matches of image pairs, for benchmarks that estimate geometry.

A descriptor is evaluated on shared keypoints, which are detected once. A descriptor with its own detector, or a
pipeline with its own matcher, uses those instead. The second image of a pair can be turned: it is turned before the
detection, and the positions of its matches are turned back, so that the true geometry remains the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from doap.detectors import Detector, colmap_default
from doap.evaluation.benchmark import BenchmarkSettings, DetectorSetting
from doap.evaluation.candidates import Candidate
from doap.extractor import MAX_KEYPOINTS
from doap.images import read_grey, transform_frames
from doap.images.frames import visible
from doap.matching import NearestNeighbours
from doap.types import Features, Matches, Progress

Floats = NDArray[np.float64]
RATIOS = (0.75, 0.8, 0.85, 0.9, 0.95)
"""Thresholds of the ratio test to select from."""


class KeypointSettings(BenchmarkSettings):
    """Settings of every benchmark that matches images on shared keypoints."""

    detector: DetectorSetting = Field(default_factory=colmap_default, description="Detector; COLMAP's by default.")
    max_keypoints: int = Field(MAX_KEYPOINTS, ge=8, description="Maximum number of keypoints per image.")


class SharedKeypoints:
    """Images and the keypoints of one detector, read and detected on first use, because pipelines need no keypoints.

    An image can be turned clockwise about its centre, by any angle in degrees.
    """

    def __init__(self, detector: Detector, max_keypoints: int) -> None:
        self.detector, self.max_keypoints = detector, max_keypoints
        self._images: dict[tuple[Path, float], NDArray[np.uint8]] = {}
        self._keypoints: dict[tuple[Path, float], tuple[NDArray[np.float32], NDArray[np.float32]]] = {}

    def read(self, paths: Sequence[Path], progress: Progress) -> None:
        """Read image files in advance."""
        for done, path in enumerate(paths):
            progress(done, len(paths), f"{path.parent.name}/{path.name}")
            self.image(path)

    def protocol(self) -> dict[str, Any]:
        """Return the choices that every benchmark on shared keypoints has."""
        return {
            "detector": self.detector.name,
            "magnification": self.detector.magnification,
            "keypoints per image": self.max_keypoints,
        }

    def image(self, path: Path, degrees: float = 0.0) -> NDArray[np.uint8]:
        """Return the grey pixels (H, W) of an image file."""
        if (path, degrees) not in self._images:
            self._images[path, degrees] = turn(self.image(path), degrees) if degrees else read_grey(path)
        return self._images[path, degrees]

    def keypoints(self, path: Path, degrees: float = 0.0) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return frames (N, 2, 3) and responses (N,) of the strongest keypoints of an image file."""
        if (path, degrees) not in self._keypoints:
            frames, responses = self.detector.detect(self.image(path, degrees), self.max_keypoints)
            # COLMAP completes the level of its pyramid in which it reaches the maximum.
            self._keypoints[path, degrees] = frames[: self.max_keypoints], responses[: self.max_keypoints]
        return self._keypoints[path, degrees]

    def to_file(self, path: Path, degrees: float) -> Floats:
        """Return the homography (3, 3) from a turned image to the image in the file."""
        return np.asarray(np.linalg.inv(turning(self.image(path).shape, degrees)))


@dataclass(frozen=True, eq=False)
class PairMatcher:
    """Match image files with one descriptor or pipeline.

    Attributes:
        candidate: The descriptor or pipeline.
        shared: Images and their keypoints.
        limit: Maximum number of keypoints per image, the strongest ones; None for those of `shared`.
        degrees: Angle by which the second image of each pair is turned.
    """

    candidate: Candidate
    shared: SharedKeypoints
    limit: int | None = None
    degrees: float = 0.0
    _features: dict[tuple[Path, float], Features] = field(default_factory=dict, repr=False)

    def features(self, path: Path, degrees: float = 0.0) -> Features:
        """Return the features of an image file, turned by an angle."""
        if (path, degrees) not in self._features:
            self._features[path, degrees] = self._extract(path, degrees)
        return self._features[path, degrees].strongest(self.limit)

    def match(self, path0: Path, path1: Path, ratio: float | None = None) -> Matches:
        """Match two images: mutual nearest neighbours, or the matches of the pipeline, which ignores the ratio."""
        matcher = self.candidate.matcher or NearestNeighbours(None if ratio == 1 else ratio)
        return matcher.match(self.features(path0), self.features(path1, self.degrees))

    def matched_points(self, path0: Path, path1: Path, ratio: float | None = None) -> tuple[Floats, Floats]:
        """Return the positions (M, 2) of the matches in both images, in pixels of their files."""
        matches, turned = self.match(path0, path1, ratio), self.features(path1, self.degrees)
        if self.degrees:
            turned = replace(turned, frames=transform_frames(turned.frames, self.shared.to_file(path1, self.degrees)))
        xy0, xy1 = matches.points(self.features(path0), turned)
        return xy0.astype(np.float64), xy1.astype(np.float64)

    def _extract(self, path: Path, degrees: float) -> Features:
        image = self.shared.image(path, degrees)
        if self.candidate.extractor:
            found = self.candidate.extract(image, self.shared.max_keypoints)
        else:
            frames, responses = self.shared.keypoints(path, degrees)
            descriptors = self.candidate.describe(image, frames)
            found = Features(frames, responses, descriptors, (image.shape[0], image.shape[1]))
        if not degrees:
            return found
        # The canvas around the photo consists of replicated pixels.
        kept = visible(found.frames, self.shared.to_file(path, degrees), self.shared.image(path).shape)
        parts = {name: getattr(found, name)[kept] for name in ("frames", "responses", "descriptors")}
        return replace(found, **parts)


def turn(image: NDArray[np.uint8], degrees: float) -> NDArray[np.uint8]:
    """Turn a grey image (H, W) clockwise, onto a canvas that contains all of it; multiples of 90° move whole pixels.

    >>> turn(np.array([[1, 2, 3], [4, 5, 6]], np.uint8), 90).tolist()
    [[4, 1], [5, 2], [6, 3]]
    """
    import cv2

    homography = turning(image.shape, degrees)
    columns, rows = np.ceil(np.abs(homography[:2, :2]) @ np.subtract(image.shape[::-1], 1)).astype(int) + 1
    turned = cv2.warpPerspective(
        image, homography, (int(columns), int(rows)), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
    )
    return np.asarray(turned, np.uint8)


def turning(shape: tuple[int, ...], degrees: float) -> Floats:
    """Return the homography (3, 3) from an image of this (H, W) to the turned one."""
    # Without rounding, multiples of 90° would move pixels by a tiny fraction.
    cos, sin = np.round([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], 12)
    linear = np.array([[cos, -sin], [sin, cos]])
    last = np.subtract(shape[::-1], 1)
    homography = np.eye(3)
    homography[:2, :2] = linear
    # The canvas begins at the leftmost and at the topmost corner.
    homography[:2, 2] = -np.minimum(linear * last, 0).sum(axis=1)
    return homography
