"""What the readers of published datasets share: tables of numbers, and the units in which patches are converted."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import DataError


class Unit(NamedTuple):
    """A part of a dataset that fits in memory and consists of whole groups.

    Attributes:
        name: Name of the unit, unique in its dataset.
        scene: Name of the scene. Units may share a scene.
        patches: (N, S, S) uint8, ordered by group.
        counts: (G,) number of patches of each group; they sum to N.
    """

    name: str
    scene: str
    patches: NDArray[np.uint8]
    counts: NDArray[np.int64]


def sort_by_point(points: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the patches (N,) sorted by their points (N,), and the number of patches (G,) of each point."""
    return np.argsort(points, kind="stable"), np.unique(points, return_counts=True)[1].astype(np.int64)


def need_file(path: Path) -> Path:
    """Return the path if the file exists."""
    if not path.is_file():
        raise DataError(f"{path}: no such file. Check that the dataset is complete.")
    return path


def read_numbers(path: Path, columns: Sequence[int] | None = None) -> NDArray[np.float64]:
    """Return some or all columns of a text file of numbers as an array (rows, columns)."""
    try:
        with warnings.catch_warnings():
            # numpy warns about an empty file, which is an error below.
            warnings.simplefilter("ignore")
            table = np.loadtxt(need_file(path), usecols=columns, ndmin=2, dtype=np.float64)
    except ValueError as error:
        raise DataError(f"{path}: expected rows of numbers ({error}).") from error
    if not table.size:
        raise DataError(f"{path}: expected rows of numbers, got an empty file. Download it again.")
    return table
