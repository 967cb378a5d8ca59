"""Benchmark `wxbs`: fundamental matrices of WxBS, with changes of viewpoint, appearance, light and sensor at once.

Keypoints are detected once for all descriptors, in images of full size. Mutual nearest neighbours that pass the ratio
test give a fundamental matrix (MAGSAC++). The ratio threshold is fixed: this is a test set, on which nothing is
selected. The accuracy of a pair is the share of its annotated correspondences whose symmetric epipolar distance to the
estimate is within a threshold, and 0 without an estimate. As in the authors' code, this distance is the root of the sum
of the squared distances to the epipolar lines in both images. mAA is the mean accuracy over 1, 2, …, 10 pixels.

Two choices differ from the authors' code. It averages 0, 1, …, 19 pixels only in a plot; mAA over 1…10 pixels is the
common summary. It keeps all correspondences; here those whose cross-validation error (distance to the geometry of all
others) exceeds the largest threshold, 10 pixels, are dropped, because they cannot show whether an estimate is right.

The building of `kyiv_dolltheater` and `kyiv_dolltheater2` is also a training scene of the shipped descriptors. The
figure `mAA without kyiv_dolltheater` leaves both pairs out.

Each pair shows a scene of its own, so intervals resample pairs. About 30 pairs with 10 to 60 correspondences each
cannot separate similar methods. Many pairs are beyond any descriptor of single keypoints, and an upright pair is easier
for methods that assume upright images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from doap._support.errors import DataError
from doap.data.readers.files import read_numbers
from doap.evaluation.benchmark import dataset_of
from doap.evaluation.bootstrap import bootstrap_mean
from doap.evaluation.candidates import Candidate, Needs
from doap.evaluation.homography import matching_accuracy
from doap.evaluation.pair_matcher import KeypointSettings, PairMatcher, SharedKeypoints
from doap.evaluation.result import Curve, Figure, Scores
from doap.geometry import estimate_geometry
from doap.types import Progress, no_progress

Floats = NDArray[np.float64]

RATIO = 0.9
"""Threshold of the ratio test."""
INLIER = 1.0
"""Inlier threshold of RANSAC in pixels."""
THRESHOLDS = np.arange(1, 11)
"""Error thresholds of mAA in pixels."""
MAX_ANNOTATION_ERROR = 10.0
"""Maximum cross-validation error of an annotated correspondence in pixels."""
TRAINING_SCENE = "kyiv_dolltheater"
"""Beginning of the names of pairs that show a training scene."""


@dataclass(frozen=True, eq=False)
class AnnotatedPair:
    """Two images with annotated correspondences.

    Attributes:
        category: Kind of change between the images.
        folder: Folder of the pair.
        paths: The images.
        points: (n, 4) correspondences x₀, y₀, x₁, y₁.
    """

    category: str
    folder: Path
    paths: tuple[Path, Path]
    points: Floats

    @property
    def name(self) -> str:
        """Name of the pair, with its category, because names repeat."""
        return f"{self.category}/{self.folder.name}"


class WxbsBenchmark:
    """Pairs of WxBS: ROOT/CATEGORY/NAME with 01 and 02 (.jpg or .png), corrs.txt and crossval_errors.txt."""

    Settings = KeypointSettings
    name = "wxbs"
    needs: Needs = "images"

    def __init__(self, root: str | Path, /, *, progress: Progress = no_progress, **settings: object) -> None:
        chosen = self.Settings.parse(settings)
        self.pairs = read_wxbs(root)
        self._shared = SharedKeypoints(chosen.detector, chosen.max_keypoints)
        paths = [path for pair in self.pairs for path in pair.paths]
        self._shared.read(paths, progress)
        truth = [pair.folder / file for pair in self.pairs for file in ("corrs.txt", "crossval_errors.txt")]
        self.dataset = dataset_of(root, [*paths, *truth])
        self.protocol = {
            **self._shared.protocol(),
            "matches": "mutual nearest neighbours that pass the ratio test",
            "ratio": RATIO,
            "estimator": f"fundamental, MAGSAC++, {INLIER:g} px",
            "thresholds of mAA": THRESHOLDS.tolist(),
            "resampled": "pairs of images",
            "error": "symmetric epipolar distance of annotated correspondences",
            "maximum cross-validation error": MAX_ANNOTATION_ERROR,
        }

    def evaluate(self, candidate: Candidate, seed: int) -> Scores:
        """Score the fundamental matrices of one descriptor."""
        matcher = PairMatcher(candidate, self._shared)
        accuracies = {pair: self._accuracy(matcher, pair) for pair in self.pairs}
        figures = [_figure("mAA", accuracies, seed, by_category=True)]
        unseen = {pair: own for pair, own in accuracies.items() if not pair.folder.name.startswith(TRAINING_SCENE)}
        if unseen:
            figures.append(_figure(f"mAA without {TRAINING_SCENE}", unseen, seed, by_category=False))
        means = np.mean(list(accuracies.values()), axis=0)
        points = list(zip(THRESHOLDS.astype(float).tolist(), means.tolist(), strict=True))
        return Scores(tuple(figures), (Curve("accuracy", "threshold in pixels", "accuracy", points),))

    def _accuracy(self, matcher: PairMatcher, pair: AnnotatedPair) -> Floats:
        """Return the share (10,) of a pair's correspondences that agree with the estimate, at each threshold."""
        xy0, xy1 = matcher.matched_points(*pair.paths, RATIO)
        matrix = estimate_geometry(xy0, xy1, "fundamental", threshold=INLIER).matrix
        errors = np.empty(0) if matrix is None else epipolar_distances(pair.points, matrix)
        return matching_accuracy(errors, THRESHOLDS)


def _figure(name: str, accuracies: Mapping[AnnotatedPair, Floats], seed: int, *, by_category: bool) -> Figure:
    """Return the mean accuracy over thresholds and pairs."""
    means = {pair: float(values.mean()) for pair, values in accuracies.items()}
    categories = dict.fromkeys(pair.category for pair in accuracies) if by_category else {}
    parts = {
        category: bootstrap_mean([mean for pair, mean in means.items() if pair.category == category], seed)
        for category in categories
    }
    return Figure(name, "higher", "pairs of images", bootstrap_mean(list(means.values()), seed), parts)


def read_wxbs(root: str | Path) -> list[AnnotatedPair]:
    """Read all pairs of a folder in the format of WxBS, sorted by category and name."""
    folders = sorted(file.parent for file in Path(root).glob("*/*/corrs.txt"))
    if not folders:
        raise DataError(f"{root}: expected pairs of WxBS as CATEGORY/NAME/corrs.txt, got none.")
    return [_read_pair(folder) for folder in folders]


def epipolar_distances(points: ArrayLike, fundamental: ArrayLike) -> Floats:
    """Return the symmetric epipolar distances (n,) of correspondences (n, 4) in pixels: √(d₀² + d₁²).

    Args:
        points: (n, 4) x₀, y₀, x₁, y₁.
        fundamental: (3, 3) matrix with x₁ᵀ·F·x₀ = 0.
    """
    numbers, matrix = np.asarray(points, np.float64), np.asarray(fundamental, np.float64)
    ones = np.ones((len(numbers), 1))
    homogeneous0, homogeneous1 = np.hstack([numbers[:, :2], ones]), np.hstack([numbers[:, 2:], ones])
    lines1, lines0 = homogeneous0 @ matrix.T, homogeneous1 @ matrix
    residuals = (homogeneous1 * lines1).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = residuals**2 * (1 / (lines0[:, :2] ** 2).sum(axis=1) + 1 / (lines1[:, :2] ** 2).sum(axis=1))
    # A point on the epipole has no epipolar line: no estimate is right about it.
    return np.asarray(np.sqrt(np.nan_to_num(squares, nan=np.inf, posinf=np.inf)))


def _read_pair(folder: Path) -> AnnotatedPair:
    points, errors = read_numbers(folder / "corrs.txt"), read_numbers(folder / "crossval_errors.txt")
    if points.shape[1] != 4:
        raise DataError(f"{folder / 'corrs.txt'}, line 1: expected 4 numbers x1 y1 x2 y2, got {points.shape[1]}.")
    if errors.size != len(points):
        file = folder / "crossval_errors.txt"
        raise DataError(f"{file}: expected {len(points)} numbers, one for each line of corrs.txt, got {errors.size}.")
    kept = points[errors.ravel() <= MAX_ANNOTATION_ERROR]
    if not len(kept):
        raise DataError(f"{folder}: no correspondence has a cross-validation error up to {MAX_ANNOTATION_ERROR:g} px.")
    return AnnotatedPair(folder.parent.name, folder, (_find_image(folder, "01"), _find_image(folder, "02")), kept)


def _find_image(folder: Path, stem: str) -> Path:
    for ending in (".png", ".jpg"):
        if (path := folder / f"{stem}{ending}").is_file():
            return path
    raise DataError(f"{folder}: expected an image {stem}.png or {stem}.jpg, got none.")
