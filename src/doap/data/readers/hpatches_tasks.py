"""The task files of the HPatches benchmark.

    tasks/splits/splits.json                            test sequences, and train sequences of a, b, c
    tasks/retr_{queries,distractors}_split-a.csv        s,idx: patches of the strip `ref`
    tasks/verif_{pos,neg_intra,neg_inter}_split-a.csv   s1,t1,idx1,s2,t2,idx2: pairs of patches

The matching task has no file. It matches the reference patches of a test sequence with each other
strip.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import DataError
from doap.data.readers.files import attempt, need_file

RETRIEVAL = ("retr_queries", "retr_distractors")
VERIFICATION = ("verif_pos", "verif_neg_intra", "verif_neg_inter")


@dataclass(frozen=True)
class Split:
    """Sequences of a split. `train` is empty for illum, view and full, which are for testing only."""

    name: str
    train: tuple[str, ...]
    test: tuple[str, ...]


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

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True)
class RetrievalTask:
    """Queries and distractors of the strip `ref`. A query matches its five patches in e, h or t."""

    queries: PatchList
    distractors: PatchList


@dataclass(frozen=True)
class VerificationTask:
    """Pairs as two lists: matches, non-matches within a sequence, non-matches across sequences."""

    positive: tuple[PatchList, PatchList]
    negative_intra: tuple[PatchList, PatchList]
    negative_inter: tuple[PatchList, PatchList]


def read_splits(path: str | Path) -> dict[str, Split]:
    """Return the splits by name, from splits.json or the folder of the tasks."""
    path = Path(path)
    path = need_file(path if path.suffix == ".json" else _splits_file(path))
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: Split(name, tuple(split.get("train", ())), tuple(split["test"])) for name, split in stored.items()
        }
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DataError(f"{path}: expected splits with a list `test` ({error!r}). Download it again.") from error


def read_retrieval(folder: str | Path, split: str) -> RetrievalTask:
    """Read the retrieval task of a split: 10,000 queries and 20,000 distractors as published."""
    queries, distractors = (_read_patches(task_file(folder, kind, split)) for kind in RETRIEVAL)
    return RetrievalTask(queries, distractors)


def read_verification(folder: str | Path, split: str) -> VerificationTask:
    """Read the verification task of a split: three lists of a million pairs as published."""
    positive, intra, inter = (_read_pairs(task_file(folder, kind, split)) for kind in VERIFICATION)
    return VerificationTask(positive, intra, inter)


def recognise(root: Path) -> bool:
    """Return whether a folder contains HPatches tasks, complete or not."""
    return _splits_file(root).is_file() or any(root.glob("retr_*_split-*.csv")) or any(root.glob("verif_*_split-*.csv"))


def examine(root: Path) -> tuple[str, list[str]]:
    """Return a summary and all problems of the task files."""
    problems: list[str] = []
    splits = attempt(problems, read_splits, root) or {}
    found = 0
    for task in (RETRIEVAL, VERIFICATION):
        # A split with one file of a task must have all of them.
        names = {path.stem.split("_split-")[1] for kind in task for path in root.glob(f"{kind}_split-*.csv")}
        for split, kind in product(sorted(names), task):
            file = task_file(root, kind, split)
            lists = attempt(problems, _read_lists, file) or ()
            found += bool(lists)
            sequences = {name for patches in lists for name in patches.names}
            unknown = sequences.difference(splits[split].test) if split in splits else set()
            if unknown:
                problems.append(f"{file}: expected test sequences of split {split}, got {', '.join(sorted(unknown))}.")
    return f"HPatches tasks: {len(splits)} splits, {found} lists of patches", problems


def _splits_file(folder: Path) -> Path:
    beside = folder / "splits.json"
    return beside if beside.is_file() else folder / "splits" / "splits.json"


def task_file(folder: str | Path, kind: str, split: str) -> Path:
    """Return the path of a task file; `kind` is one of `RETRIEVAL` or `VERIFICATION`."""
    return Path(folder) / f"{kind}_split-{split}.csv"


def _read_lists(path: Path) -> tuple[PatchList, ...]:
    return (_read_patches(path),) if path.name.startswith("retr") else _read_pairs(path)


def _read_patches(path: Path) -> PatchList:
    table = _read_csv(path, ("s", "idx"))
    return _patch_list(path, table["s"], np.zeros(len(table), np.int64), table["idx"])


def _read_pairs(path: Path) -> tuple[PatchList, PatchList]:
    table = _read_csv(path, ("s1", "t1", "idx1", "s2", "t2", "idx2"))
    first, second = (_patch_list(path, table["s" + k], table["t" + k], table["idx" + k]) for k in "12")
    return first, second


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
