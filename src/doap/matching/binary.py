"""Nearest neighbours of binary descriptors by Hamming distance."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from doap._support.device import multiplies_bfloat16
from doap.matching.blocks import BLOCK, row_blocks, widest_float
from doap.metrics.bits import unpack_bits


@dataclass(frozen=True)
class _Keys:
    """Integers distance·2ˢ + row + column: their minimum is the nearest neighbour in both directions.

    Within a row, the row index is constant, so the lowest column wins among equal distances. Within
    a column, the lowest row wins. A plain minimum is faster than one that also
    returns its index.
    """

    shift: int
    dtype: torch.dtype

    @staticmethod
    def fit(bits: int, rows: int, columns: int) -> _Keys:
        """Return the layout of a table in the smallest integer type that holds its keys."""
        shift = (rows + columns).bit_length()
        return _Keys(shift, torch.int32 if (bits + 1) << shift < 2**31 else torch.int64)

    def distances(self, keys: Tensor) -> Tensor:
        return keys >> self.shift

    def columns(self, keys: Tensor, rows: Tensor) -> Tensor:
        """Return the columns of keys whose rows are known, or the rows if the columns are given."""
        return (keys & ((1 << self.shift) - 1)) - rows


def match_binary(
    queries: Tensor, gallery: Tensor, ratio: float | None, mutual: bool, block: int = BLOCK
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the nearest gallery item of each query, and whether the pair passes the tests.

    Args:
        queries: (N0, D/8) uint8, not empty.
        gallery: (N1, D/8) uint8, not empty.
        ratio: Ratio test from the queries to the gallery; see `match_descriptors`.
        mutual: Mutual nearest neighbours; see `match_descriptors`.
        block: Number of distances held at a time.

    Returns:
        (N0,) int64 indices into the gallery, (N0,) int32 distances, (N0,) bool.
    """
    keys = _Keys.fit(8 * queries.shape[1], len(queries), len(gallery))
    rows = torch.arange(len(queries), dtype=keys.dtype, device=queries.device)
    columns = torch.arange(len(gallery), dtype=keys.dtype, device=queries.device)
    first, second, first_of_column = _smallest_keys(
        queries, gallery, keys, rows, columns, block, want_second=ratio is not None, want_columns=mutual
    )
    nearest = keys.columns(first, rows).long()
    distances = keys.distances(first).int()
    kept = torch.ones_like(nearest, dtype=torch.bool)
    if ratio is not None and len(gallery) > 1:
        kept &= distances < ratio * keys.distances(second).to(widest_float(queries.device))
    if mutual:
        nearest_query = keys.columns(first_of_column, columns)
        kept &= nearest_query[nearest] == rows
    return nearest, distances, kept


def _smallest_keys(
    queries: Tensor,
    gallery: Tensor,
    keys: _Keys,
    rows: Tensor,
    columns: Tensor,
    block: int,
    *,
    want_second: bool,
    want_columns: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the smallest key (N0,) and second key (N0,) of each row, and the smallest (N1,) per column.

    Keys that are not wanted are the largest integer.
    """
    bits, half = 8 * queries.shape[1], 1 << (keys.shift - 1)
    largest = torch.iinfo(keys.dtype).max
    signs0, signs1 = _signs(queries), _signs(gallery).T
    blocks = list(row_blocks(len(queries), len(gallery), block))
    # Hamming distance = (D − dot) / 2. These are the keys of the first block for dot products of 0.
    base = rows[blocks[0], None] + columns + bits * half
    dots, table = torch.empty_like(base, dtype=signs0.dtype), torch.empty_like(base)
    first, second = torch.empty_like(rows), torch.full_like(rows, largest)
    first_of_column = torch.full_like(columns, largest)
    for part in blocks:
        size = part.stop - part.start
        torch.mm(signs0[part], signs1, out=dots[:size])
        here = table[:size].copy_(dots[:size])
        torch.add(base[:size], here, alpha=-half, out=here)
        # Keys of later blocks lack the index of the block's first row.
        first[part] = here.amin(1) + part.start
        if want_columns:
            first_of_column = torch.minimum(first_of_column, here.amin(0) + part.start)
        if want_second:
            nearest = keys.columns(first[part], rows[part])
            second[part] = here.scatter_(1, nearest[:, None].long(), largest).amin(1)
    return first, second, first_of_column


def _signs(codes: Tensor) -> Tensor:
    """Return packed bits (N, D/8) as ±1 (N, D), in the fastest type that multiplies them exactly.

    A sum of D signs is an integer in −D…D with the parity of D, and D is even. float16 holds all
    integers to 2048. bfloat16 holds all integers to 256 and the even ones to 512; CPUs accumulate
    it in float32. float32 holds any number of bits that occurs in practice.
    """
    bits, exact = 8 * codes.shape[1], torch.float32
    if codes.is_cuda and bits <= 2048:
        exact = torch.float16
    elif codes.device.type == "cpu" and bits <= 512 and multiplies_bfloat16(codes.device):
        exact = torch.bfloat16
    return unpack_bits(codes).to(exact) * 2 - 1
