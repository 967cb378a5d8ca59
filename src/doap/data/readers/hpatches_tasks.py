"""The task files of the HPatches benchmark.

    tasks/splits/splits.json                            test, and for a, b, c also train, sequences of each split
    tasks/retr_{queries,distractors}_split-a.csv        s,idx: patches of the strip `ref`
    tasks/verif_{pos,neg_intra,neg_inter}_split-a.csv   s1,t1,idx1,s2,t2,idx2: pairs of patches

The matching task has no file: it compares every reference patch of a test sequence with those of each other strip.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.data.readers.files import attempt, need_file
from doap.errors import DataError

RETRIEVAL = ("retr_queries", "retr_distractors")
VERIFICATION = ("verif_pos", "verif_neg_intra", "verif_neg_inter")


@dataclass(frozen=True)
class Split:
    """Names of sequences; `train` is empty in illum, view and full, which only judge."""

    name: str
    train: tuple[str, ...]
    test: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class PatchList:
    """P patches of HPatches, as the task files name them.

    Attributes:
        names: the sequences that occur.
        sequence: (P,) place in `names`.
        image: (P,) 0 is the strip `ref`; k in 1…5 is e_k, h_k or t_k: one file serves the three levels of noise.
        index: (P,) place of the patch in its strip.
    """

    names: tuple[str, ...]
    sequence: NDArray[np.int64]
    image: NDArray[np.int64]
    index: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True)
class RetrievalTask:
    """Queries and distractors, all of the strip `ref`; a query's matches are its five patches in e, h or t."""

    queries: PatchList
    distractors: PatchList


@dataclass(frozen=True)
class VerificationTask:
    """Pairs, as two lists of one length: matches, non-matches within a sequence, non-matches across sequences."""

    positive: tuple[PatchList, PatchList]
    negative_intra: tuple[PatchList, PatchList]
    negative_inter: tuple[PatchList, PatchList]


def read_splits(path: str | Path) -> dict[str, Split]:
    """The splits by name, from splits.json or the folder of the tasks that holds it."""
    path = Path(path)
    path = need_file(path if path.suffix == ".json" else _splits_file(path))
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: Split(name, tuple(split.get("train", ())), tuple(split["test"])) for name, split in stored.items()
        }
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DataError(
            f"{path}: expected splits with a list `test`, got others ({error!r}); fetch it again"
        ) from error


def read_retrieval(folder: str | Path, split: str) -> RetrievalTask:
    """The retrieval task of a split: 10,000 queries and 20,000 distractors in the published files."""
    queries, distractors = (_read_patches(task_file(folder, kind, split)) for kind in RETRIEVAL)
    return RetrievalTask(queries, distractors)


def read_verification(folder: str | Path, split: str) -> VerificationTask:
    """The verification task of a split: three lists of a million pairs in the published files."""
    positive, intra, inter = (_read_pairs(task_file(folder, kind, split)) for kind in VERIFICATION)
    return VerificationTask(positive, intra, inter)


def recognise(root: Path) -> bool:
    """Whether this looks like the folder of the tasks, whole or not."""
    return _splits_file(root).is_file() or any(root.glob("retr_*_split-*.csv")) or any(root.glob("verif_*_split-*.csv"))


def examine(root: Path) -> tuple[str, list[str]]:
    """A summary and all that is wrong with the task files."""
    problems: list[str] = []
    splits = attempt(problems, read_splits, root) or {}
    found = 0
    for task in (RETRIEVAL, VERIFICATION):
        # A split with one file of a task must have them all.
        names = {path.stem.split("_split-")[1] for kind in task for path in root.glob(f"{kind}_split-*.csv")}
        for file, split in ((task_file(root, kind, name), name) for name in sorted(names) for kind in task):
            lists = attempt(problems, _read_lists, file) or ()
            found += bool(lists)
            named = {name for patches in lists for name in patches.names}
            foreign = named.difference(splits[split].test if split in splits else named)
            if foreign:
                problems.append(f"{file}: expected test sequences of split {split}, got {', '.join(sorted(foreign))}")
    return f"HPatches tasks: {len(splits)} splits, {found} lists of patches", problems


def _splits_file(folder: Path) -> Path:
    beside = folder / "splits.json"
    return beside if beside.is_file() else folder / "splits" / "splits.json"


def task_file(folder: str | Path, kind: str, split: str) -> Path:
    """Where a list of a task is; `kind` is one of `RETRIEVAL` or `VERIFICATION`."""
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
    """A pyarrow table of these columns: `s…` are strings, the others integers."""
    import pyarrow as pa
    from pyarrow import csv

    types = {name: pa.string() if name.startswith("s") else pa.int64() for name in columns}
    try:
        table = csv.read_csv(need_file(path), convert_options=csv.ConvertOptions(column_types=types))
    except pa.ArrowInvalid as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: expected rows {','.join(columns)}, got others ({reason})") from error
    if tuple(table.column_names) != columns or not len(table):
        found = ",".join(table.column_names)
        raise DataError(f"{path}: expected a header {','.join(columns)} and rows, got {found} and {len(table)} rows")
    return table


def _patch_list(path: Path, sequence: Any, image: Any, index: Any) -> PatchList:
    encoded = sequence.combine_chunks().dictionary_encode()
    image, index = np.asarray(image, np.int64), np.asarray(index, np.int64)
    if image.min() < 0 or image.max() > 5 or index.min() < 0:
        raise DataError(f"{path}: expected images 0 to 5 and patches from 0, got others; fetch it again")
    return PatchList(tuple(encoded.dictionary.to_pylist()), np.asarray(encoded.indices, np.int64), image, index)
