"""Scores of the three tasks of HPatches with each AP protocol; see `hpatches`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.evaluation.bootstrap import bootstrap_intervals
from doap.evaluation.result import Estimate, Figure, Scores
from doap.evaluation.verification import distance_histogram, distances_of_pairs, verification_curves
from doap.metrics.distance import pair_distances, table_distances, widened
from doap.metrics.metrics import (
    Area,
    SortedPairs,
    average_precision_at_ranks,
    average_precision_of_chances,
    average_precision_of_counts,
)
from doap.metrics.pairs import rows_at_a_time

APProtocol = Literal["tie-aware", "python", "matlab"]
"""How AP is computed: expected over random orders of ties, or as one of the two programs of HPatches does."""

AP_PROTOCOLS: tuple[APProtocol, ...] = ("tie-aware", "python", "matlab")
AREA: dict[APProtocol, Area] = {"python": "trapezoid", "matlab": "steps"}
"""How the two programs integrate the precision-recall curve."""

POSITIVES = 0.2
"""Positives per negative: the `imbalanced` variant, whose AP is the headline of the benchmark."""

NOISE = ("easy", "hard", "tough")
IMAGES = 5
"""Images of a sequence besides the reference image."""
CURVES_OF = "hard, intra"
"""List of pairs whose curves and histogram are shown."""
PYTHON_POOL = 20_000
"""Pool of the Python program: matches and distractors."""
MATLAB_DISTRACTORS = 2000

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TaskPatches:
    """P patches of a task file: index of the sequence, row among the patches of all sequences, image (0 is `ref`)."""

    sequence: NDArray[np.int64]
    row: NDArray[np.int64]
    image: NDArray[np.int64]


TaskPairs = tuple[TaskPatches, TaskPatches]


@dataclass(frozen=True, eq=False)
class Verification:
    """Matching pairs, non-matching pairs `intra` (of one sequence) and `inter` (of two), and number of sequences."""

    positive: TaskPairs
    negative: dict[str, TaskPairs]
    sequences: int


def match_sequence(descriptors: Tensor) -> dict[APProtocol, Floats]:
    """Return the matching AP (5, 3) of five images at three noise levels, for each protocol.

    Args:
        descriptors: (N, 16, D), or (N, 16, D/8) uint8, in the order of the strips.
    """
    reference, *strips = descriptors.unbind(1)
    matched = [_match_images(reference, strip) for strip in strips]
    return {
        protocol: np.array([one[protocol] for one in matched]).reshape(len(NOISE), IMAGES).T
        for protocol in AP_PROTOCOLS
    }


def retrieve_queries(descriptors: Tensor, queries: TaskPatches, distractors: TaskPatches) -> dict[APProtocol, Floats]:
    """Return the retrieval AP (Q, 3) of each query at three noise levels, by protocol.

    Args:
        descriptors: (R, 16, D), or (R, 16, D/8) uint8, of all sequences.
        queries: Q patches.
        distractors: Patches; those of a query's own sequence are left out.
    """
    precision = np.empty((len(queries.row), len(NOISE), 3))
    for sequence in np.unique(queries.sequence):
        is_query, is_distractor = queries.sequence == sequence, distractors.sequence != sequence
        number = int(is_distractor.sum())
        # `python` first leaves out the query's sequence and then cuts the list; `matlab` cuts first. The pool of
        # `python` includes the matches.
        protocols: list[tuple[APProtocol, int]] = [
            ("tie-aware", number),
            ("python", min(PYTHON_POOL - IMAGES, number)),
            ("matlab", int(is_distractor[:MATLAB_DISTRACTORS].sum())),
        ]
        groups = descriptors[torch.from_numpy(queries.row[is_query])]
        matches = groups[:, 1:].unflatten(1, (len(NOISE), IMAGES))
        gallery = descriptors[torch.from_numpy(distractors.row[is_distractor]), 0]
        precision[is_query] = precision_among(groups[:, 0], matches, gallery, protocols).numpy()
    return {protocol: precision[..., column] for column, protocol in enumerate(AP_PROTOCOLS)}


def _match_images(reference: Tensor, target: Tensor) -> dict[APProtocol, float]:
    """Return the AP of matching (N, D) with (N, D), whose equal rows are the same patch."""
    nearest, chance, correct = [], [], []
    for rows in torch.arange(len(reference)).split(rows_at_a_time(target)):
        table = table_distances(reference[rows], target).numpy()
        smallest = table.min(axis=1)
        to_same_patch = table[np.arange(len(rows)), rows.numpy()]
        tied = (table == smallest[:, None]).sum(axis=1)
        nearest.append(smallest)
        chance.append((to_same_patch == smallest) / tied)
        # argmin returns the first of equal distances.
        correct.append(table.argmin(axis=1) == rows.numpy())
    number, distances = len(reference), np.concatenate(nearest)
    by_distance = np.argsort(distances, kind="stable")
    ranks = torch.from_numpy(np.flatnonzero(np.concatenate(correct)[by_distance]) + 1)
    chances = torch.from_numpy(np.concatenate(chance))
    precision: dict[APProtocol, float] = {
        "tie-aware": average_precision_of_chances(torch.from_numpy(distances), chances, number=number)
    }
    for protocol, area in AREA.items():
        precision[protocol] = float(average_precision_at_ranks(ranks, number, area))
    return precision


def precision_among(
    queries: Tensor, matches: Tensor, distractors: Tensor, protocols: Sequence[tuple[APProtocol, int]]
) -> Tensor:
    """Return the AP of each query, with its own matches, among distractors that all queries share.

    `python` and `matlab` rank matches before distractors of the same distance, because both programs list
    the matches first and then sort. Equal descriptors therefore score 1 there.

    Args:
        queries: (Q, D) float32 or (Q, D/8) uint8.
        matches: (Q, V, P, D): P matches of each query in each of V independent variants of the task.
        distractors: (N, D).
        protocols: W protocols, each with the number of distractors it uses, counted from the first.

    Returns:
        (Q, V, W) float64. Only a few rows of the (Q, N) distances are in memory at a time.
    """
    queries, matches, distractors = widened(queries), widened(matches), widened(distractors)
    rows = rows_at_a_time(distractors)
    blocks = []
    for some, own in zip(queries.split(rows), matches.split(rows), strict=True):
        far = table_distances(some, distractors)
        near = pair_distances(some[:, None, None].expand_as(own).flatten(0, 2), own.flatten(0, 2))
        variants = near.view(own.shape[:3]).sort(dim=2).values.unbind(1)
        blocks.append(torch.stack([_by_protocol(variant, far, protocols) for variant in variants], dim=1))
    return torch.cat(blocks)


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
    ordered = [(SortedPairs(distances, positive), sequence) for distances, positive, sequence in lists.values()]

    def mean_and_each(weights: Floats) -> list[float]:
        counts = (pairs.counts(torch.from_numpy(weights[sequence])) for pairs, sequence in ordered)
        precision = [float(average_precision_of_counts(*of_list)) for of_list in counts]
        return [float(np.mean(precision)), *precision]

    spread, *spreads = bootstrap_intervals(mean_and_each, task.sequences, seed)
    figures = []
    for protocol in AP_PROTOCOLS:
        values = {name: pair_precision(*pairs[:2], protocol) for name, pairs in lists.items()}
        parts = {name: _shift(one, values[name]) for name, one in zip(lists, spreads, strict=True)}
        total = _shift(spread, float(np.mean(list(values.values()))))
        figures.append(Figure(f"verification mAP ({protocol})", "higher", "sequences", total, parts))
    shown = lists[CURVES_OF][:2]
    curves = verification_curves(*shown, f", {CURVES_OF}")
    histogram = distance_histogram(*shown, whole=descriptors.dtype == torch.uint8)
    return Scores(tuple(figures), curves, histogram)


def pair_precision(distances: Tensor, positive: Tensor, protocol: APProtocol) -> float:
    """Return the AP of (P,) pairs; `python` ranks negatives first among ties, `matlab` positives."""
    if protocol == "tie-aware":
        return float(average_precision_of_counts(*SortedPairs(distances, positive).counts()))
    near, far = (distances[kind].sort().values for kind in (positive, ~positive))
    negatives_before = torch.searchsorted(far, near, right=protocol == "python")
    ranks = negatives_before + torch.arange(1, len(near) + 1)
    return float(average_precision_at_ranks(ranks, len(near), AREA[protocol]))


def _pair_list(
    positive: TaskPairs, negative: TaskPairs, descriptors: Tensor, level: int
) -> tuple[Tensor, Tensor, NDArray[np.int64]]:
    """Return the first positives and all negatives at one noise level.

    Returns:
        (P,) distances, (P,) bool, and (P,) sequence of the first patch of each pair.
    """
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
    return distances, torch.arange(len(distances)) < len(distances) - negatives, sequence


def _shift(spread: Estimate, value: float) -> Estimate:
    """Move an interval to another value: the AP protocols differ less than the sequences do."""
    if spread.low is None:
        return replace(spread, value=value)
    low, high = (min(max(end + value - spread.value, 0.0), 1.0) for end in spread.bounds)
    return replace(spread, value=value, low=low, high=high)


def _by_protocol(near: Tensor, far: Tensor, protocols: Sequence[tuple[APProtocol, int]]) -> Tensor:
    """Return the AP (R, W) from sorted distances (R, P) to the matches and (R, N) to the distractors."""
    bounds = sorted({number for _, number in protocols})
    nearer, tied = (_count(near, far, bounds, compare) for compare in (torch.lt, torch.eq))
    precision = []
    for protocol, number in protocols:
        bound = bounds.index(number)
        if protocol == "tie-aware":
            precision.append(average_precision_of_counts(*_counts_by_distance(near, nearer[bound], tied[bound])))
        else:
            ranks = nearer[bound] + torch.arange(1, near.shape[1] + 1)
            precision.append(average_precision_at_ranks(ranks, near.shape[1], AREA[protocol]))
    return torch.stack(precision, dim=1)


def _count(near: Tensor, far: Tensor, bounds: Sequence[int], compare: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Count (B, R, P): for how many of the first distractors, up to each bound, `compare` holds with each match."""
    counts = []
    for part in far[:, : bounds[-1]].tensor_split(bounds[:-1], dim=1):
        # One match at a time: all at once would need an (R, P, N) table.
        columns = [compare(part, match[:, None]).count_nonzero(dim=1) for match in near.unbind(1)]
        counts.append(torch.stack(columns, 1))
    return torch.stack(counts).cumsum(0)


def _counts_by_distance(near: Tensor, nearer: Tensor, tied: Tensor) -> tuple[Tensor, Tensor]:
    """Return positives (R, 2P) and negatives (R, 2P), alternately between two matches and at a match.

    The first of several matches at one distance stands for all of them.
    """
    first = near.diff(prepend=near.new_full((len(near), 1), -1)) > 0
    equal_matches = (near[:, :, None] == near[:, None]).sum(dim=2)
    between = nearer.diff(prepend=nearer.new_zeros(len(near), 1))
    between[:, 1:] -= tied[:, :-1]
    positives = torch.stack([torch.zeros_like(equal_matches), equal_matches * first], dim=2)
    negatives = torch.stack([between * first, tied * first], dim=2)
    return positives.flatten(1).double(), negatives.flatten(1).double()
