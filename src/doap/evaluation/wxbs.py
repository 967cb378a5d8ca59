"""Benchmark `wxbs`: fundamental matrices of WxBS, with changes of viewpoint, appearance, light and sensor at once.

See `doap.evaluation.wide_baseline` for matching and estimation. The accuracy of a pair is the share of its annotated
correspondences whose symmetric epipolar distance to the estimated fundamental matrix is within the threshold. As in the
authors' code, this distance is the root of the sum of the squared distances to the epipolar lines in both images.

Two choices differ from the authors' code. It averages 0, 1, …, 19 pixels only in a plot; mAA over 1…10 pixels is the
common summary. It keeps all correspondences; here those whose cross-validation error (distance to the geometry of all
others) exceeds the largest threshold, 10 pixels, are dropped, because they cannot show whether an estimate is right.

The building of `kyiv_dolltheater` and `kyiv_dolltheater2` is also a training scene of the shipped descriptors. The
figure `mAA without kyiv_dolltheater` leaves both pairs out.

About 30 pairs with 10 to 60 correspondences each cannot separate similar methods. Many pairs are beyond any descriptor
of single keypoints, and an upright pair is easier for methods that assume upright images.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from doap._support.errors import DataError
from doap.data.readers.files import read_numbers
from doap.evaluation.cached_describer import CachedDescriber, Needs
from doap.evaluation.result import Scores
from doap.evaluation.wide_baseline import (
    WideBaselineMatcher,
    WideBaselineSettings,
    accuracy,
    dataset_of,
    find_image,
    mean_accuracy_figure,
    score_pairs,
)
from doap.types import Progress, no_progress

Floats = NDArray[np.float64]

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

    class Settings(WideBaselineSettings):
        """Settings of the benchmark `wxbs`."""

    name = "wxbs"
    needs: Needs = "images"

    def __init__(self, root: str | Path, /, *, progress: Progress = no_progress, **settings: object) -> None:
        self.pairs = read_wxbs(root)
        paths = [pair.paths for pair in self.pairs]
        self._matcher = WideBaselineMatcher(self.Settings.parse(settings), "fundamental", paths, progress)
        truth = [pair.folder / file for pair in self.pairs for file in ("corrs.txt", "crossval_errors.txt")]
        self.dataset = dataset_of(root, [*(path for pair in paths for path in pair), *truth])
        self.protocol = {
            **self._matcher.protocol(),
            "error": "symmetric epipolar distance of annotated correspondences",
            "maximum cross-validation error": MAX_ANNOTATION_ERROR,
        }

    def evaluate(self, describer: CachedDescriber, seed: int) -> Scores:
        """Score the fundamental matrices of one descriptor."""
        matrices = self._matcher.geometries(describer, [pair.paths for pair in self.pairs])
        accuracies = {
            pair.name: accuracy(None if matrix is None else epipolar_distances(pair.points, matrix))
            for pair, matrix in zip(self.pairs, matrices, strict=True)
        }
        categories = dict.fromkeys(pair.category for pair in self.pairs)
        parts = {name: [pair.name for pair in self.pairs if pair.category == name] for name in categories}
        scores = score_pairs(accuracies, parts, seed)
        unseen = [pair.name for pair in self.pairs if not pair.folder.name.startswith(TRAINING_SCENE)]
        if not unseen:
            return scores
        name = f"mAA without {TRAINING_SCENE}"
        without = mean_accuracy_figure(name, {pair: accuracies[pair] for pair in unseen}, {}, seed)
        return Scores((*scores.figures, without), scores.curves)


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
    return AnnotatedPair(folder.parent.name, folder, (find_image(folder, "01"), find_image(folder, "02")), kept)
