"""RomePatches (Paulin et al., ICCV 2015).

    patch_retrieval_Rome_train.mat          variable `patches`: queries first, then the database
    patch_retrieval_Rome_train_labels.mat   variables `labels_gt` (of the queries) and `labels` (of the database)
    patch_retrieval_Rome_test.mat, …_test_labels.mat

Each half has 1,000 queries and 9,000 database patches of 51×51 pixels, in colour, 0…255. File names
follow the authors' page. Names of variables and the order of queries and database follow public
code that reads the files. The files themselves were not available: the axes (N, 3, H, W) and the
channel order red, green, blue of `patches` are inferred. (N, H, W, 3) and (N, H, W) are read too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import DataError, MissingExtra
from doap.data.readers.files import Unit, need_file, sort_by_point

SPLITS = ("train", "test")


@dataclass(frozen=True, eq=False)
class RomeSplit:
    """One half of RomePatches.

    Attributes:
        patches: (N, S, S) uint8, grey, queries first.
        labels: (N,) 3-D point of each patch. Patches of the same point match.
        queries: Number of queries. All other patches are the database.
    """

    patches: NDArray[np.uint8]
    labels: NDArray[np.int64]
    queries: int


@dataclass(frozen=True)
class RomePatches:
    """The RomePatches dataset. Its halves are loaded on demand.

    Attributes:
        root: Folder of the dataset.
        splits: Available halves, of `train` and `test`.
    """

    root: Path
    splits: tuple[str, ...]

    def load(self, split: str) -> RomeSplit:
        """Return one half, converted to grey like OpenCV does."""
        file, label_file = split_files(self.root, split)
        (stored,) = _read_mat(file, "patches")
        query_labels, database_labels = (labels.reshape(-1) for labels in _read_mat(label_file, "labels_gt", "labels"))
        labels = np.concatenate([query_labels, database_labels]).astype(np.int64)
        if len(labels) != len(stored):
            raise DataError(f"{label_file}: expected {len(stored)} labels, one per patch, got {len(labels)}.")
        return RomeSplit(_grey(stored, file), labels, len(query_labels))

    def units(self, skip: int = 0) -> Iterator[Unit]:
        """Yield one unit per half, grouped by label, without reading the first `skip` halves."""
        for name in self.splits[skip:]:
            split = self.load(name)
            order, counts = sort_by_point(split.labels)
            yield Unit(name, name, split.patches[order], counts)


def read_romepatches(root: str | Path) -> RomePatches:
    """Open the folder of RomePatches without reading pixels.

    patches = read_romepatches("rome").load("train").patches   # (N, 51, 51) uint8
    """
    root = Path(root)
    splits = tuple(split for split in SPLITS if split_files(root, split)[0].is_file())
    if not splits:
        raise DataError(f"{root}: expected patch_retrieval_Rome_train.mat or …_test.mat, got neither. Check the path.")
    return RomePatches(root, splits)


def split_files(root: Path, split: str) -> tuple[Path, Path]:
    """Return the patch file and the label file of a half."""
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
    except Exception as error:  # scipy does not document its errors
        raise DataError(f"{path}: not a MATLAB file of version 7 or older ({error}).") from error
    missing = [name for name in names if name not in variables]
    if missing:
        raise DataError(f"{path}: missing variables {', '.join(missing)}. The file is not from RomePatches.")
    return [variables[name] for name in names]


def _grey(stored: NDArray[Any], path: Path) -> NDArray[np.uint8]:
    """Return grey patches (N, S, S) uint8 from colour or grey ones with values 0…255."""
    import cv2

    if stored.ndim == 4 and stored.shape[1] == 3:
        stored = np.moveaxis(stored, 1, -1)
    number, side = stored.shape[:2]
    if stored.shape not in ((number, side, side, 3), (number, side, side)):
        raise DataError(f"{path}: expected patches (N, 3, S, S), got {stored.shape}. Convert them first.")
    if stored.dtype != np.uint8:
        if stored.min() < 0 or not 1 < stored.max() <= 255:
            raise DataError(f"{path}: expected grey levels 0 to 255, got {stored.min()} to {stored.max()}.")
        stored = np.rint(stored)
    pixels = np.ascontiguousarray(stored, np.uint8)
    if pixels.ndim == 3:
        return pixels
    tall = cv2.cvtColor(pixels.reshape(number * side, side, 3), cv2.COLOR_RGB2GRAY)
    return np.asarray(tall, np.uint8).reshape(number, side, side)
