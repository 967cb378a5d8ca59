"""The listwise loss by its definition, and the triplet loss as a loop."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from doap.loss import relaxed_average_precision
from doap.loss.average_precision import APForm
from doap.metrics.distance import Distance, from_dot
from doap.types import Relation


def relation_tables(relation: Relation) -> tuple[Tensor, Tensor]:
    """Return two (M, M) bool tables, positives and distractors, filled pair by pair."""
    size = len(relation)
    positive = torch.zeros(size, size, dtype=torch.bool)
    distractor = torch.zeros(size, size, dtype=torch.bool)
    pairs = [] if relation.ignored_pairs is None else relation.ignored_pairs.tolist()
    ignored = {tuple(pair) for pair in pairs} | {tuple(pair[::-1]) for pair in pairs}
    for query in range(size):
        for item in range(size):
            if query == item:
                continue
            similar = False
            if relation.clusters is not None and relation.ignored_clusters is not None:
                similar = bool(relation.ignored_clusters[relation.clusters[query], relation.clusters[item]])
            if relation.groups[query] == relation.groups[item]:
                positive[query, item] = True
            elif (int(relation.groups[query]), int(relation.groups[item])) not in ignored and not similar:
                distractor[query, item] = True
    return positive, distractor


def defined_ap(
    descriptors: Tensor,
    relation: Relation,
    distance: Distance,
    bins: int,
    form: APForm = "simplified",
    margin: float = 0.0,
) -> tuple[Tensor, int]:
    """Return the sum of relaxed AP over the queries with a positive, and their number, for unit rows or codes."""
    dim = descriptors.shape[1]
    positive, distractor = relation_tables(relation)
    distances = from_dot(descriptors @ descriptors.T, distance, dim) + margin * positive.to(descriptors)
    width = {"euclidean": 2, "squared": 4, "hamming": dim}[distance] / bins
    centres = width * torch.arange(bins + 1 + math.ceil(margin / width), dtype=distances.dtype)
    average = relaxed_average_precision(distances, positive, distractor, centres, form)
    return average.sum(), int(positive.any(1).sum())


def looped_triplet(descriptors: Tensor, relation: Relation, margin: float) -> float:
    """Return HardNet's loss over all matching pairs of unit rows."""
    distances = torch.cdist(descriptors.double(), descriptors.double()).tolist()
    positive, distractor = relation_tables(relation)
    costs = []
    for anchor in range(len(descriptors)):
        for match in range(len(descriptors)):
            if positive[anchor, match]:
                to_distractors = [
                    distances[end][item]
                    for end in (anchor, match)
                    for item in range(len(descriptors))
                    if distractor[end, item]
                ]
                if to_distractors:
                    costs.append(max(0.0, margin + distances[anchor][match] - min(to_distractors)))
    return sum(costs) / max(len(costs), 1)
