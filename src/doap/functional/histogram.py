"""Soft histograms of distances."""

from __future__ import annotations

import torch
from torch import Tensor

from doap.checks import check_shape
from doap.errors import ArgumentError


def soft_histogram(distances: Tensor, centres: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return soft histograms: each distance is shared between its two nearest bin centres by linear interpolation.

    The kernel is a triangle whose half-width is one bin. A distance contributes to two bins, so one pass over the
    distances suffices for any number of bins.

    >>> soft_histogram(torch.tensor([[0.0, 0.25, 1.0]]), torch.tensor([0.0, 1.0, 2.0]))
    tensor([[1.7500, 1.2500, 0.0000]])

    Args:
        distances: (Q, N); values outside the range of `centres` are clamped to it.
        centres: (K,), evenly spaced, increasing, K ≥ 2.
        weights: (Q, N) weight of each distance, 0 to leave it out. None means 1.

    Returns:
        (Q, K) counts; a row sums to N or to the sum of its weights.
    """
    check_shape(distances, "Q N", name="distances")
    bins = check_shape(centres, "K", name="centres")["K"]
    if bins < 2:
        raise ArgumentError(f"centres: expected 2 or more, got {bins}")
    position = ((distances - centres[0]) / (centres[1] - centres[0])).clamp(0, bins - 1)
    # A distance at the last centre belongs to the last pair of bins, with all its weight on the right bin.
    left = position.detach().long().clamp(max=bins - 2)
    share = position - left
    mass = torch.ones_like(share) if weights is None else weights.to(share.dtype)
    counts = torch.zeros(len(distances), bins, dtype=share.dtype, device=share.device)
    return counts.scatter_add(1, left, (1 - share) * mass).scatter_add(1, left + 1, share * mass)
