"""Verification on HPatches: six lists of 1.2 million pairs, each in three forms; see `hpatches`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.evaluation.bootstrap import bootstrap_interval
from doap.evaluation.result import Estimate, Figure, Scores
from doap.evaluation.retrieval import AREA, FORMS, APProtocol
from doap.evaluation.verification import distance_histogram, distances_of_pairs, verification_curves
from doap.functional.metrics import SortedPairs, average_precision_at_ranks, average_precision_of_counts

POSITIVES = 0.2
"""As a share of the negatives: the `imbalanced` variant, whose AP is the headline of the benchmark."""

NOISE = ("easy", "hard", "tough")
IMAGES = 5
SHOWN = "hard, intra"
CELLS = 4096


@dataclass(frozen=True, eq=False)
class Patches:
    """P patches of a task: (P,) the sequence of each, (P,) its row among all patches, (P,) its image, 0 is `ref`."""

    sequence: NDArray[np.int64]
    row: NDArray[np.int64]
    image: NDArray[np.int64]


Pairs = tuple[Patches, Patches]


@dataclass(frozen=True, eq=False)
class Verification:
    """Pairs that match, pairs that do not, by the names `intra` and `inter`, and how many sequences there are."""

    positive: Pairs
    negative: dict[str, Pairs]
    sequences: int


@dataclass(frozen=True, eq=False)
class PairList:
    """(P,) distances, (P,) bool, and (P,) the sequence of the first patch of each pair."""

    distances: Tensor
    positive: Tensor
    sequence: NDArray[np.int64]


def score_verification(task: Verification, described: Tensor, seed: int) -> Scores:
    """Verification of described patches.

    Args:
        task: the pairs.
        described: (R, 16, D), or (R, 16, D/8) uint8, in the order of the strips.
        seed: of the intervals.
    """
    lists = {
        f"{noise}, {kind}": _distances(task.positive, negative, described, level)
        for level, noise in enumerate(NOISE)
        for kind, negative in task.negative.items()
    }
    counted = {name: _count(pairs, task.sequences) for name, pairs in lists.items()}
    spreads = {name: _spread([counts], seed) for name, counts in counted.items()}
    spread = _spread(list(counted.values()), seed)
    figures = []
    for form in FORMS:
        values = {name: pair_precision(pairs.distances, pairs.positive, form) for name, pairs in lists.items()}
        parts = {name: _move(spreads[name], value) for name, value in values.items()}
        total = _move(spread, float(np.mean(list(values.values()))))
        figures.append(Figure(f"verification mAP ({form})", "higher", "sequences", total, parts))
    shown = lists[SHOWN]
    histogram = distance_histogram(shown.distances, shown.positive, whole=described.dtype == torch.uint8)
    return Scores(tuple(figures), verification_curves(shown.distances, shown.positive, f", {SHOWN}"), histogram)


def pair_precision(distances: Tensor, positive: Tensor, form: APProtocol) -> float:
    """AP of pairs (P,); of those that tie `python` has the negatives first and `matlab` the positives."""
    if form == "tie-aware":
        return float(average_precision_of_counts(*SortedPairs(distances, positive).counts()))
    near, far = (distances[kind].sort().values for kind in (positive, ~positive))
    ahead = torch.searchsorted(far, near, right=form == "python")
    return float(average_precision_at_ranks(ahead + torch.arange(1, len(near) + 1), len(near), AREA[form]))


def _distances(positive: Pairs, negative: Pairs, described: Tensor, level: int) -> PairList:
    """A list of the benchmark at one level of noise: the first positives, and all negatives."""
    strips = described.shape[1]
    number = int(POSITIVES * len(negative[0].row))
    ends = []
    for first, second in zip(positive, negative, strict=True):
        row = np.concatenate([first.row[:number], second.row])
        image = np.concatenate([first.image[:number], second.image])
        ends.append(row * strips + np.where(image == 0, 0, level * IMAGES + image))
    distances = distances_of_pairs(described.flatten(0, 1), torch.from_numpy(np.stack(ends, axis=1)))
    sequence = np.concatenate([positive[0].sequence[:number], negative[0].sequence])
    return PairList(distances, torch.arange(len(distances)) < len(distances) - len(negative[0].row), sequence)


def _count(pairs: PairList, units: int) -> tuple[Tensor, Tensor]:
    """Positives (T, U) and negatives (T, U) of each of U sequences in T ≤ `CELLS` runs of the list by distance.

    A resample is then two small products, where a list of its own would be sorted or counted a million pairs long. What
    is not told apart within a run moves AP by about 1e-4, an interval by nothing.
    """
    ordered, order = pairs.distances.sort()
    place = np.arange(len(ordered))
    new = np.concatenate([[True], (ordered[1:] != ordered[:-1]).numpy()])
    # Equal distances stay together.
    cell = np.unique(np.maximum.accumulate(np.where(new, place, 0)) * CELLS // len(ordered), return_inverse=True)[1]
    key = cell * units + pairs.sequence[order.numpy()]
    positive = pairs.positive[order].numpy()
    size = (int(cell[-1]) + 1) * units
    found, other = (torch.from_numpy(np.bincount(key[kind], minlength=size)) for kind in (positive, ~positive))
    return found.view(-1, units).double(), other.view(-1, units).double()


def _spread(lists: Sequence[tuple[Tensor, Tensor]], seed: int) -> Estimate:
    """The mean tie-aware AP of lists of runs, and its interval over sequences."""

    def mean(weights: NDArray[np.float64]) -> float:
        times = torch.from_numpy(weights)
        return float(np.mean([average_precision_of_counts(found @ times, other @ times) for found, other in lists]))

    return bootstrap_interval(mean, lists[0][0].shape[1], seed)


def _move(spread: Estimate, value: float) -> Estimate:
    """The interval around another value: forms of AP differ by less than sequences do, and spread alike."""
    low, high = (min(max(end + value - spread.value, 0.0), 1.0) for end in (spread.low, spread.high))
    return replace(spread, value=value, low=low, high=high)
