"""Nearest neighbours of real-valued descriptors by Euclidean distance."""

from __future__ import annotations

import torch
from torch import Tensor

from doap.errors import ArgumentError
from doap.matching.blocks import BLOCK, row_blocks, widest_float


def match_real(
    queries: Tensor, gallery: Tensor, ratio: float | None, mutual: bool, block: int = BLOCK
) -> tuple[Tensor, Tensor, Tensor]:
    """The nearest gallery item of each query, and whether the pair passes the tests.

    One float32 product gives −d²/2 of all pairs, with an error that is bounded. It settles nearly everything; where two
    candidates are closer than the bound, and only there, the distances of that row or column are computed directly, one
    pair at a time in float64. So ties are true ties, and no way of summing a product shows in the result. A set of
    descriptors that are all alike is slow: everything is in doubt.

    Args:
        queries: (N0, D) floats, not empty.
        gallery: (N1, D) floats, not empty.
        ratio, mutual: as for `match_descriptors`.
        block: distances held at a time.

    Returns:
        (N0,) int64 indices into the gallery, (N0,) float32 distances, (N0,) bool.
    """
    queries, gallery = queries.float(), gallery.float()
    left, right, error = _extended(queries, gallery)
    nearest, first, second, others = _survey(left, right, block)

    distances = _distances(queries[:, None], gallery[nearest, None])[:, 0, 0]
    doubtful = first - second <= 2 * error
    kept = torch.ones_like(doubtful)
    if ratio is not None:
        least, most = ((-2 * second.to(distances) + 2 * e).clamp(min=0).sqrt() for e in (-error, error))
        kept = distances < ratio * least
        doubtful |= ~kept & (distances < ratio * most)

    rows = doubtful.nonzero().squeeze(1)
    before = nearest[rows]
    nearest[rows], distances[rows], runner_up = _nearest_of_all(queries[rows], gallery, block)
    if ratio is not None:
        kept[rows] = distances[rows] < ratio * runner_up
    if mutual:
        # What the survey took for a row's nearest, and is not, is back among the others of its column.
        moved = before != nearest[rows]
        others.scatter_reduce_(0, before[moved], first[rows[moved]], "amax")
        kept &= _preferred(queries, gallery, nearest, distances, others, error, block)
    return nearest, distances.float(), kept


def _extended(queries: Tensor, gallery: Tensor) -> tuple[Tensor, Tensor, float]:
    """Rows whose product is −d²/2: [q, −|q|²/2, 1]·[g, 1, −|g|²/2], and a bound of its error.

    The sum has D + 2 terms that are together within |q|² + |g|², and rounds as often; the squares have rounded before.
    """
    if torch.get_float32_matmul_precision() != "highest":
        # The product would be made of fewer bits than the bound counts on.
        queries, gallery = (side.to(widest_float(side.device)) for side in (queries, gallery))
    squares0, squares1 = (side.square().sum(1, keepdim=True) for side in (queries, gallery))
    number, most = torch.finfo(torch.float32), (float(squares0.max()), float(squares1.max()))
    for name, square in zip(("queries", "gallery"), most, strict=True):
        if not square < number.max / 2:
            raise ArgumentError(
                f"{name}: expected finite rows with squares that sum to less than {number.max / 2:.2g}, "
                f"got {square:.2g}; drop such rows, or scale all"
            )
    left = torch.cat([queries, squares0 / -2, torch.ones_like(squares0)], 1)
    right = torch.cat([gallery, torch.ones_like(squares1), squares1 / -2], 1)
    return left, right, (queries.shape[1] + 4) * (number.eps * sum(most) + number.tiny)


def _survey(left: Tensor, right: Tensor, block: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What the product says.

    Returns:
        (N0,) the place of the largest key of each row; (N0,) that key and (N0,) the next, −∞ in a table of one column;
        (N1,) the largest key of each column among those that are not the largest of their row.
    """
    blocks = list(row_blocks(len(left), len(right), block))
    keys = left.new_empty(blocks[0].stop, len(right))
    nearest = torch.empty(len(left), dtype=torch.int64, device=left.device)
    first, second = left.new_empty(2, len(left))
    others = left.new_full((len(right),), -torch.inf)
    for part in blocks:
        # `out` saves fresh memory, and keeps autocast away, which would leave few bits of the product.
        here = torch.mm(left[part], right.T, out=keys[: part.stop - part.start])
        first[part], nearest[part] = here.max(1)
        here.scatter_(1, nearest[part, None], -torch.inf)
        second[part] = here.amax(1)
        others = torch.maximum(others, here.amax(0))
    return nearest, first, second, others


def _preferred(
    queries: Tensor, gallery: Tensor, nearest: Tensor, distances: Tensor, others: Tensor, error: float, block: int
) -> Tensor:
    """(N0,) whether each query is the nearest to its own nearest gallery item.

    It competes with the queries that have the same nearest, whose distances are known, and with the `others`.
    """
    rows = torch.arange(len(nearest), device=nearest.device)
    best = distances.new_full((len(gallery),), torch.inf).scatter_reduce_(0, nearest, distances, "amin")
    leads = distances == best[nearest]
    lowest = torch.full_like(best, len(rows), dtype=torch.int64)
    lowest.scatter_reduce_(0, nearest[leads], rows[leads], "amin")
    leads = lowest[nearest] == rows

    ahead = distances.square() / -2 - others[nearest]
    preferred = leads & (ahead > error)
    doubtful = rows[leads & (ahead.abs() <= error)]
    preferred[doubtful] = _nearest_of_all(gallery[nearest[doubtful]], queries, block)[0] == doubtful
    return preferred


def _nearest_of_all(queries: Tensor, gallery: Tensor, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """By the distances themselves: (Q,) places of the nearest, (Q,) its distance, (Q,) that of the second nearest."""
    nearest = torch.empty(len(queries), dtype=torch.int64, device=queries.device)
    first, second = torch.empty(2, len(queries), dtype=widest_float(queries.device), device=queries.device)
    for part in row_blocks(len(queries), len(gallery), block):
        here = _distances(queries[part], gallery)
        first[part], nearest[part] = here.min(1)
        second[part] = here.scatter_(1, nearest[part, None], torch.inf).amin(1)
    return nearest, first, second


def _distances(queries: Tensor, gallery: Tensor) -> Tensor:
    """(…, Q, D) and (…, N, D) → (…, Q, N), each from its two rows alone, so that it is the same wherever they stand."""
    wide = widest_float(queries.device)
    return torch.cdist(queries.to(wide), gallery.to(wide), compute_mode="donot_use_mm_for_euclid_dist")
