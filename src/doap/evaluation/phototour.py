"""Benchmark `phototour`: UBC PhotoTour (Brown).

    FPR95             FPR95 on the list of pairs that the literature uses, `m50_100000_100000_0.txt`; mean over sets.
    verification AP   AP of the same pairs, expected over random orders of ties.

Published results cover six combinations of a training and a test set. They come from three descriptors, each
evaluated on the two sets it was not trained on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap._support.errors import DataError
from doap.data.readers import PhotoTour, read_phototour
from doap.data.readers.phototour import INFO
from doap.evaluation.benchmark import BenchmarkSettings, dataset_of
from doap.evaluation.candidates import Candidate, Needs
from doap.evaluation.result import Scores
from doap.evaluation.verification import (
    distance_histogram,
    distances_of_pairs,
    verification_curves,
    verification_figures,
)
from doap.metrics.metrics import SortedPairs
from doap.types import Progress, no_progress

PAIRS = "m50_100000_100000_0.txt"
PATCHES_AT_ONCE = 16_384


class PhotoTourBenchmark:
    """One to three sets of PhotoTour. Pixels are read when they are described.

    `root` is the folder of one set, or a folder of liberty, notredame and yosemite, or some of them.
    """

    Settings = BenchmarkSettings
    name = "phototour"
    needs: Needs = "patches"

    def __init__(self, root: str | Path, /, *, progress: Progress = no_progress, **settings: object) -> None:
        self.Settings.parse(settings)
        root = Path(root)
        self.tours = {folder.name: read_phototour(folder) for folder in _find_sets(root)}
        self.pairs = {name: tour.pairs(PAIRS) for name, tour in self.tours.items()}
        self.dataset = dataset_of(root, self._files(progress))
        self.protocol: dict[str, Any] = {
            "sets": list(self.tours),
            "pairs": PAIRS,
            "mean": "over the sets",
            "ties of FPR95": "pessimistic, what accepting the threshold costs; optimistic and expected as named",
            "ties of AP": "expected",
            "resampled": "pairs within the sets; the sets are fixed",
        }

    def evaluate(self, candidate: Candidate, seed: int) -> Scores:
        """Score the pairs."""
        scored: dict[str, tuple[Tensor, Tensor]] = {}
        for name, (pairs, positive) in self.pairs.items():
            needed = np.unique(pairs)
            descriptors = _describe(candidate, self.tours[name], needed)
            rows = torch.from_numpy(np.searchsorted(needed, pairs))
            scored[name] = distances_of_pairs(descriptors, rows), torch.from_numpy(positive)
        figures = verification_figures({name: SortedPairs(*some) for name, some in scored.items()}, seed)
        curves = [curve for name, some in scored.items() for curve in verification_curves(*some, f", {name}")]
        distances, matching = (torch.cat(part) for part in zip(*scored.values(), strict=True))
        histogram = distance_histogram(distances, matching, whole=candidate.kind == "binary")
        return Scores(figures, tuple(curves), histogram)

    def _files(self, progress: Progress) -> Iterator[Path]:
        """Yield the files that the figures depend on."""
        for number, (name, tour) in enumerate(self.tours.items()):
            progress(number, len(self.tours), name)
            yield from (*tour.sheets, tour.root / "info.txt", tour.root / PAIRS)


def _find_sets(root: Path) -> Sequence[Path]:
    folders = [root] if (root / INFO).is_file() else sorted(info.parent for info in root.glob(f"*/{INFO}"))
    if not folders:
        raise DataError(f"{root}: expected a PhotoTour set such as liberty, or a folder of them. Check the path.")
    return folders


def _describe(candidate: Candidate, tour: PhotoTour, indices: NDArray[np.int64]) -> Tensor:
    """Describe some patches of a set in chunks: the pixels of a whole set take 2 GB."""
    parts = [indices[start : start + PATCHES_AT_ONCE] for start in range(0, len(indices), PATCHES_AT_ONCE)]
    return torch.cat([candidate.describe_patches(tour.load(part)) for part in parts])
