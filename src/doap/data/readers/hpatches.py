"""HPatches: the patches, and the task files of its benchmark.

    hpatches-release/v_wall/ref.png          n patches of 65×65, stacked vertically: a strip (65·n, 65)
    hpatches-release/v_wall/e1.png … t5.png  the same patches in the other five images: easy, hard, tough
    tasks/splits/splits.json                 test sequences of each split
    tasks/retr_{queries,distractors}_split-a.csv        s,idx: patches of the strip `ref`
    tasks/verif_{pos,neg_intra,neg_inter}_split-a.csv   s1,t1,idx1,s2,t2,idx2: pairs of patches

The matching task has no file. It matches the reference patches of a test sequence with each other strip.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import DataError
from doap.data.readers.files import Unit, need_file
from doap.images import read_grey

SIDE = 65
STRIPS = ("ref", *(difficulty + str(image) for difficulty in "eht" for image in range(1, 6)))
RETRIEVAL = ("retr_queries", "retr_distractors")
VERIFICATION = ("verif_pos", "verif_neg_intra", "verif_neg_inter")


@dataclass(frozen=True)
class HPatches:
    """The patches of HPatches. Sequences are loaded on demand.

    Attributes:
        root: Folder of the dataset.
        sequences: Sorted names: `i_…` with changes of illumination, `v_…` with changes of viewpoint.
    """

    root: Path
    sequences: tuple[str, ...]

    def load(self, sequence: str) -> NDArray[np.uint8]:
        """Return (n, 16, 65, 65): n groups with patches in the order ref, e1…e5, h1…h5, t1…t5."""
        if sequence not in self.sequences:
            raise DataError(f"{self.root}: no sequence {sequence!r} among {len(self.sequences)} sequences.")
        strips = [_read_strip(self.root / sequence / f"{strip}.png") for strip in STRIPS]
        lengths = {len(strip) for strip in strips}
        if len(lengths) > 1:
            raise DataError(
                f"{self.root / sequence}: expected strips of one length, got {min(lengths)} to {max(lengths)} patches. "
                "Download it again."
            )
        return np.stack(strips, axis=1)

    def count(self, sequence: str) -> int:
        """Return the number of groups of a sequence, from its strip `ref`."""
        path = self.root / sequence / "ref.png"
        return _check_strip(path, read_grey(path).shape)

    def units(self, skip: int = 0) -> Iterator[Unit]:
        """Yield one unit per sequence, with groups of 16, without reading the first `skip` sequences."""
        for name in self.sequences[skip:]:
            groups = self.load(name)
            yield Unit(name, name, groups.reshape(-1, SIDE, SIDE), np.full(len(groups), len(STRIPS), np.int64))


@dataclass(frozen=True, eq=False)
class PatchList:
    """P patches of HPatches, as listed in a task file.

    Attributes:
        names: Names of the sequences that occur.
        sequence: (P,) index into `names`.
        image: (P,) 0 for the strip `ref`; k in 1…5 for e_k, h_k and t_k, which share a file.
        index: (P,) index of the patch in its strip.
    """

    names: tuple[str, ...]
    sequence: NDArray[np.int64]
    image: NDArray[np.int64]
    index: NDArray[np.int64]


def read_hpatches(root: str | Path) -> HPatches:
    """Open the folder of the HPatches patches without reading pixels.

    groups = read_hpatches("hpatches-release").load("v_wall")   # (n, 16, 65, 65) uint8
    """
    root = Path(root)
    # The full images of HPatches use the same names of folders.
    sequences = tuple(sorted({strip.parent.name for strip in root.glob("[iv]_*/*.png") if strip.stem in STRIPS}))
    if not sequences:
        raise DataError(f"{root}: expected folders i_… or v_… with strips such as ref.png, got none. Check the path.")
    return HPatches(root, sequences)


def read_splits(folder: str | Path) -> dict[str, tuple[str, ...]]:
    """Return the test sequences of each split, from splits.json in the folder of the tasks."""
    path = Path(folder) / "splits.json"
    path = need_file(path if path.is_file() else Path(folder) / "splits" / "splits.json")
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return {name: tuple(split["test"]) for name, split in stored.items()}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DataError(f"{path}: expected splits with a list `test` ({error!r}). Download it again.") from error


def task_file(folder: str | Path, kind: str, split: str) -> Path:
    """Return the path of a task file; `kind` is one of `RETRIEVAL` or `VERIFICATION`."""
    return Path(folder) / f"{kind}_split-{split}.csv"


def read_patch_list(path: Path) -> PatchList:
    """Read a file of the retrieval task: patches of the strip `ref`."""
    table = _read_csv(path, ("s", "idx"))
    return _patch_list(path, table["s"], np.zeros(len(table), np.int64), table["idx"])


def read_patch_pairs(path: Path) -> tuple[PatchList, PatchList]:
    """Read a file of the verification task: pairs of patches, as two lists."""
    table = _read_csv(path, ("s1", "t1", "idx1", "s2", "t2", "idx2"))
    first, second = (_patch_list(path, table["s" + k], table["t" + k], table["idx" + k]) for k in "12")
    return first, second


def _read_strip(path: Path) -> NDArray[np.uint8]:
    image = read_grey(path)
    _check_strip(path, image.shape)
    return image.reshape(-1, SIDE, SIDE)


def _check_strip(path: Path, size: tuple[int, ...]) -> int:
    """Return the number of patches of a strip (height, width)."""
    height, width = size
    if width != SIDE or height % SIDE or not height:
        raise DataError(f"{path}: expected a strip ({SIDE}·n, {SIDE}), got {size}. Download it again.")
    return height // SIDE


def _read_csv(path: Path, columns: tuple[str, ...]) -> Any:
    """Return a pyarrow table of these columns: `s…` are strings, all others integers."""
    import pyarrow as pa
    from pyarrow import csv

    types = {name: pa.string() if name.startswith("s") else pa.int64() for name in columns}
    try:
        table = csv.read_csv(need_file(path), convert_options=csv.ConvertOptions(column_types=types))
    except pa.ArrowInvalid as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: expected rows {','.join(columns)} ({reason}).") from error
    if tuple(table.column_names) != columns or not len(table):
        found = ",".join(table.column_names)
        raise DataError(f"{path}: expected a header {','.join(columns)} and rows, got {found} and {len(table)} rows.")
    return table


def _patch_list(path: Path, sequence: Any, image: Any, index: Any) -> PatchList:
    encoded = sequence.combine_chunks().dictionary_encode()
    image, index = np.asarray(image, np.int64), np.asarray(index, np.int64)
    if image.min() < 0 or image.max() > 5 or index.min() < 0:
        raise DataError(f"{path}: expected images 0 to 5 and non-negative patch indices. Download it again.")
    return PatchList(tuple(encoded.dictionary.to_pylist()), np.asarray(encoded.indices, np.int64), image, index)
