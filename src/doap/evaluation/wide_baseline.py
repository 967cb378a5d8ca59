"""Image pairs with an extreme change between the two images: common parts of the benchmarks `wxbs` and `evd`.

Keypoints are detected once for all descriptors, in images of full size. Mutual nearest neighbours that pass the ratio
test give a fundamental matrix or a homography (MAGSAC++). The ratio threshold is fixed: these are test sets, on which
nothing is selected.

mAA is the mean accuracy over error thresholds of 1, 2, …, 10 pixels. A pair without an estimate has the accuracy 0.
Each pair shows a scene of its own, so intervals resample pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from doap._support.errors import DataError
from doap.evaluation.bootstrap import bootstrap_mean
from doap.evaluation.cached_describer import CachedDescriber
from doap.evaluation.checksum import checksum
from doap.evaluation.pair_matcher import KeypointSettings, PairMatcher, SharedKeypoints
from doap.evaluation.result import Curve, Dataset, Figure, Scores
from doap.geometry import GeometryModel, estimate_geometry
from doap.types import Progress

Floats = NDArray[np.float64]

THRESHOLDS = np.arange(1, 11)
"""Error thresholds of mAA in pixels."""


class WideBaselineSettings(KeypointSettings):
    """Settings of the benchmarks `wxbs` and `evd`."""

    ratio: float = Field(0.9, gt=0, le=1, description="Threshold of the ratio test.")
    threshold: float = Field(1.0, gt=0, description="Inlier threshold of RANSAC in pixels.")


def accuracy(errors: Floats | None) -> Floats:
    """Return the share (10,) of errors (n,) within each of the thresholds; 0 without an estimate.

    >>> accuracy(np.array([0.5, 1.5, 30.0, 3.0])).tolist()
    [0.25, 0.5, 0.75, 0.75, 0.75, 0.75, 0.75, 0.75, 0.75, 0.75]
    """
    if errors is None:
        return np.zeros(len(THRESHOLDS))
    return np.asarray((errors[:, None] <= THRESHOLDS).mean(axis=0))


class WideBaselineMatcher:
    """Shared keypoints of a set of image pairs, and the geometry that a descriptor's matches give.

    Args:
        settings: Settings of the benchmark.
        model: Geometry to estimate.
        pairs: Image files of each pair.
        progress: Progress callback.
    """

    def __init__(
        self,
        settings: WideBaselineSettings,
        model: GeometryModel,
        pairs: Sequence[tuple[Path, Path]],
        progress: Progress,
    ) -> None:
        self.settings, self.model = settings, model
        self._shared = SharedKeypoints(settings.detector, settings.max_keypoints)
        paths = [path for pair in pairs for path in pair]
        self._shared.read(paths, progress)

    def geometries(
        self, describer: CachedDescriber, pairs: Sequence[tuple[Path, Path]]
    ) -> list[NDArray[np.float64] | None]:
        """Return the matrix (3, 3) of each pair, in pixels of the files; None without an estimate."""
        matcher = PairMatcher(describer, self._shared)
        found = []
        for pair in pairs:
            xy0, xy1 = matcher.matched_points(*pair, self.settings.ratio if matcher.ratios else None)
            found.append(estimate_geometry(xy0, xy1, self.model, threshold=self.settings.threshold).matrix)
        return found

    def protocol(self) -> dict[str, Any]:
        """Return the choices that both benchmarks share."""
        settings = self.settings
        return {
            **self._shared.protocol(),
            "matches": "mutual nearest neighbours that pass the ratio test",
            "ratio": settings.ratio,
            "estimator": f"{self.model}, MAGSAC++, {settings.threshold:g} px",
            "thresholds of mAA": THRESHOLDS.tolist(),
            "resampled": "pairs of images",
        }


def score_pairs(accuracies: Mapping[str, Floats], parts: Mapping[str, Sequence[str]], seed: int) -> Scores:
    """Return mAA and the curve of the accuracy.

    Args:
        accuracies: (10,) accuracies at the thresholds, by pair.
        parts: Pairs of each part of the figure.
        seed: Seed of the bootstrap.
    """
    figure = mean_accuracy_figure("mAA", accuracies, parts, seed)
    means = np.mean(list(accuracies.values()), axis=0)
    points = list(zip(THRESHOLDS.astype(float).tolist(), means.tolist(), strict=True))
    return Scores((figure,), (Curve("accuracy", "threshold in pixels", "accuracy", points),))


def mean_accuracy_figure(
    name: str, accuracies: Mapping[str, Floats], parts: Mapping[str, Sequence[str]], seed: int
) -> Figure:
    """Return the mean accuracy over thresholds and pairs, in total and by part."""
    means = {pair: float(values.mean()) for pair, values in accuracies.items()}
    by_part = {part: bootstrap_mean([means[pair] for pair in pairs], seed) for part, pairs in parts.items()}
    return Figure(name, "higher", "pairs of images", bootstrap_mean(list(means.values()), seed), by_part)


def find_image(folder: Path, stem: str) -> Path:
    """Return the image file of a name without its ending."""
    for ending in (".png", ".jpg"):
        if (path := folder / f"{stem}{ending}").is_file():
            return path
    raise DataError(f"{folder}: expected an image {stem}.png or {stem}.jpg, got none.")


def dataset_of(root: str | Path, files: Sequence[Path]) -> Dataset:
    """Return the name of a dataset's folder and the checksum of its files."""
    return Dataset(Path(root).resolve().name, checksum(files))
