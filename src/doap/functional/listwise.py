"""The relaxed Average Precision of a whole batch, in one pass over its distances.

Every item of a batch is a query against all others, so a batch of M items has M² distances. Three facts keep the cost
close to that of the matrix product that computes these distances:

- A distance contributes to two neighbouring bins only. Filling the histograms is O(M²) for any number of bins.
- The derivative of AP with respect to a distance depends only on the bin of that distance. The backward pass is one
  table look-up per pair.
- The AP of a query depends only on its own row of distances. Rows are processed in chunks, forward and backward
  together while they are in the cache. Autograd stores the descriptors and one gradient for each.

The few positives are handled one by one; the dense pass handles the distractors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad, threshold

from doap.checks import check_choice, check_finite, check_shape
from doap.errors import ArgumentError
from doap.functional.average_precision import (
    APForm,
    relaxed_average_precision,
    relaxed_average_precision_and_slopes,
)
from doap.functional.distance import Distance
from doap.functional.pairs import QueryPairs, rows_at_a_time, widest_float
from doap.types import Relation


def listwise_average_precision(
    queries: Tensor,
    gallery: Tensor,
    relation: Relation,
    *,
    distance: Distance,
    bins: int,
    first: int = 0,
    memory: Tensor | None = None,
    margin: float = 0.0,
    form: APForm = "simplified",
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the sum of the relaxed AP over the queries that have a positive, and the number of these queries.

    The computation runs in float32 (float64 for float64 input) even under autocast, because counts of thousands are
    not exact in bfloat16. The AP itself is `doap.functional.relaxed_average_precision`.

    >>> codes = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> listwise_average_precision(codes, codes, Relation(torch.tensor([0, 0, 1])), distance="squared", bins=8)
    (tensor(2.), tensor(2))

    Args:
        queries: (Q, D) unit rows, or codes in [−1, 1] for `hamming`. They are the gallery items `first` to
            `first + Q`, so that each rank of a distributed run can own a part of the batch.
        gallery: (N, D) the whole batch.
        relation: Which of the N items, and then of the K items of `memory`, match.
        distance: `euclidean` in [0, 2], `squared` in [0, 4], or `hamming` in [0, D].
        bins: Number of bins b. Distances are shared among b + 1 evenly spaced bin centres.
        first: Position of the first query in the gallery.
        memory: (K, D) more items to rank, such as those of earlier batches. They are never queries and get no gradient.
        margin: Distance by which a match must be nearer than a distractor to be ranked before it.
        form: Relaxation of AP; see `relaxed_average_precision`.
        chunk: Rows of distances per step; memory is O(chunk·N), and the result does not depend on it. None selects a
            fast one.

    Returns:
        The sum, a differentiable scalar, and the number of queries, an integer scalar.
    """
    count, dim = check_shape(queries, "Q D", name="queries").values()
    size = check_shape(gallery, f"N {dim}", name="gallery")["N"]
    remembered = 0 if memory is None else check_shape(memory, f"K {dim}", name="memory")["K"]
    check_finite(gallery, name="gallery")
    check_choice(distance, get_args(Distance), name="distance")
    check_choice(form, get_args(APForm), name="form")
    if len(relation) != size + remembered:
        expected = f"{size} items of the gallery" + f" and {remembered} of the memory" * bool(remembered)
        raise ArgumentError(f"relation: expected the {expected}, got {len(relation)} items")
    if not 0 <= first <= size - count:
        raise ArgumentError(f"first: expected 0 to {size - count} so that queries are gallery items, got {first}")
    chunk = rows_at_a_time(gallery, remembered) if chunk is None else chunk
    if chunk < 1:
        raise ArgumentError(f"chunk: expected 1 row or more, got {chunk}")
    with torch.autocast(queries.device.type, enabled=False):
        precise = torch.promote_types(queries.dtype, torch.float32)
        more = gallery.new_empty(0, dim) if memory is None else memory.detach()
        items = (queries.to(precise), gallery.to(precise), more.to(precise))
        pairs, binning = QueryPairs(relation, first, count), _Binning.of(distance, bins, dim, margin)
        total: Tensor = _OnePass.apply(*items, pairs, binning, form, chunk)  # type: ignore[no-untyped-call]
    return total, torch.tensor(len(pairs.rows), device=total.device)


@dataclass(frozen=True)
class _Binning:
    """Maps a dot product to a position p among the bin centres 0…b: p = scale·(1 − dot/full), or its square root.

    Attributes:
        bins: b.
        scale: Factor of the linear map.
        full: Dot product of a descriptor with itself.
        root: Take the square root (Euclidean distances).
        shift: Margin of the matches, in bins.
    """

    bins: int
    scale: float
    full: float
    root: bool
    shift: float

    @classmethod
    def of(cls, distance: Distance, bins: int, dim: int, margin: float) -> _Binning:
        if bins < 1:
            raise ArgumentError(f"bins: expected 1 or more, got {bins}")
        if not 0 <= margin < math.inf:
            raise ArgumentError(f"margin: expected a distance of 0 or more, got {margin}")
        # Euclidean: p = b·√(2 − 2·dot)/2, so p² = b²/2·(1 − dot). The other distances are linear in the dot product.
        root = distance == "euclidean"
        scale = bins**2 / 2 if root else bins / 2
        largest = {"euclidean": 2, "squared": 4, "hamming": dim}[distance]
        return cls(bins, scale, dim if distance == "hamming" else 1, root, bins * margin / largest)

    @property
    def outside(self) -> int:
        """Position past the last bin centre, for pairs that do not count; that bin is cut off."""
        return self.bins + 1 + math.ceil(self.shift)

    def positions(self, rows: Tensor, gallery: Tensor, out: Tensor) -> Tensor:
        """Positions (R, N) in [0, b); they stay below b so that a position always has a bin to its right."""
        offset = rows.new_tensor(self.scale)
        end = self.bins * (1 - 4 * torch.finfo(rows.dtype).eps)
        torch.addmm(offset, rows, gallery.T, alpha=-self.scale / self.full, out=out)
        if self.root:
            return out.clamp_(0, end**2).sqrt_()
        return out.clamp_(0, end)

    def shifted(self, positions: Tensor) -> Tensor:
        """Positions of matches with the margin, below the last bin centre."""
        return (positions + self.shift).clamp_(max=(self.outside - 1) * (1 - 4 * torch.finfo(positions.dtype).eps))

    def chain(self, slopes: Tensor) -> Tensor:
        """Derivatives by positions → by dot products, except for the factor 1/p of the root, which each pair has."""
        return slopes * (-self.scale / self.full / (2 if self.root else 1))


class _OnePass(torch.autograd.Function):
    """The forward pass also computes the gradient, while the distances are in the cache; backward only scales it.

    The stored gradient is a constant to autograd, so a second derivative would be wrong and is refused.
    """

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        gallery: Tensor,
        memory: Tensor,
        pairs: QueryPairs,
        binning: _Binning,
        form: APForm,
        chunk: int,
    ) -> Tensor:
        with_gradient = any(ctx.needs_input_grad[:2])
        by_query, by_gallery = torch.zeros_like(queries), torch.zeros_like(gallery)
        total = queries.new_zeros((), dtype=widest_float(queries.device))
        items = torch.cat([gallery, memory]) if len(memory) else gallery
        for rows, buffers in _chunks(pairs.rows, len(items), chunk, queries):
            descriptors = queries[rows]
            average, by_dot = _chunk_pass(descriptors, items, rows, pairs, binning, form, buffers, with_gradient)
            total += average.to(total.dtype).sum()
            if with_gradient:
                by_query.index_copy_(0, rows, by_dot @ items)
                by_gallery.addmm_(by_dot[:, : len(gallery)].T, descriptors)
        ctx.save_for_backward(by_query, by_gallery, queries, gallery)
        return total.to(queries.dtype)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> tuple[Tensor | None, ...]:
        by_query, by_gallery, *inputs = ctx.saved_tensors
        gradients = incoming[0] * by_query, incoming[0] * by_gallery
        # Gradients are enabled here if the caller asks for a graph of the gradient (`create_graph=True`).
        if torch.is_grad_enabled():
            pairs = zip(gradients, inputs, strict=True)
            gradients = tuple(_NotDifferentiable.apply(*pair) for pair in pairs)  # type: ignore[no-untyped-call]
        return *gradients, None, None, None, None, None


class _NotDifferentiable(torch.autograd.Function):
    """A gradient (N, D) by an input (N, D), as a tensor that has no derivative by that input."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, by: Tensor) -> Tensor:  # noqa: ARG004 - links the gradient to the input
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ARG004
        raise ArgumentError("listwise_average_precision: expected one backward pass; it has no second derivative.")


@dataclass(frozen=True)
class _Buffers:
    """Work space (R, N) that all chunks share: allocating fresh memory costs more than the arithmetic on it."""

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
    descriptors: Tensor,
    gallery: Tensor,
    rows: Tensor,
    pairs: QueryPairs,
    binning: _Binning,
    form: APForm,
    buffers: _Buffers,
    with_gradient: bool,
) -> tuple[Tensor, Tensor]:
    """Return the relaxed AP (R,) of some queries and, `with_gradient`, its derivatives (R, N) by their dot products."""
    positions = binning.positions(descriptors, gallery, out=buffers.positions)
    in_group, is_positive = pairs.in_group(rows)
    positives = in_group[is_positive]
    positive_row = positives // len(gallery)
    positive_position = positions.view(-1)[positives]
    pairs.fill_ignored(positions, rows, binning.outside)
    positions.view(-1).index_fill_(0, in_group, binning.outside)

    # Soft histogram of the distractors: a pair adds 1 − share to the bin on its left and share to the bin on its right.
    left = buffers.left.copy_(positions)
    share = torch.frac(positions, out=buffers.work)
    counts = descriptors.new_zeros(len(rows), binning.outside + 2)
    counts[:, 1:].scatter_add_(1, left, share)
    counts.scatter_add_(1, left, share.neg_().add_(1))
    # The same for the positives.
    shifted = binning.shifted(positive_position)
    positive_left = shifted.long()
    positive_share = shifted.frac()
    positive_counts = torch.zeros_like(counts)
    positive_counts.index_put_((positive_row, positive_left), 1 - positive_share, accumulate=True)
    positive_counts.index_put_((positive_row, positive_left + 1), positive_share, accumulate=True)
    inside = binning.outside
    positive_counts = positive_counts[:, :inside]
    total = counts[:, :inside] + positive_counts
    if not with_gradient:
        average = relaxed_average_precision(positive_counts, total, form=form)
        return average, average

    # A pair that moves to the right takes from its left bin and gives to the next. Pairs outside move nothing.
    average, by_positive, by_total = relaxed_average_precision_and_slopes(positive_counts, total, form=form)
    distractor_slope = pad(binning.chain(by_total.diff(dim=1)), (0, 2))
    positive_slope = binning.chain((by_positive + by_total).diff(dim=1))
    by_dot = torch.gather(distractor_slope, 1, left, out=buffers.work)
    by_positive_dot = positive_slope[positive_row, positive_left]
    if binning.root:
        # The root has no finite derivative at 0, the distance of equal descriptors: such a pair gets gradient 0.
        by_dot.div_(threshold(positions, 0, torch.inf, inplace=True))
        by_positive_dot = by_positive_dot / threshold(positive_position, 0, torch.inf)
    by_dot.view(-1).index_copy_(0, positives, by_positive_dot)
    return average, by_dot
