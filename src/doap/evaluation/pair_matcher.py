"""Features of image files and matches of image pairs, for benchmarks that estimate geometry.

A descriptor is evaluated on shared keypoints, which are detected once. A descriptor with its own detector, or a
pipeline with its own matcher, uses those instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from doap.detectors import Detector, sift
from doap.evaluation.benchmark import BenchmarkSettings, DetectorSetting
from doap.evaluation.candidates import Candidate
from doap.images import read_grey
from doap.matching import NearestNeighbours
from doap.types import Features, Matches, Progress

RATIOS = (0.75, 0.8, 0.85, 0.9, 0.95)
"""Thresholds of the ratio test to select from."""


class KeypointSettings(BenchmarkSettings):
    """Settings of every benchmark that matches images on shared keypoints."""

    detector: DetectorSetting = Field(default_factory=sift, description="Keypoint detector; SIFT by default.")
    max_keypoints: int = Field(2048, ge=8, description="Maximum number of keypoints per image.")


class SharedKeypoints:
    """Images and the keypoints of one detector, read and detected on first use, because pipelines need no keypoints."""

    def __init__(self, detector: Detector, max_keypoints: int) -> None:
        self.detector, self.max_keypoints = detector, max_keypoints
        self._images: dict[Path, NDArray[np.uint8]] = {}
        self._keypoints: dict[Path, tuple[NDArray[np.float32], NDArray[np.float32]]] = {}

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

    def image(self, path: Path) -> NDArray[np.uint8]:
        """Return the grey pixels (H, W) of an image file."""
        if path not in self._images:
            self._images[path] = read_grey(path)
        return self._images[path]

    def keypoints(self, path: Path) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return frames (N, 2, 3) and responses (N,) of an image file."""
        if path not in self._keypoints:
            self._keypoints[path] = self.detector.detect(self.image(path), self.max_keypoints)
        return self._keypoints[path]


class PairMatcher:
    """Match image files with one descriptor or pipeline."""

    def __init__(self, candidate: Candidate, shared: SharedKeypoints) -> None:
        self.candidate, self._shared = candidate, shared
        self._features: dict[Path, Features] = {}

    def features(self, path: Path) -> Features:
        """Return the features of an image file."""
        if path not in self._features:
            image = self._shared.image(path)
            if self.candidate.extractor:
                self._features[path] = self.candidate.extract(image, self._shared.max_keypoints)
            else:
                frames, responses = self._shared.keypoints(path)
                descriptors = self.candidate.describe(image, frames)
                self._features[path] = Features(frames, responses, descriptors, (image.shape[0], image.shape[1]))
        return self._features[path]

    def match(self, path0: Path, path1: Path, ratio: float | None = None) -> Matches:
        """Match two images: mutual nearest neighbours, or the matches of the pipeline, which ignores the ratio."""
        matcher = self.candidate.matcher or NearestNeighbours(None if ratio == 1 else ratio)
        return matcher.match(self.features(path0), self.features(path1))

    def matched_points(
        self, path0: Path, path1: Path, ratio: float | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the positions (M, 2) of the matches in both images, in pixels."""
        xy0, xy1 = self.match(path0, path1, ratio).points(self.features(path0), self.features(path1))
        return xy0.astype(np.float64), xy1.astype(np.float64)
