"""RomePatches: patch retrieval in two halves, `train` and `test`.

    mAP                each query of a half searches its database: 1,000 and 9,000 patches when published, 9 matches
    mAP, all patches   each patch of a half searches all the others of it: 10,000 queries, 9 matches

The files keep queries and database apart, so the first is how they are meant; the paper says only that a half is 10,000
patches in groups of 10, which can be read as the second. Ties count by their expectation; intervals are over groups.

The total is of the test half alone: a mean of the half to train on and of the half to test on would say nothing. Where
there is no test half, it is of the other; the protocol says which.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from doap.data.readers import RomeSplit, read_romepatches
from doap.data.readers.romepatches import split_files
from doap.errors import DataError
from doap.evaluation.bootstrap import bootstrap_mean
from doap.evaluation.cached_describer import CachedDescriber
from doap.evaluation.checksum import checksum
from doap.evaluation.result import Dataset, Figure, Scores
from doap.evaluation.retrieval import precision_by_label
from doap.types import Progress, no_progress

READINGS = ("mAP", "mAP, all patches")


@dataclass(frozen=True, eq=False)
class Search:
    """Rows of a half that ask, each with a match, and rows that are searched."""

    queries: NDArray[np.int64]
    gallery: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Half:
    """The patches of a half, and what is searched in them, by the names of `READINGS`."""

    split: RomeSplit
    searches: dict[str, Search]


@dataclass(frozen=True, eq=False)
class RomePatchesBenchmark:
    """The halves at hand, ready to judge on; see `open_romepatches`."""

    dataset: Dataset
    protocol: dict[str, Any]
    halves: dict[str, Half]
    name: str = "romepatches"

    def judge(self, describe: CachedDescriber, seed: int) -> Scores:
        """mAP in both readings of the task."""
        parts: dict[str, dict[str, Any]] = {reading: {} for reading in READINGS}
        for name, half in self.halves.items():
            described, labels = describe.patches(half.split.patches), torch.from_numpy(half.split.labels)
            for reading, search in half.searches.items():
                rows = (torch.from_numpy(rows) for rows in (search.queries, search.gallery))
                precision = precision_by_label(described, labels, *rows).numpy()
                groups = half.split.labels[search.queries]
                parts[reading][name] = bootstrap_mean(precision, seed, clusters=groups)
        total = self.protocol["total"]
        return Scores(tuple(Figure(reading, "higher", "groups", part[total], part) for reading, part in parts.items()))


def open_romepatches(root: str | Path, *, progress: Progress = no_progress) -> RomePatchesBenchmark:
    """Open RomePatches as a benchmark.

    Args:
        root: the folder of the release, with one half or both.
        progress: told which half is being read.
    """
    root = Path(root)
    release = read_romepatches(root)
    halves = {}
    for number, name in enumerate(release.splits):
        progress(number, len(release.splits), name)
        halves[name] = _half(root, release.load(name))
    progress(len(release.splits), len(release.splits), "done")
    skipped = {
        f"{reading}, {name}": asked - len(half.searches[reading].queries)
        for name, half in halves.items()
        for reading, asked in zip(READINGS, (half.split.queries, len(half.split.labels)), strict=True)
    }
    protocol = {
        "mAP": "each query in the database of its half",
        "mAP, all patches": "each patch among the others of its half",
        "total": "test" if "test" in halves else "train",
        "ties": "expected",
        "queries without a match, left out": {name: count for name, count in skipped.items() if count},
    }
    files = [file for name in halves for file in split_files(root, name)]
    return RomePatchesBenchmark(Dataset(root.resolve().name, checksum(files)), protocol, halves)


def _half(root: Path, split: RomeSplit) -> Half:
    everyone = np.arange(len(split.labels))
    galleries = (everyone[split.queries :], everyone)
    searches = {}
    for reading, asking, gallery in zip(READINGS, (everyone[: split.queries], everyone), galleries, strict=True):
        found, count = np.unique(split.labels[gallery], return_counts=True)
        # A query that is searched itself needs another of its label.
        others = dict(zip(found.tolist(), (count - (reading == READINGS[1])).tolist(), strict=True))
        matched = np.array([others.get(label, 0) > 0 for label in split.labels[asking].tolist()], bool)
        if not matched.any():
            raise DataError(
                f"{root}: expected patches of one label, for queries to find, got none; is it from RomePatches?"
            )
        searches[reading] = Search(asking[matched], gallery)
    return Half(split, searches)
