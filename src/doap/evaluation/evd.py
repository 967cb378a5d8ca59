"""Benchmark `evd`: homographies of the Extreme View Dataset, with viewpoint changes that tilt a plane by up to 80°.

See `doap.evaluation.wide_baseline` for matching and estimation. The error of a pair follows the code of the dataset's
authors: the mean distance between the true and the estimated position in image 1, over the pixels of image 0 that the
true homography maps into image 1. Here a grid of every fourth pixel stands for all. Corner errors would measure an
extrapolation, because the images share only a part of the plane. The accuracy of a pair is 1 within a threshold and 0
above it. mAA is the mean over 1…10 pixels; the authors use ten logarithmic steps from 1 to 20 pixels.

Fifteen pairs cannot separate similar methods. Without affine shape or synthetic views, detectors hardly repeat at
these angles, so most methods score 0: OpenCV's SIFT detector with RootSIFT does on all 15 pairs. Such a table does
not compare descriptors; it shows where descriptors alone do not help.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import DataError
from doap.data.readers.files import read_numbers
from doap.evaluation.cached_describer import CachedDescriber, Needs
from doap.evaluation.homography import project, reprojection_errors
from doap.evaluation.result import Scores
from doap.evaluation.wide_baseline import (
    WideBaselineMatcher,
    WideBaselineSettings,
    accuracy,
    dataset_of,
    find_image,
    score_pairs,
)
from doap.images import read_grey
from doap.types import Progress, no_progress

Floats = NDArray[np.float64]

GRID_STEP = 4
"""Distance of the points at which the error is measured, in pixels of image 0."""


@dataclass(frozen=True, eq=False)
class PlanarPair:
    """Two images of a plane.

    Attributes:
        name: Name of the pair.
        paths: The images.
        homography: (3, 3) from image 0 to image 1.
        grid: (n, 2) points of image 0 that image 1 shows.
    """

    name: str
    paths: tuple[Path, Path]
    homography: Floats
    grid: Floats


class EvdBenchmark:
    """Pairs of EVD: ROOT/1/NAME and ROOT/2/NAME (.jpg or .png), and the homography ROOT/h/NAME.txt."""

    class Settings(WideBaselineSettings):
        """Settings of the benchmark `evd`."""

    name = "evd"
    needs: Needs = "images"

    def __init__(self, root: str | Path, /, *, progress: Progress = no_progress, **settings: object) -> None:
        self.pairs = read_evd(root)
        paths = [pair.paths for pair in self.pairs]
        self._matcher = WideBaselineMatcher(self.Settings.parse(settings), "homography", paths, progress)
        truth = [Path(root) / "h" / f"{pair.name}.txt" for pair in self.pairs]
        self.dataset = dataset_of(root, [*(path for pair in paths for path in pair), *truth])
        self.protocol = {
            **self._matcher.protocol(),
            "error": f"mean reprojection error of a grid of {GRID_STEP} px in the shared part of image 0",
        }

    def evaluate(self, describer: CachedDescriber, seed: int) -> Scores:
        """Score the homographies of one descriptor."""
        matrices = self._matcher.geometries(describer, [pair.paths for pair in self.pairs])
        accuracies = {
            pair.name: accuracy(None if matrix is None else np.array([grid_error(pair, matrix)]))
            for pair, matrix in zip(self.pairs, matrices, strict=True)
        }
        return score_pairs(accuracies, {name: [name] for name in accuracies}, seed)


def grid_error(pair: PlanarPair, estimated: Floats) -> float:
    """Return the mean distance between the true and the estimated positions of the grid, in pixels of image 1."""
    return float(reprojection_errors(pair.grid, project(pair.grid, pair.homography), estimated).mean())


def read_evd(root: str | Path) -> list[PlanarPair]:
    """Read all pairs of a folder in the format of EVD, sorted by name."""
    root = Path(root)
    files = sorted((root / "h").glob("*.txt"))
    if not files:
        raise DataError(f"{root}: expected homographies of EVD as h/NAME.txt, got none.")
    return [_read_pair(root, file) for file in files]


def _read_pair(root: Path, file: Path) -> PlanarPair:
    homography = read_numbers(file)
    if homography.shape != (3, 3) or not np.isfinite(homography).all() or np.linalg.det(homography) == 0:
        raise DataError(f"{file}: expected an invertible 3×3 matrix, got {homography.tolist()}. Download it again.")
    paths = find_image(root / "1", file.stem), find_image(root / "2", file.stem)
    sizes = read_grey(paths[0]).shape, read_grey(paths[1]).shape
    grid = _shared_grid(homography, *sizes)
    if not len(grid):
        expected = f"a homography that maps a part of {paths[0]} into {paths[1]}"
        raise DataError(f"{file}: expected {expected}, got none of it. Download it again.")
    return PlanarPair(file.stem, paths, homography, grid)


def _shared_grid(homography: Floats, size0: tuple[int, ...], size1: tuple[int, ...]) -> Floats:
    """Return the points (n, 2) of a grid over image 0 that lie inside image 1."""
    y, x = np.mgrid[0 : size0[0] : GRID_STEP, 0 : size0[1] : GRID_STEP]
    points = np.column_stack([x.ravel(), y.ravel()]).astype(np.float64)
    projected = project(points, homography)
    # Comparisons with NaN are false, so points at infinity are outside.
    return points[((projected >= 0) & (projected <= np.array([size1[1] - 1, size1[0] - 1]))).all(axis=1)]
