"""Benchmark `speed`: CPU time of a descriptor or pipeline on the photos of a folder.

    ms per 1,000 keypoints   Description of given keypoints, including the extraction of patches. A descriptor with its
                             own detector, or a pipeline, cannot separate the two: it is its detection and description.
    × SIFT                   The same figure, divided by that of OpenCV's `SIFT.compute`, measured beside it.
    s per image              Detection and description.
    s per pair               Matching only: mutual nearest neighbours, or the matcher of the pipeline.

OpenCV's descriptors are timed as OpenCV's users run them, with one call for all keypoints of `cv2.SIFT.detect`. The
other benchmarks describe the shared keypoints one by one, which is slower.

Each time is the minimum over several runs, after a first run that is not measured. One thread is used, but
ONNX Runtime keeps the number of threads it was opened with.

Times are only comparable if they were measured side by side on one machine that does nothing else. The ratio to SIFT is
the figure to quote.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from doap._support.errors import ArgumentError, DataError
from doap.detectors import sift
from doap.evaluation.benchmark import BenchmarkSettings, DetectorSetting, dataset_of
from doap.evaluation.bootstrap import bootstrap_interval, bootstrap_mean
from doap.evaluation.candidates import Candidate, Needs, extract_whole
from doap.evaluation.image_pair import Photo
from doap.evaluation.result import Figure, Scores
from doap.images import list_images, read_grey
from doap.matching import NearestNeighbours
from doap.types import Features, Progress, no_progress

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class PhotoTimes:
    """Times of one photo in seconds.

    Attributes:
        description: Description of the features; with their detection if the describer has its own detector.
        detection: Detection of shared keypoints; 0 if the describer has its own detector.
        sift: `SIFT.compute` of OpenCV's own keypoints.
        sift_keypoints: Number of these keypoints.
    """

    features: Features
    description: float
    detection: float
    sift: float
    sift_keypoints: int


class SpeedBenchmark:
    """Photos with shared keypoints. `root` is a folder of two or more photos."""

    class Settings(BenchmarkSettings):
        """Settings of the benchmark `speed`."""

        detector: DetectorSetting = Field(default_factory=sift, description="Keypoint detector; SIFT by default.")
        max_keypoints: int = Field(2048, ge=1, description="Maximum number of keypoints per image.")
        photos: int = Field(10, ge=2, description="Number of photos of the folder, the first by name.")
        repeats: int = Field(3, ge=1, description="Number of measurements; the minimum counts.")

    name = "speed"
    needs: Needs = "images"

    def __init__(self, root: str | Path, /, *, progress: Progress = no_progress, **settings: object) -> None:
        self.settings = chosen = self.Settings.parse(settings)
        paths = list_images(root)[: chosen.photos]
        if len(paths) < 2:
            raise DataError(f"{root}: expected 2 or more photos, to match them, got {len(paths)}.")
        self.photos: list[Photo] = []
        for number, path in enumerate(paths):
            progress(number, len(paths), path.name)
            image = read_grey(path)
            frames, _ = chosen.detector.detect(image, chosen.max_keypoints)
            if not len(frames):
                raise DataError(f"{path}: {chosen.detector.name} detects no keypoints in this photo. Remove it.")
            self.photos.append(Photo(image, frames))
        progress(len(paths), len(paths), "done")
        self.dataset = dataset_of(root, paths)
        self.protocol: dict[str, Any] = {
            "detector": chosen.detector.name,
            "magnification": chosen.detector.magnification,
            "keypoints of an image": chosen.max_keypoints,
            "photos": len(paths),
            "pairs": "each photo and the next, the last and the first",
            "threads": 1,
            "time": f"minimum of {chosen.repeats} runs after a first one",
            "processor": platform.processor() or platform.machine(),
        }

    def evaluate(self, candidate: Candidate, seed: int) -> Scores:
        """Measure one descriptor or pipeline, and SIFT beside it."""
        matcher = candidate.matcher or NearestNeighbours()
        with one_thread():
            self._process(candidate, self.photos[0])
            times = [self._measure(candidate, photo) for photo in self.photos]
            features = [one.features for one in times]
            pairs = list(zip(features, [*features[1:], features[0]], strict=True))
            matcher.match(*pairs[0])
            matching = [self._shortest(partial(matcher.match, *pair))[1] for pair in pairs]
        return Scores(_figures(times, matching, seed))

    def _measure(self, measured: Candidate, photo: Photo) -> PhotoTimes:
        detection = 0.0
        if not measured.extractor:
            detector, limit = self.settings.detector, self.settings.max_keypoints
            detection = self._shortest(lambda: detector.detect(photo.image, limit))[1]
        keypoints = cv2.SIFT.create(nfeatures=self.settings.max_keypoints).detect(photo.image)
        sift_time = self._shortest(lambda: cv2.SIFT.create().compute(photo.image, keypoints))[1]
        if compute := measured.compute_natively:
            native = self._shortest(lambda: compute(photo.image, keypoints))[1]
            features = self._process(measured, photo)
            # The time of as many keypoints as the features have.
            description = native * len(features) / max(len(keypoints), 1)
        else:
            features, description = self._shortest(lambda: self._process(measured, photo))
        if not len(features):
            raise ArgumentError(f"{measured.name}: the pipeline detects no keypoints in a photo. Remove flat photos.")
        return PhotoTimes(features, description, detection, sift_time, len(keypoints))

    def _process(self, measured: Candidate, photo: Photo) -> Features:
        """Describe the shared keypoints of a photo, or those of the candidate's own detector."""
        if measured.extractor:
            features = extract_whole(measured.extractor, photo.image, self.settings.max_keypoints)
        else:
            assert measured.describer is not None
            responses, size = np.zeros(len(photo.frames), np.float32), (photo.image.shape[0], photo.image.shape[1])
            features = Features(photo.frames, responses, measured.describer.describe(photo.image, photo.frames), size)
        if features.descriptors.device.type != "cpu":
            raise ArgumentError(f"device: expected the CPU, got {features.descriptors.device}. Run with --device cpu.")
        return features

    def _shortest(self, run: Callable[[], T]) -> tuple[T, float]:
        """Run a function several times; return its last output and the shortest time in seconds."""
        shortest = np.inf
        for _ in range(self.settings.repeats):
            begin = time.perf_counter()
            output = run()
            shortest = min(shortest, time.perf_counter() - begin)
        return output, shortest


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit PyTorch and OpenCV to one thread for a while."""
    before_torch, before_opencv = torch.get_num_threads(), cv2.getNumThreads()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before_torch)
        cv2.setNumThreads(before_opencv)


def _figures(times: list[PhotoTimes], matching: list[float], seed: int) -> tuple[Figure, ...]:
    description = np.array([one.description for one in times])
    per_image = np.array([one.detection for one in times]) + description
    keypoints = np.array([len(one.features) for one in times])
    sift_times = np.array([one.sift for one in times])
    sift_keypoints = np.array([one.sift_keypoints for one in times])

    def milliseconds(weights: NDArray[np.float64]) -> float:
        # One second per keypoint is 10⁶ milliseconds per 1,000.
        return float(1e6 * (weights @ description) / (weights @ keypoints))

    def ratio(weights: NDArray[np.float64]) -> float:
        return milliseconds(weights) / float(1e6 * (weights @ sift_times) / (weights @ sift_keypoints))

    return (
        Figure("ms per 1,000 keypoints", "lower", "photos", bootstrap_interval(milliseconds, len(times), seed)),
        Figure("× SIFT", "lower", "photos", bootstrap_interval(ratio, len(times), seed)),
        Figure("s per image", "lower", "photos", bootstrap_mean(per_image, seed)),
        Figure("s per pair", "lower", "pairs of photos", bootstrap_mean(matching, seed)),
    )
