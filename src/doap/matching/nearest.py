"""Nearest neighbours of real-valued and of binary descriptors, exact and in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from doap._support.device import multiplies_bfloat16
from doap._support.errors import ArgumentError
from doap.metrics.bits import unpack_bits
from doap.metrics.pairs import widest_float

# Elements of the table held at a time: 64 MiB of float32.
BLOCK = 2**24
# More rows do not make the matrix product faster, and its result no longer fits the caches.
MAX_ROWS = 512


def row_blocks(rows: int, columns: int, block: int) -> Iterator[slice]:
    """Yield slices of 0…rows with about `block` elements of the table; no slice exceeds the first."""
    step = min(MAX_ROWS, max(1, block // columns))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def match_real(
    queries: Tensor, gallery: Tensor, ratio: float | None, mutual: bool, block: int = BLOCK
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the nearest gallery item (N0,) int64 of each query, its distance (N0,), and whether it passes the tests.

    One float32 product gives −d²/2 of all pairs with a bounded error and decides nearly everything.
    Where two candidates differ by less than the bound, the distances of that row or column are
    computed directly in float64, each from its two descriptors. Ties are therefore true ties, and
    the result does not depend on the order of summation in the product. A set of identical
    descriptors is slow, because every row is ambiguous.

    Neither side is empty. The arguments are those of `match_descriptors`, except that the ratio is only tested from the
    queries to the gallery; `block` is the number of distances held at a time.
    """
    queries, gallery = queries.float(), gallery.float()
    left, right, error = _extend(queries, gallery)
    nearest, first, second, column_rest = _largest_products(left, right, block)

    distances = _distances(queries[:, None], gallery[nearest, None])[:, 0, 0]
    ambiguous = first - second <= 2 * error
    kept = torch.ones_like(ambiguous)
    if ratio is not None:
        second_squared = -2 * second.to(distances)
        second_low = (second_squared - 2 * error).clamp(min=0).sqrt()
        second_high = (second_squared + 2 * error).clamp(min=0).sqrt()
        kept = distances < ratio * second_low
        ambiguous |= ~kept & (distances < ratio * second_high)

    rows = ambiguous.nonzero().squeeze(1)
    estimated = nearest[rows]
    nearest[rows], distances[rows], second_distance = _nearest_by_distance(queries[rows], gallery, block)
    if ratio is not None:
        kept[rows] = distances[rows] < ratio * second_distance
    if mutual:
        # A column that is not the nearest of its row after all competes with the other rows again.
        changed = estimated != nearest[rows]
        column_rest.scatter_reduce_(0, estimated[changed], first[rows[changed]], "amax")
        kept &= _is_mutual(queries, gallery, nearest, distances, column_rest, error, block)
    return nearest, distances.float(), kept


def _extend(queries: Tensor, gallery: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return rows whose product is −d²/2, [q, −|q|²/2, 1]·[g, 1, −|g|²/2], and a bound of its error.

    The product sums D + 2 terms, bounded together by |q|² + |g|², and rounds as often. The squares
    are rounded before.
    """
    if torch.get_float32_matmul_precision() != "highest":
        # The bound assumes a product of full float32 precision.
        queries, gallery = (side.to(widest_float(side.device)) for side in (queries, gallery))
    squares0, squares1 = (side.square().sum(1, keepdim=True) for side in (queries, gallery))
    limits = torch.finfo(torch.float32)
    largest0, largest1 = float(squares0.max()), float(squares1.max())
    for name, square in (("queries", largest0), ("gallery", largest1)):
        if not square < limits.max / 2:
            raise ArgumentError(
                f"{name}: expected finite rows with a sum of squares below {limits.max / 2:.2g}, got {square:.2g}. "
                "Drop such rows, or scale all descriptors."
            )
    left = torch.cat([queries, squares0 / -2, torch.ones_like(squares0)], 1)
    right = torch.cat([gallery, torch.ones_like(squares1), squares1 / -2], 1)
    return left, right, (queries.shape[1] + 4) * (limits.eps * (largest0 + largest1) + limits.tiny)


def _largest_products(left: Tensor, right: Tensor, block: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the column (N0,) of the largest entry of each row of the product, that entry, the second largest one (−∞
    in a table of one column), and the largest entry (N1,) of each column, not counting the largest one of each row.
    """
    blocks = list(row_blocks(len(left), len(right), block))
    table = left.new_empty(blocks[0].stop, len(right))
    nearest = torch.empty(len(left), dtype=torch.int64, device=left.device)
    first, second = left.new_empty(2, len(left))
    column_rest = left.new_full((len(right),), -torch.inf)
    for part in blocks:
        # `out` reuses memory and disables autocast, which would round the product to few bits.
        here = torch.mm(left[part], right.T, out=table[: part.stop - part.start])
        first[part], nearest[part] = here.max(1)
        here.scatter_(1, nearest[part, None], -torch.inf)
        second[part] = here.amax(1)
        column_rest = torch.maximum(column_rest, here.amax(0))
    return nearest, first, second, column_rest


def _is_mutual(
    queries: Tensor, gallery: Tensor, nearest: Tensor, distances: Tensor, column_rest: Tensor, error: float, block: int
) -> Tensor:
    """Return whether each query (N0,) is the nearest to its own nearest gallery item.

    A query competes with the queries that have the same nearest item, whose distances are known,
    and with `column_rest`, the largest product of that item with all other queries.
    """
    rows = torch.arange(len(nearest), device=nearest.device)
    best = distances.new_full((len(gallery),), torch.inf).scatter_reduce_(0, nearest, distances, "amin")
    is_best = distances == best[nearest]
    lowest_row = torch.full_like(best, len(rows), dtype=torch.int64)
    lowest_row.scatter_reduce_(0, nearest[is_best], rows[is_best], "amin")
    leads = lowest_row[nearest] == rows

    margin = distances.square() / -2 - column_rest[nearest]
    is_mutual = leads & (margin > error)
    ambiguous = rows[leads & (margin.abs() <= error)]
    is_mutual[ambiguous] = _nearest_by_distance(gallery[nearest[ambiguous]], queries, block)[0] == ambiguous
    return is_mutual


def _nearest_by_distance(queries: Tensor, gallery: Tensor, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return index (Q,) and distance (Q,) of the nearest item, and distance (Q,) of the second."""
    nearest = torch.empty(len(queries), dtype=torch.int64, device=queries.device)
    first, second = torch.empty(2, len(queries), dtype=widest_float(queries.device), device=queries.device)
    for part in row_blocks(len(queries), len(gallery), block):
        here = _distances(queries[part], gallery)
        first[part], nearest[part] = here.min(1)
        second[part] = here.scatter_(1, nearest[part, None], torch.inf).amin(1)
    return nearest, first, second


def _distances(queries: Tensor, gallery: Tensor) -> Tensor:
    """(…, Q, D) and (…, N, D) → (…, Q, N). Each distance depends on its two rows only."""
    wide = widest_float(queries.device)
    return torch.cdist(queries.to(wide), gallery.to(wide), compute_mode="donot_use_mm_for_euclid_dist")


def match_binary(
    queries: Tensor, gallery: Tensor, ratio: float | None, mutual: bool, block: int = BLOCK
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `match_real` returns, for packed bits (N0, D/8) and (N1, D/8) uint8; distances are int32.

    The table holds the keys distance·2ˢ + row + column. Their minimum is the nearest neighbour in both directions:
    within a row, the row index is constant, so the lowest column wins among equal distances; within a column, the
    lowest row wins. A plain minimum is faster than one that also returns its index.
    """
    bits = 8 * queries.shape[1]
    shift, dtype = _key_layout(bits, len(queries), len(gallery))
    index, half, largest = (1 << shift) - 1, 1 << (shift - 1), torch.iinfo(dtype).max
    rows, columns = (torch.arange(len(side), dtype=dtype, device=queries.device) for side in (queries, gallery))
    signs0, signs1 = _signs(queries), _signs(gallery).T
    blocks = list(row_blocks(len(queries), len(gallery), block))
    # Hamming distance = (D − dot) / 2. These are the keys of the first block for dot products of 0.
    base = rows[blocks[0], None] + columns + bits * half
    dots, table = torch.empty_like(base, dtype=signs0.dtype), torch.empty_like(base)
    first, second = torch.empty_like(rows), torch.empty_like(rows)
    first_of_column = torch.full_like(columns, largest)
    for part in blocks:
        size = part.stop - part.start
        torch.mm(signs0[part], signs1, out=dots[:size])
        here = table[:size].copy_(dots[:size])
        torch.add(base[:size], here, alpha=-half, out=here)
        # Keys of later blocks lack the index of the block's first row.
        first[part] = here.amin(1) + part.start
        if mutual:
            first_of_column = torch.minimum(first_of_column, here.amin(0) + part.start)
        if ratio is not None:
            nearest = (first[part] & index) - rows[part]
            second[part] = here.scatter_(1, nearest[:, None].long(), largest).amin(1)
    nearest, distances = ((first & index) - rows).long(), (first >> shift).int()
    kept = torch.ones_like(nearest, dtype=torch.bool)
    if ratio is not None and len(gallery) > 1:
        kept &= distances < ratio * (second >> shift).to(widest_float(queries.device))
    if mutual:
        kept &= ((first_of_column & index) - columns)[nearest] == rows
    return nearest, distances, kept


def _key_layout(bits: int, rows: int, columns: int) -> tuple[int, torch.dtype]:
    """Return s and the smallest integer type that holds the keys of a table."""
    shift = (rows + columns).bit_length()
    return shift, torch.int32 if (bits + 1) << shift < 2**31 else torch.int64


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
