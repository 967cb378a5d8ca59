"""Nearest neighbours of binary descriptors by Hamming distance."""

from __future__ import annotations

import torch
from torch import Tensor

from doap.functional.bits import unpack_bits
from doap.matching.blocks import BLOCK, row_blocks, widest_float


def match_binary(
    queries: Tensor, gallery: Tensor, ratio: float | None, mutual: bool, block: int = BLOCK
) -> tuple[Tensor, Tensor, Tensor]:
    """The nearest gallery item of each query, and whether the pair passes the tests.

    A distance and its place share one integer, distance·2ᵏ + row + column. The least of them is the nearest in either
    direction: along a row its own number is a constant, so that of equal distances the lowest column wins, and along a
    column the lowest row. A plain minimum is several times faster than one that looks for its place.

    Args:
        queries: (N0, D/8) uint8, not empty.
        gallery: (N1, D/8) uint8, not empty.
        ratio, mutual: as for `match_descriptors`.
        block: distances held at a time.

    Returns:
        (N0,) int64 indices into the gallery, (N0,) int32 distances, (N0,) bool.
    """
    device, bits = queries.device, 8 * queries.shape[1]
    height, width = len(queries), len(gallery)
    shift = (height + width).bit_length()
    integer = torch.int32 if (bits + 1) << shift < 2**31 else torch.int64
    place, farthest = (1 << shift) - 1, torch.iinfo(integer).max

    codes0, codes1 = _signs(queries), _signs(gallery).T
    blocks = list(row_blocks(height, width, block))
    rows = torch.arange(height, dtype=integer, device=device)
    columns = torch.arange(width, dtype=integer, device=device)
    # Keys of a block of which every dot product is 0: distances are (D − dot)/2.
    start = rows[blocks[0], None] + columns + (bits << shift - 1)
    dots, keys = torch.empty_like(start, dtype=codes0.dtype), torch.empty_like(start)
    first, second = torch.empty_like(rows), torch.full_like(rows, farthest)
    back = torch.full_like(columns, farthest)
    for part in blocks:
        size = part.stop - part.start
        torch.mm(codes0[part], codes1, out=dots[:size])
        here = keys[:size].copy_(dots[:size])
        torch.add(start[:size], here, alpha=-(1 << shift - 1), out=here)
        first[part] = here.amin(1) + part.start
        if mutual:
            back = torch.minimum(back, here.amin(0) + part.start)
        if ratio is not None:
            nearest = (first[part] & place) - rows[part]
            second[part] = here.scatter_(1, nearest[:, None].long(), farthest).amin(1)

    nearest = ((first & place) - rows).long()
    distances = (first >> shift).int()
    kept = torch.ones_like(nearest, dtype=torch.bool)
    if ratio is not None and width > 1:
        kept &= distances < ratio * (second >> shift).to(widest_float(device))
    if mutual:
        kept &= ((back & place) - columns)[nearest] == rows
    return nearest, distances, kept


def _signs(codes: Tensor) -> Tensor:
    """Packed bits (N, D/8) as ±1 (N, D), in the fastest type that multiplies them exactly.

    A sum of D signs is an integer within ±D, and even like D. float16 holds all integers to 2048; bfloat16 all to 256
    and the even ones to 512, summed in float32 as CPUs do; float32 holds more than anybody has bits.
    """
    bits, exact = 8 * codes.shape[1], torch.float32
    if codes.is_cuda and bits <= 2048:
        exact = torch.float16
    # Without these instructions a CPU emulates bfloat16, slower than float32.
    elif codes.device.type == "cpu" and bits <= 512 and torch.cpu._is_avx512_bf16_supported():
        exact = torch.bfloat16
    return unpack_bits(codes).to(exact) * 2 - 1
