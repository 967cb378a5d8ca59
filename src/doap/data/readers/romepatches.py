"""RomePatches (Paulin et al., ICCV 2015).

    patch_retrieval_Rome_train.mat          variable `patches`: queries first, then the database
    patch_retrieval_Rome_train_labels.mat   variables `labels_gt` (of the queries) and `labels` (of the database)
    patch_retrieval_Rome_test.mat, …_test_labels.mat

Published: 1,000 queries and 9,000 database patches in each half, 51×51, colour, 0…255. File names are those of the
authors' page; names of variables and the order of queries and database are those of public code that reads the files.
[inferred], for want of the files: the axes of `patches` are (N, 3, height, width) and the channels red, green, blue;
(N, height, width, 3) and (N, height, width) are read too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.data.readers.files import attempt, need_file
from doap.data.readers.unit import Unit, nowhere
from doap.errors import DataError, MissingExtra

SPLITS = ("train", "test")


@dataclass(frozen=True, eq=False)
class RomeSplit:
    """One half of RomePatches.

    Attributes:
        patches: (N, S, S) uint8, grey; the queries come first.
        labels: (N,) the 3-D point of each patch; equal means match.
        queries: how many of the patches are queries; the others are the database they are searched in.
    """

    patches: NDArray[np.uint8]
    labels: NDArray[np.int64]
    queries: int


@dataclass(frozen=True)
class RomePatches:
    """The release; a half is read when it is asked for.

    Attributes:
        root: its folder.
        splits: the halves at hand, of `train` and `test`.
    """

    root: Path
    splits: tuple[str, ...]

    def load(self, split: str) -> RomeSplit:
        """One half, made grey as OpenCV makes it."""
        file, label_file = split_files(self.root, split)
        (stored,) = _read_mat(file, "patches")
        of_queries, of_database = (labels.reshape(-1) for labels in _read_mat(label_file, "labels_gt", "labels"))
        labels = np.concatenate([of_queries, of_database]).astype(np.int64)
        if len(labels) != len(stored):
            raise DataError(f"{label_file}: expected {len(stored)} labels, one a patch, got {len(labels)}")
        return RomeSplit(_grey(stored, file), labels, len(of_queries))

    def units(self, skip: int = 0) -> Iterator[Unit]:
        """One unit a half, its queries and database mixed into groups by label; the first `skip` are not read."""
        for name in self.splits[skip:]:
            split = self.load(name)
            order = np.argsort(split.labels, kind="stable")
            counts = np.unique(split.labels, return_counts=True)[1].astype(np.int64)
            yield Unit(name, name, split.patches[order], counts, nowhere(len(counts)))


def read_romepatches(root: str | Path) -> RomePatches:
    """Open the folder of the release; reads no pixels."""
    root = Path(root)
    splits = tuple(split for split in SPLITS if split_files(root, split)[0].is_file())
    if not splits:
        raise DataError(f"{root}: expected patch_retrieval_Rome_train.mat or …_test.mat, got neither; check the path")
    return RomePatches(root, splits)


def recognise(root: Path) -> bool:
    """Whether this looks like RomePatches, whole or not."""
    return any(root.glob("patch_retrieval_Rome_*.mat"))


def examine(root: Path) -> tuple[str, list[str]]:
    """A summary and all that is wrong with the files; they are read whole, 80 MB each."""
    problems: list[str] = []
    rome = RomePatches(root, SPLITS)
    found = []
    for name in SPLITS:
        split = attempt(problems, rome.load, name)
        if split is not None:
            found.append(f"{name} {len(split.labels):,} patches of {len(np.unique(split.labels)):,} points")
    return f"RomePatches: {', '.join(found) or 'nothing readable'}", problems


def split_files(root: Path, split: str) -> tuple[Path, Path]:
    """The patches of a half, and their labels."""
    stem = f"patch_retrieval_Rome_{split}"
    return root / f"{stem}.mat", root / f"{stem}_labels.mat"


def _read_mat(path: Path, *names: str) -> list[NDArray[Any]]:
    try:
        from scipy.io import loadmat  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtra("scipy", "eval") from error

    need_file(path)
    try:
        variables = loadmat(path, variable_names=names)
    except Exception as error:  # scipy names no set of errors for a damaged file
        raise DataError(f"{path}: expected a MATLAB file of version 7 or older, got another ({error})") from error
    missing = [name for name in names if name not in variables]
    if missing:
        raise DataError(
            f"{path}: expected variables {', '.join(names)}, got no {', '.join(missing)}; is it from RomePatches?"
        )
    return [variables[name] for name in names]


def _grey(stored: NDArray[Any], path: Path) -> NDArray[np.uint8]:
    """(N, S, S) uint8 from patches in colour or grey, of any type that holds 0…255."""
    import cv2

    if stored.ndim == 4 and stored.shape[1] == 3:
        stored = np.moveaxis(stored, 1, -1)
    number, side = stored.shape[:2]
    if stored.shape not in ((number, side, side, 3), (number, side, side)):
        raise DataError(f"{path}: expected patches (N, 3, S, S), got {stored.shape}; convert them first")
    if stored.dtype != np.uint8:
        if stored.min() < 0 or not 1 < stored.max() <= 255:
            raise DataError(f"{path}: expected grey levels 0 to 255, got {stored.min()} to {stored.max()}")
        stored = np.rint(stored)
    pixels = np.ascontiguousarray(stored, np.uint8)
    if pixels.ndim == 3:
        return pixels
    tall = cv2.cvtColor(pixels.reshape(number * side, side, 3), cv2.COLOR_RGB2GRAY)
    return np.asarray(tall, np.uint8).reshape(number, side, side)
