"""Benchmark `romepatches`: patch retrieval in the two halves of RomePatches, `train` and `test`.

Each query of a half searches the database of that half; as published 1,000 queries, 9,000 database patches and 9
matches per query. AP is expected over random orders of ties, and intervals resample groups. The total is that of the
test half; if the release has none, that of the train half.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap._support.errors import DataError
from doap.data.readers import read_romepatches
from doap.data.readers.romepatches import split_files
from doap.evaluation.benchmark import BenchmarkSettings, dataset_of
from doap.evaluation.bootstrap import bootstrap_mean
from doap.evaluation.candidates import Candidate, Needs
from doap.evaluation.result import Figure, Scores
from doap.metrics.average_precision import average_precision_by_counting
from doap.metrics.distance import table_distances, widened
from doap.metrics.pairs import rows_at_a_time
from doap.types import Progress, no_progress


class RomePatchesBenchmark:
    """One or both halves of RomePatches. `root` is the folder of the release."""

    Settings = BenchmarkSettings
    name = "romepatches"
    needs: Needs = "patches"

    def __init__(self, root: str | Path, /, *, progress: Progress = no_progress, **settings: object) -> None:
        self.Settings.parse(settings)
        root = Path(root)
        release = read_romepatches(root)
        self.halves = {}
        left_out = {}
        for number, name in enumerate(release.splits):
            progress(number, len(release.splits), name)
            half = self.halves[name] = release.load(name)
            left_out[name] = half.queries - len(matched_queries(half.labels, half.queries))
            if left_out[name] == half.queries:
                raise DataError(f"{root}: no query has a match. Check that the files are from RomePatches.")
        progress(len(release.splits), len(release.splits), "done")
        self.dataset = dataset_of(root, [file for name in self.halves for file in split_files(root, name)])
        self.protocol: dict[str, Any] = {
            "mAP": "each query in the database of its half",
            "total": "test" if "test" in self.halves else "train",
            "ties": "expected",
            "resampled": "groups; all of them are from photos of Rome",
            "queries without a match, left out": left_out,
        }

    def evaluate(self, candidate: Candidate, seed: int) -> Scores:
        """Score the retrieval on each half."""
        parts = {}
        for name, half in self.halves.items():
            descriptors, rows = candidate.describe_patches(half.patches), matched_queries(half.labels, half.queries)
            precision = query_precision(descriptors, half.labels, rows, half.queries)
            parts[name] = bootstrap_mean(precision, seed, clusters=half.labels[rows])
        return Scores((Figure("mAP", "higher", "groups", parts[self.protocol["total"]], parts),))


def matched_queries(labels: NDArray[np.int64], queries: int) -> NDArray[np.intp]:
    """Return the rows of the queries that have a match; the first `queries` labels are theirs."""
    return np.flatnonzero(np.isin(labels[:queries], labels[queries:]))


def query_precision(
    descriptors: Tensor, labels: NDArray[np.int64], rows: NDArray[np.intp], queries: int
) -> NDArray[np.float64]:
    """Return the AP (Q,) of queries in the database, where equal labels match, expected over random orders of ties.

    Args:
        descriptors: (M, D) float32 or (M, D/8) uint8, queries first.
        labels: (M,) labels.
        rows: (Q,) queries to score, each with a match.
        queries: Number of all queries; the other rows are the database.
    """
    descriptors, all_labels = widened(descriptors), torch.from_numpy(labels)
    database = descriptors[queries:]
    blocks = []
    for some in torch.from_numpy(rows).split(rows_at_a_time(database)):
        same = all_labels[some, None] == all_labels[queries:]
        blocks.append(average_precision_by_counting(table_distances(descriptors[some], database), same, ~same))
    return np.asarray(torch.cat(blocks).numpy())
