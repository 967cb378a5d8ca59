"""A descriptor, a detector and a benchmark that doap finds by name when this package is installed."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import torch
from torch.nn.functional import avg_pool2d, normalize

from doap.data import open_set
from doap.describer import FunctionDescriber
from doap.detectors import OpenCVDetector
from doap.evaluation import BenchmarkSettings
from doap.evaluation.bootstrap import bootstrap_mean
from doap.evaluation.result import Dataset, Figure, Scores
from doap.metrics import table_distances


def thumbnail() -> FunctionDescriber:
    """An 8 × 8 thumbnail of the patch with zero mean and unit length."""

    def describe(patches: torch.Tensor) -> torch.Tensor:
        pixels = avg_pool2d(patches, 4).flatten(1)
        return normalize(pixels - pixels.mean(dim=1, keepdim=True))

    return FunctionDescriber(describe, patch_size=32, name="thumbnail")


def corners() -> OpenCVDetector:
    """Upright corners (Shi and Tomasi, 1994), with patches of 24 pixels."""
    return OpenCVDetector("corners", find_corners, magnification=8.0)


def find_corners(image):
    """Return the `cv2.KeyPoint`s of a grey image (H, W); each has the size 3."""
    return cv2.GFTTDetector.create(maxCorners=1000).detect(image)


class DarkerBenchmark:
    """Match 100 darkened patches with the original ones."""

    Settings, name, needs = BenchmarkSettings, "darker", "patches"

    def __init__(self, root, /, *, progress=None, **settings):  # noqa: ARG002 - 100 patches need no progress
        self.Settings.parse(settings)  # refuses all: there are none
        patch_set = open_set(root)
        self.patches = patch_set.gather(np.arange(100))
        self.dataset = Dataset(Path(root).name, sha256=patch_set.meta["sha256"]["patches.npy"])
        self.protocol = {"patches": 100, "brightness": 0.25, "ties": "first"}

    def evaluate(self, describer, seed):
        dark, bright = describer.describe_patches(self.patches // 4), describer.describe_patches(self.patches)
        correct = table_distances(dark, bright).argmin(dim=1) == torch.arange(100)
        return Scores((Figure("accuracy", "higher", "patches", bootstrap_mean(correct.double(), seed)),))
