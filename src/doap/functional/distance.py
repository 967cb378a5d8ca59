"""Distances between two sets of descriptors: smaller is better, everywhere."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from doap.checks import check_shape
from doap.functional.bits import unpack_bits

Distance = Literal["euclidean", "squared", "hamming"]

# Distances that judge, unlike those that are optimised, are rounded to a millionth, which is what float32 can tell of
# unit vectors: a descriptor that has collapsed to one point must tie, not be ranked by rounding.
_DECIMALS = 6


def from_dot(dot: Tensor, distance: Distance, dim: int) -> Tensor:
    """Dot products of unit vectors, or of codes in [−1, 1]^dim, → distances; rounding outside the range is clamped.

    The Euclidean gradient is zero where the distance is: √ has no finite slope there, and equal descriptors are common.
    """
    if distance == "hamming":
        return ((dim - dot) / 2).clamp(0, dim)
    squared = (2 - 2 * dot).clamp(0, 4)
    if distance == "squared":
        return squared
    apart = squared > 0
    # `where` before the root: a mask after it would still send 0·∞ = NaN back.
    return torch.where(apart, squared, 1).sqrt() * apart


def euclidean(queries: Tensor, gallery: Tensor) -> Tensor:
    """Euclidean distance of unit vectors, √(2 − 2·cos).

    >>> euclidean(torch.eye(2), torch.eye(2)).square().round()
    tensor([[0., 2.],
            [2., 0.]])

    Args:
        queries: (Q, D), unit rows.
        gallery: (N, D), unit rows.

    Returns:
        (Q, N) in [0, 2].
    """
    return _between(queries, gallery, "euclidean")


def squared_euclidean(queries: Tensor, gallery: Tensor) -> Tensor:
    """Squared Euclidean distance of unit vectors, 2 − 2·cos, (Q, N) in [0, 4]; arguments as for `euclidean`."""
    return _between(queries, gallery, "squared")


def relaxed_hamming(queries: Tensor, gallery: Tensor) -> Tensor:
    """Hamming distance of codes in [−1, 1]: (D − F·F′)/2, exact for ±1 and differentiable between.

    Args:
        queries: (Q, D), usually tanh of the network's activations.
        gallery: (N, D).

    Returns:
        (Q, N) in [0, D].
    """
    return _between(queries, gallery, "hamming")


def hamming(queries: Tensor, gallery: Tensor) -> Tensor:
    """Hamming distance of packed codes.

    torch has no popcount; a product of ±1 floats is exact here and runs at the speed of a matrix product.

    >>> hamming(torch.tensor([[0b11110000]], dtype=torch.uint8), torch.tensor([[0], [255]], dtype=torch.uint8))
    tensor([[4, 4]], dtype=torch.int32)

    Args:
        queries: (Q, D/8) uint8, as `pack_bits` makes them.
        gallery: (N, D/8) uint8.

    Returns:
        (Q, N) int32 in 0…D.
    """
    check_shape(gallery, f"N {check_shape(queries, 'Q B', name='queries')['B']}", name="gallery")
    codes, other_codes = (unpack_bits(packed).float() * 2 - 1 for packed in (queries, gallery))
    return relaxed_hamming(codes, other_codes).to(torch.int32)


def _between(queries: Tensor, gallery: Tensor, distance: Distance) -> Tensor:
    dim = check_shape(queries, "Q D", name="queries")["D"]
    check_shape(gallery, f"N {dim}", name="gallery")
    return from_dot(queries @ gallery.T, distance, dim)


def table_distances(queries: Tensor, gallery: Tensor) -> Tensor:
    """Distances to judge by, of each query to each gallery item.

    Args:
        queries: (Q, D) floats of any length, or (Q, D/8) uint8, bits as `pack_bits` makes them.
        gallery: (N, D) or (N, D/8) alike.

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
    """As `table_distances` computes with them, float64, or bits as they are: once for all blocks of a table."""
    return descriptors if descriptors.dtype == torch.uint8 else descriptors.double()


def pair_distances(one: Tensor, other: Tensor) -> Tensor:
    """(P,) float32 distances to judge by, of the rows of two (P, D) or (P, D/8), as `table_distances` has them."""
    check_shape(other, "P " + str(check_shape(one, "P D", name="one")["D"]), name="other")
    if one.dtype == torch.uint8:
        return unpack_bits(one ^ other).sum(dim=1).float()
    distances: Tensor = torch.linalg.vector_norm(one.double() - other.double(), dim=1)
    return distances.round(decimals=_DECIMALS).float()
