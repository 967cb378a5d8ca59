"""Verification on HPatches: six lists of 1.2 million pairs, each with three AP protocols; see `hpatches`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.evaluation.bootstrap import bootstrap_interval
from doap.evaluation.result import Estimate, Figure, Scores
from doap.evaluation.retrieval import AP_PROTOCOLS, AREA, APProtocol
from doap.evaluation.verification import distance_histogram, distances_of_pairs, verification_curves
from doap.metrics.metrics import SortedPairs, average_precision_at_ranks, average_precision_of_counts

POSITIVES = 0.2
"""Positives per negative: the `imbalanced` variant, whose AP is the headline of the benchmark."""

NOISE = ("easy", "hard", "tough")
IMAGES = 5
"""Images of a sequence besides the reference image."""
CURVES_OF = "hard, intra"
"""List of pairs whose curves and histogram are shown."""
MAX_CELLS = 4096


@dataclass(frozen=True, eq=False)
class TaskPatches:
    """P patches of a task file.

    Attributes:
        sequence: (P,) index of the sequence.
        row: (P,) row among the patches of all sequences.
        image: (P,) image of the sequence; 0 is `ref`.
    """

    sequence: NDArray[np.int64]
    row: NDArray[np.int64]
    image: NDArray[np.int64]


TaskPairs = tuple[TaskPatches, TaskPatches]


@dataclass(frozen=True, eq=False)
class Verification:
    """The verification task.

    Attributes:
        positive: Matching pairs.
        negative: Non-matching pairs, `intra` (of one sequence) and `inter` (of two).
        sequences: Number of sequences.
    """

    positive: TaskPairs
    negative: dict[str, TaskPairs]
    sequences: int


@dataclass(frozen=True, eq=False)
class PairList:
    """One list of pairs: (P,) distances, (P,) bool, and (P,) sequence of the first patch of each pair."""

    distances: Tensor
    positive: Tensor
    sequence: NDArray[np.int64]


def score_verification(task: Verification, descriptors: Tensor, seed: int) -> Scores:
    """Score the verification task.

    Args:
        task: Pairs of the task.
        descriptors: (R, 16, D), or (R, 16, D/8) uint8, in the order of the strips.
        seed: Seed of the bootstrap over sequences.
    """
    lists = {
        f"{noise}, {kind}": _pair_list(task.positive, negative, descriptors, level)
        for level, noise in enumerate(NOISE)
        for kind, negative in task.negative.items()
    }
    counts = {name: _count_by_sequence(pairs, task.sequences) for name, pairs in lists.items()}
    spread_by_list = {name: _spread([one], seed) for name, one in counts.items()}
    spread = _spread(list(counts.values()), seed)
    figures = []
    for protocol in AP_PROTOCOLS:
        values = {name: pair_precision(pairs.distances, pairs.positive, protocol) for name, pairs in lists.items()}
        parts = {name: _shift(spread_by_list[name], value) for name, value in values.items()}
        total = _shift(spread, float(np.mean(list(values.values()))))
        figures.append(Figure(f"verification mAP ({protocol})", "higher", "sequences", total, parts))
    shown = lists[CURVES_OF]
    curves = verification_curves(shown.distances, shown.positive, f", {CURVES_OF}")
    histogram = distance_histogram(shown.distances, shown.positive, whole=descriptors.dtype == torch.uint8)
    return Scores(tuple(figures), curves, histogram)


def pair_precision(distances: Tensor, positive: Tensor, protocol: APProtocol) -> float:
    """Return the AP of (P,) pairs; `python` ranks negatives first among ties, `matlab` positives."""
    if protocol == "tie-aware":
        return float(average_precision_of_counts(*SortedPairs(distances, positive).counts()))
    near, far = (distances[kind].sort().values for kind in (positive, ~positive))
    negatives_before = torch.searchsorted(far, near, right=protocol == "python")
    ranks = negatives_before + torch.arange(1, len(near) + 1)
    return float(average_precision_at_ranks(ranks, len(near), AREA[protocol]))


def _pair_list(positive: TaskPairs, negative: TaskPairs, descriptors: Tensor, level: int) -> PairList:
    """Return a list of the benchmark at one noise level: the first positives and all negatives."""
    strips = descriptors.shape[1]
    negatives = len(negative[0].row)
    positives = int(POSITIVES * negatives)
    ends = []
    for matching, non_matching in zip(positive, negative, strict=True):
        row = np.concatenate([matching.row[:positives], non_matching.row])
        image = np.concatenate([matching.image[:positives], non_matching.image])
        strip = np.where(image == 0, 0, level * IMAGES + image)
        ends.append(row * strips + strip)
    distances = distances_of_pairs(descriptors.flatten(0, 1), torch.from_numpy(np.stack(ends, axis=1)))
    sequence = np.concatenate([positive[0].sequence[:positives], negative[0].sequence])
    return PairList(distances, torch.arange(len(distances)) < len(distances) - negatives, sequence)


def _count_by_sequence(pairs: PairList, units: int) -> tuple[Tensor, Tensor]:
    """Count the positives (T, U) and negatives (T, U) of U sequences in T ≤ `MAX_CELLS` cells of distance.

    With these counts a bootstrap resample costs two small matrix products instead of sorting a million
    pairs. Order within a cell is lost, which changes AP by about 1e-4.
    """
    ordered, order = pairs.distances.sort()
    index = np.arange(len(ordered))
    is_new = np.concatenate([[True], (ordered[1:] != ordered[:-1]).numpy()])
    # Equal distances get the cell of the first of them.
    first_equal = np.maximum.accumulate(np.where(is_new, index, 0))
    cell = np.unique(first_equal * MAX_CELLS // len(ordered), return_inverse=True)[1]
    key = cell * units + pairs.sequence[order.numpy()]
    positive = pairs.positive[order].numpy()
    size = (int(cell[-1]) + 1) * units
    positives, negatives = (torch.from_numpy(np.bincount(key[kind], minlength=size)) for kind in (positive, ~positive))
    return positives.view(-1, units).double(), negatives.view(-1, units).double()


def _spread(lists: Sequence[tuple[Tensor, Tensor]], seed: int) -> Estimate:
    """Estimate the mean tie-aware AP of lists of counts, with its interval over sequences."""

    def mean(weights: NDArray[np.float64]) -> float:
        times = torch.from_numpy(weights)
        precision = [average_precision_of_counts(positive @ times, negative @ times) for positive, negative in lists]
        return float(np.mean(precision))

    return bootstrap_interval(mean, lists[0][0].shape[1], seed)


def _shift(spread: Estimate, value: float) -> Estimate:
    """Move an interval to another value: the AP protocols differ less than the sequences do."""
    if spread.low is None:
        return replace(spread, value=value)
    low, high = (min(max(end + value - spread.value, 0.0), 1.0) for end in spread.bounds)
    return replace(spread, value=value, low=low, high=high)
