"""Distances between descriptors; smaller means more similar."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from doap._support.checks import check_shape
from doap.metrics.bits import unpack_bits

Distance = Literal["euclidean", "squared", "hamming"]

# Evaluation rounds distances to a millionth, the accuracy of float32 for unit vectors. Otherwise a descriptor that has
# collapsed to one point would be ranked by rounding errors instead of having ties.
_DECIMALS = 6


def from_dot(dot: Tensor, distance: Distance, dim: int) -> Tensor:
    """Convert dot products to distances, clamped to their range; differentiable.

    The gradient of a Euclidean distance of 0 is 0: the root has no finite derivative there, and equal descriptors are
    common.

    The vectors have unit length, or for `hamming` are codes in [−1, 1]^dim.
    """
    if distance == "hamming":
        return ((dim - dot) / 2).clamp(0, dim)
    squared = (2 - 2 * dot).clamp(0, 4)
    if distance == "squared":
        return squared
    apart = squared > 0
    # `where` comes before the root because a mask after it has the gradient 0·∞ = NaN.
    return torch.where(apart, squared, 1).sqrt() * apart


def hamming(queries: Tensor, gallery: Tensor) -> Tensor:
    """Return Hamming distances (Q, N) int32 of packed codes (Q, D/8) and (N, D/8).

    torch has no popcount. A matrix product of ±1 floats is exact and fast.

    >>> hamming(torch.tensor([[0b11110000]], dtype=torch.uint8), torch.tensor([[0], [255]], dtype=torch.uint8))
    tensor([[4, 4]], dtype=torch.int32)
    """
    check_shape(gallery, f"N {check_shape(queries, 'Q B', name='queries')['B']}", name="gallery")
    codes, other_codes = (unpack_bits(packed).float() * 2 - 1 for packed in (queries, gallery))
    return from_dot(codes @ other_codes.T, "hamming", codes.shape[1]).to(torch.int32)


def table_distances(queries: Tensor, gallery: Tensor) -> Tensor:
    """Return the distances between all queries and all gallery items, for evaluation.

    Args:
        queries: (Q, D) floats of any norm, or packed bits (Q, D/8) uint8 from `pack_bits`.
        gallery: (N, D) or (N, D/8), of the same kind.

    Returns:
        (Q, N) float32: Euclidean, computed in float64 and rounded to a millionth; or Hamming.
    """
    check_shape(gallery, f"N {check_shape(queries, 'Q D', name='queries')['D']}", name="gallery")
    if gallery.dtype == torch.uint8:
        return hamming(queries, gallery).float()
    queries, gallery = widened(queries), widened(gallery)
    squared = queries.square().sum(1, keepdim=True) + gallery.square().sum(1) - 2 * queries @ gallery.T
    return squared.clamp(min=0).sqrt().round(decimals=_DECIMALS).float()


def widened(descriptors: Tensor) -> Tensor:
    """Convert real descriptors to float64 once, before `table_distances` is called for many blocks; bits stay."""
    return descriptors if descriptors.dtype == torch.uint8 else descriptors.double()


def pair_distances(one: Tensor, other: Tensor) -> Tensor:
    """Return the distances (P,) float32 between the rows of two sets (P, D) or (P, D/8), as in `table_distances`."""
    check_shape(other, "P " + str(check_shape(one, "P D", name="one")["D"]), name="other")
    if one.dtype == torch.uint8:
        return unpack_bits(one ^ other).sum(dim=1).float()
    distances: Tensor = torch.linalg.vector_norm(one.double() - other.double(), dim=1)
    return distances.round(decimals=_DECIMALS).float()
