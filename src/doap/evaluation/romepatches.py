"""Benchmark `romepatches`: patch retrieval in the two halves of RomePatches, `train` and `test`.

    mAP                Each query of a half searches the database of that half; as published 1,000 queries, 9,000
                       database patches and 9 matches per query.
    mAP, all patches   Each patch of a half searches all other patches of it: 10,000 queries, 9 matches each.

The release stores queries and database in separate files, which suggests the first reading. The paper only mentions
10,000 patches in groups of 10 per half, which also allows the second. AP is expected over random orders of ties, and
intervals resample groups.

The total is that of the test half. If the release has no test half, it is that of the train half; the protocol
records which.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from doap._support.errors import DataError
from doap.data.readers import RomeSplit, read_romepatches
from doap.data.readers.romepatches import split_files
from doap.evaluation.benchmark import BenchmarkSettings
from doap.evaluation.bootstrap import bootstrap_mean
from doap.evaluation.candidates import Candidate, Needs
from doap.evaluation.checksum import checksum
from doap.evaluation.result import Dataset, Estimate, Figure, Scores
from doap.evaluation.retrieval import precision_by_label
from doap.types import Progress, no_progress

DATABASE, ALL_PATCHES = "mAP", "mAP, all patches"
READINGS = (DATABASE, ALL_PATCHES)


@dataclass(frozen=True, eq=False)
class Search:
    """Rows of a half that are queries, each with a match, and rows that are searched."""

    queries: NDArray[np.int64]
    gallery: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Half:
    """The patches of a half and its searches, by the names in `READINGS`."""

    split: RomeSplit
    searches: dict[str, Search]


class RomePatchesBenchmark:
    """One or both halves of RomePatches. `root` is the folder of the release."""

    class Settings(BenchmarkSettings):
        """The benchmark `romepatches` has no settings."""

    name = "romepatches"
    needs: Needs = "patches"

    def __init__(self, root: str | Path, /, *, progress: Progress = no_progress, **settings: object) -> None:
        self.Settings.parse(settings)
        root = Path(root)
        release = read_romepatches(root)
        self.halves: dict[str, Half] = {}
        for number, name in enumerate(release.splits):
            progress(number, len(release.splits), name)
            self.halves[name] = _half(root, release.load(name))
        progress(len(release.splits), len(release.splits), "done")
        files = [file for name in self.halves for file in split_files(root, name)]
        self.dataset = Dataset(root.resolve().name, checksum(files))
        self.protocol: dict[str, Any] = {
            DATABASE: "each query in the database of its half",
            ALL_PATCHES: "each patch among the others of its half",
            "total": "test" if "test" in self.halves else "train",
            "ties": "expected",
            "resampled": "groups; all of them are from photos of Rome",
            "queries without a match, left out": _left_out(self.halves),
        }

    def evaluate(self, candidate: Candidate, seed: int) -> Scores:
        """Score both readings of the task on each half."""
        parts: dict[str, dict[str, Estimate]] = {reading: {} for reading in READINGS}
        for name, half in self.halves.items():
            descriptors, labels = candidate.describe_patches(half.split.patches), half.split.labels
            for reading, search in half.searches.items():
                queries, gallery = torch.from_numpy(search.queries), torch.from_numpy(search.gallery)
                precision = precision_by_label(descriptors, torch.from_numpy(labels), queries, gallery).numpy()
                parts[reading][name] = bootstrap_mean(precision, seed, clusters=labels[search.queries])
        total = self.protocol["total"]
        return Scores(tuple(Figure(reading, "higher", "groups", part[total], part) for reading, part in parts.items()))


def _half(root: Path, split: RomeSplit) -> Half:
    rows = np.arange(len(split.labels))
    queries, database = rows[: split.queries], rows[split.queries :]
    searches = {DATABASE: _search(root, split, queries, database), ALL_PATCHES: _search(root, split, rows, rows)}
    return Half(split, searches)


def _search(root: Path, split: RomeSplit, queries: NDArray[np.int64], gallery: NDArray[np.int64]) -> Search:
    """Keep the queries that have a match in the gallery besides themselves."""
    patches_of = Counter(split.labels[gallery].tolist())
    itself = np.isin(queries, gallery).tolist()
    labels = split.labels[queries].tolist()
    matched = np.array([patches_of[label] > in_gallery for label, in_gallery in zip(labels, itself, strict=True)], bool)
    if not matched.any():
        raise DataError(f"{root}: no query has a match. Check that the files are from RomePatches.")
    return Search(queries[matched], gallery)


def _left_out(halves: dict[str, Half]) -> dict[str, int]:
    """Count the queries without a match, by reading and half."""
    counts = {}
    for name, half in halves.items():
        for reading, queries in ((DATABASE, half.split.queries), (ALL_PATCHES, len(half.split.labels))):
            counts[f"{reading}, {name}"] = queries - len(half.searches[reading].queries)
    return {name: count for name, count in counts.items() if count}
