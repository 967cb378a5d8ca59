"""The relaxed Average Precision of a whole list, in one pass over its distances.

Every item of a list queries the others. The distances of a list of M are M² numbers, and three facts keep the cost
near that of the matrix product which makes them:

- a distance touches just two neighbouring bins, so filling the histograms is O(M²) whatever the number of bins;
- the slope of AP for a distance depends only on the bin it fell in, so backward is one look-up per pair;
- a query's AP depends only on its own row of distances. Rows are taken a chunk at a time, forward and backward
  together while they are in the cache, and what is kept for autograd is one gradient per descriptor.

Positives are few and are treated one by one; the dense pass sees distractors only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad, threshold

from doap.checks import check_choice, check_shape
from doap.errors import ArgumentError
from doap.functional.average_precision import (
    APForm,
    relaxed_average_precision,
    relaxed_average_precision_and_slopes,
)
from doap.functional.distance import Distance
from doap.functional.pairs import QueryPairs, rows_at_a_time
from doap.types import Relation


def listwise_average_precision(
    queries: Tensor,
    gallery: Tensor,
    relation: Relation,
    *,
    first: int = 0,
    distance: Distance = "euclidean",
    bins: int | None = None,
    form: APForm = "simplified",
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Sum of the relaxed AP of those queries that have a positive, and how many they are.

    Computed in float32 (float64 for float64 input) whatever autocast says: counts of thousands do not fit bfloat16.

    Args:
        queries: (Q, D), unit rows, or codes in [−1, 1] for `hamming`. They are gallery items `first` to `first + Q`,
            so a rank of a distributed run can own a part of the list.
        gallery: (N, D), the whole list, made like the queries.
        relation: who matches whom among the N.
        first: position of the first query in the gallery.
        distance: Euclidean in [0, 2], its square in [0, 4], or Hamming in [0, D].
        bins: b; distances are shared among b + 1 evenly spaced centres. None means 25 (the paper's choice), and one
            per bit for Hamming.
        form: which relaxation of AP.
        chunk: rows taken at a time; None chooses what is fast. Memory is O(chunk·N); results do not depend on it.

    Returns:
        The sum, a differentiable scalar, and the number of queries in it, an integer scalar.
    """
    count, dim = check_shape(queries, "Q D", name="queries").values()
    size = check_shape(gallery, f"N {dim}", name="gallery")["N"]
    check_choice(distance, get_args(Distance), name="distance")
    check_choice(form, get_args(APForm), name="form")
    if len(relation) != size:
        raise ArgumentError(f"relation: expected one of {size} items like the gallery, got {len(relation)}")
    if not 0 <= first <= size - count:
        raise ArgumentError(f"first: expected 0 to {size - count} so that queries are gallery items, got {first}")
    chunk = rows_at_a_time(gallery) if chunk is None else chunk
    if chunk < 1:
        raise ArgumentError(f"chunk: expected one row or more, got {chunk}")
    if bins is None:
        bins = dim if distance == "hamming" else 25
    if bins < 1:
        raise ArgumentError(f"bins: expected one or more, got {bins}")
    with torch.autocast(queries.device.type, enabled=False):
        precise = torch.promote_types(queries.dtype, torch.float32)
        asking = QueryPairs(relation, first, count)
        binning = _Binning.of(distance, bins, dim)
        inputs = (queries.to(precise), gallery.to(precise), asking, binning, form, chunk)
        total: Tensor = _OnePass.apply(*inputs)  # type: ignore[no-untyped-call]
    return total, torch.tensor(len(asking.rows), device=total.device)


@dataclass(frozen=True)
class _Binning:
    """How a dot product becomes a position p among bins 0…b: p = a·(1 − dot/full), or its root.

    `full` is the dot product of a descriptor with itself. Position `outside` is past the last bin: pairs that do not
    count are sent there, and that bin is cut off.
    """

    bins: int
    a: float
    full: float
    root: bool

    @classmethod
    def of(cls, distance: Distance, bins: int, dim: int) -> _Binning:
        # Euclidean: p = b·√(2 − 2·dot)/2, so p² = b²/2·(1 − dot); the others are linear in the dot product.
        root = distance == "euclidean"
        return cls(bins, bins**2 / 2 if root else bins / 2, dim if distance == "hamming" else 1, root)

    @property
    def outside(self) -> int:
        return self.bins + 1

    def positions(self, rows: Tensor, gallery: Tensor, out: Tensor) -> Tensor:
        """(R, N) positions in [0, b), just short of b so that the left one of two bins is never the last."""
        offset = rows.new_tensor(self.a)
        end = self.bins * (1 - 4 * torch.finfo(rows.dtype).eps)
        torch.addmm(offset, rows, gallery.T, alpha=-self.a / self.full, out=out)
        if self.root:
            return out.clamp_(0, end**2).sqrt_()
        return out.clamp_(0, end)

    def chain(self, slopes: Tensor) -> Tensor:
        """Slopes for positions → slopes for dot products, but for the 1/p of the root, which is each pair's own."""
        return slopes * (-self.a / self.full / (2 if self.root else 1))


class _OnePass(torch.autograd.Function):
    """Forward takes the gradient along while the distances are at hand; backward only scales it."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        gallery: Tensor,
        asking: QueryPairs,
        binning: _Binning,
        form: APForm,
        chunk: int,
    ) -> Tensor:
        wanted = any(ctx.needs_input_grad[:2])
        by_query, by_gallery = torch.zeros_like(queries), torch.zeros_like(gallery)
        total = queries.new_zeros((), dtype=torch.float64)
        for rows, buffers in _chunks(asking.rows, len(gallery), chunk, queries):
            described = queries[rows]
            average, by_dot = _chunk_pass(described, gallery, rows, asking, binning, form, buffers, wanted)
            total += average.double().sum()
            if wanted:
                by_query.index_copy_(0, rows, by_dot @ gallery)
                by_gallery.addmm_(by_dot.T, described)
        ctx.save_for_backward(by_query, by_gallery)
        return total.to(queries.dtype)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> tuple[Tensor | None, ...]:
        by_query, by_gallery = ctx.saved_tensors
        return incoming[0] * by_query, incoming[0] * by_gallery, None, None, None, None


@dataclass(frozen=True)
class _Buffers:
    """(R, N) work space, used again by each chunk: fresh pages cost more than the arithmetic on them."""

    positions: Tensor
    left: Tensor
    work: Tensor

    def first(self, rows: int) -> _Buffers:
        return _Buffers(self.positions[:rows], self.left[:rows], self.work[:rows])


def _chunks(rows: Tensor, size: int, chunk: int, like: Tensor) -> Iterator[tuple[Tensor, _Buffers]]:
    shape = (min(chunk, len(rows)), size)
    buffers = _Buffers(like.new_empty(shape), like.new_empty(shape, dtype=torch.long), like.new_empty(shape))
    for part in rows.split(chunk) if len(rows) else ():
        yield part, buffers.first(len(part))


def _chunk_pass(
    described: Tensor,
    gallery: Tensor,
    rows: Tensor,
    asking: QueryPairs,
    binning: _Binning,
    form: APForm,
    buffers: _Buffers,
    wanted: bool,
) -> tuple[Tensor, Tensor]:
    """(R,) relaxed AP of some queries and, if wanted, its (R, N) slopes for their dot products with the gallery."""
    positions = binning.positions(described, gallery, out=buffers.positions)
    pairs, is_positive = asking.in_group(rows)
    positives = pairs[is_positive]
    positive_row = positives // len(gallery)
    positive_at = positions.view(-1)[positives]
    asking.fill_ignored(positions, rows, binning.outside)
    positions.view(-1).index_fill_(0, pairs, binning.outside)

    # Distractors: every pair adds 1−share to the bin on its left and share to the next.
    left = buffers.left.copy_(positions)
    share = torch.frac(positions, out=buffers.work)
    counts = described.new_zeros(len(rows), binning.outside + 2)
    counts[:, 1:].scatter_add_(1, left, share)
    counts.scatter_add_(1, left, share.neg_().add_(1))
    positive_left = positive_at.long()
    positive_share = positive_at.frac()
    positive_counts = torch.zeros_like(counts)
    positive_counts.index_put_((positive_row, positive_left), 1 - positive_share, accumulate=True)
    positive_counts.index_put_((positive_row, positive_left + 1), positive_share, accumulate=True)
    inside = binning.bins + 1
    positive_counts = positive_counts[:, :inside]
    total = counts[:, :inside] + positive_counts
    if not wanted:
        average = relaxed_average_precision(positive_counts, total, form=form)
        return average, average

    # A move to the right takes from the left bin and gives to the next; pairs outside have nothing to move.
    average, by_positive, by_total = relaxed_average_precision_and_slopes(positive_counts, total, form=form)
    distractor_slope = pad(binning.chain(by_total.diff(dim=1)), (0, 2))
    positive_slope = binning.chain((by_positive + by_total).diff(dim=1))
    by_dot = torch.gather(distractor_slope, 1, left, out=buffers.work)
    by_positive_dot = positive_slope[positive_row, positive_left]
    if binning.root:
        # √ has no finite slope at 0, where equal descriptors meet: such a pair is left where it is.
        by_dot.div_(threshold(positions, 0, torch.inf, inplace=True))
        by_positive_dot = by_positive_dot / threshold(positive_at, 0, torch.inf)
    by_dot.view(-1).index_copy_(0, positives, by_positive_dot)
    return average, by_dot
