"""The listwise loss as a dense (M, M, K) tensor, differentiated by autograd, and the triplet loss as a loop."""

from __future__ import annotations

import torch
from torch import Tensor

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


def dense_listwise(
    descriptors: Tensor,
    relation: Relation,
    distance: str,
    bins: int,
    form: str = "simplified",
    margin: float = 0.0,
    queries: int | None = None,
) -> tuple[Tensor, int]:
    """Return the sum of relaxed AP over the queries with a positive, and their number, for unit rows or codes.

    `margin` is added to the distances of matches; only the first `queries` items are queries.
    """
    dot = descriptors @ descriptors.T
    if distance == "hamming":
        distances, far = (descriptors.shape[1] - dot) / 2, float(descriptors.shape[1])
    elif distance == "squared":
        distances, far = 2 - 2 * dot, 4.0
    else:
        # The diagonal never counts; 1 there avoids the infinite derivative of the root at 0.
        distances, far = (2 - 2 * dot).clamp(min=0).fill_diagonal_(1).sqrt(), 2.0
    positive, distractor = relation_tables(relation)
    distances = distances + margin * positive
    centres = torch.arange(bins + 1 + int(bins * margin / far + 1), dtype=dot.dtype)
    kernel = (1 - (distances[:, :, None] * (bins / far) - centres).abs()).clamp(min=0)
    positives = (kernel * positive[:, :, None]).sum(1)
    total = positives + (kernel * distractor[:, :, None]).sum(1)
    if form == "simplified":
        up_to = 2 * positives.cumsum(1) - positives + 1
        precision = up_to / (2 * total.cumsum(1) - total + 1)
    else:
        precision = positives.cumsum(1) / total.cumsum(1).clamp(min=1e-12)
    has_positive = positive.any(1)
    has_positive[len(relation) if queries is None else queries :] = False
    average = (positives * precision).sum(1)[has_positive] / positive.sum(1)[has_positive]
    return average.sum(), int(has_positive.sum())


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
