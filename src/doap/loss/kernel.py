"""The definition in `average_precision.py` for a whole batch, with its gradient, in one pass over the distances.

Every item of a batch is a query against all others, so a batch of M items has M² distances. Three facts keep the cost
close to that of the matrix product that computes these distances:

- A distance contributes to two neighbouring bins only. Filling the histograms is O(M²) for any number of bins.
- The derivative of AP with respect to a distance depends only on the bin of that distance. The backward pass is one
  table look-up per pair.
- The AP of a query depends only on its own row of distances. Rows are processed in chunks, forward and backward
  together while they are in the cache. Autograd stores one gradient for each descriptor.

The few positives are handled one by one; the dense pass handles the distractors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, threshold

from doap._support.errors import ArgumentError
from doap.loss.average_precision import APForm
from doap.loss.gathered_batch import GatheredBatch
from doap.metrics.distance import Distance
from doap.metrics.pairs import QueryPairs, rows_at_a_time, widest_float


def listwise_average_precision(
    batch: GatheredBatch,
    *,
    distance: Distance,
    bins: int,
    margin: float = 0.0,
    form: APForm = "simplified",
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the sum of the relaxed AP over the queries that have a positive, and the number of these queries.

    Autocast is disabled, because counts of thousands are not exact in bfloat16.

    >>> codes = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> batch = GatheredBatch.of(codes, torch.tensor([0, 0, 1]), across_ranks=False)
    >>> listwise_average_precision(batch, distance="squared", bins=8)
    (tensor(2.), tensor(2))

    Args:
        batch: Unit rows, or codes in [−1, 1] for `hamming`. The queries are its own items.
        distance: `euclidean` in [0, 2], `squared` in [0, 4], or `hamming` in [0, D].
        bins: Number of bins b. Distances are shared among b + 1 evenly spaced bin centres.
        margin: Distance by which a match must be nearer than a distractor to be ranked before it.
        form: Relaxation of AP; see `relaxed_average_precision`.
        chunk: Rows of distances per step; memory is O(chunk·N), and the result does not depend on it. None: a fast one.
    """
    pairs = QueryPairs(batch.relation, batch.first, len(batch.own))
    binning = _Binning.of(distance, bins, batch.own.shape[1], margin)
    chunk = chunk or rows_at_a_time(batch.gallery)
    with torch.autocast(batch.own.device.type, enabled=False):
        total: Tensor = _OnePass.apply(  # type: ignore[no-untyped-call]
            batch.own, batch.gallery, pairs, binning, form, chunk
        )
    return total, torch.tensor(len(pairs.rows), device=total.device)


@dataclass(frozen=True)
class _Binning:
    """Maps a dot product to a position p among the bin centres 0…b: p = scale·(1 − dot/full), or its square root."""

    bins: int  # b
    scale: float
    full: float  # dot product of a descriptor with itself
    root: bool  # take the square root (Euclidean distances)
    shift: float  # margin of the matches, in bins

    @classmethod
    def of(cls, distance: Distance, bins: int, dim: int, margin: float) -> _Binning:
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

    The stored gradient is a constant, so a second derivative would be wrong and is refused.
    """

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, gallery: Tensor, pairs: QueryPairs, binning: _Binning, form: APForm, chunk: int
    ) -> Tensor:
        by_query, by_gallery = torch.zeros_like(queries), torch.zeros_like(gallery)
        total = queries.new_zeros((), dtype=widest_float(queries.device))
        # All chunks share their buffers: allocating fresh memory costs more than the arithmetic on it.
        shape = min(chunk, len(pairs.rows)), len(gallery)
        buffers = [queries.new_empty(shape, dtype=dtype) for dtype in (queries.dtype, torch.long, queries.dtype)]
        for rows in pairs.rows.split(chunk):
            descriptors, parts = queries[rows], [buffer[: len(rows)] for buffer in buffers]
            average, by_dot = _chunk_pass(descriptors, gallery, rows, pairs, binning, form, parts)
            total += average.to(total.dtype).sum()
            by_query.index_copy_(0, rows, by_dot @ gallery)
            by_gallery.addmm_(by_dot.T, descriptors)
        ctx.save_for_backward(by_query, by_gallery)
        return total.to(queries.dtype)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> tuple[Tensor | None, ...]:
        # Gradients are enabled here if the caller asks for a graph of the gradient.
        if torch.is_grad_enabled():
            raise ArgumentError("create_graph: expected False, because ListwiseAP has no second derivative, got True.")
        by_query, by_gallery = ctx.saved_tensors
        return incoming[0] * by_query, incoming[0] * by_gallery, None, None, None, None


def _chunk_pass(
    descriptors: Tensor,
    gallery: Tensor,
    rows: Tensor,
    pairs: QueryPairs,
    binning: _Binning,
    form: APForm,
    buffers: list[Tensor],
) -> tuple[Tensor, Tensor]:
    """Return the relaxed AP (R,) of some queries and its derivatives (R, N) by their dot products."""
    positions, left, work = buffers
    binning.positions(descriptors, gallery, out=positions)
    in_group, is_positive = pairs.in_group(rows)
    positives = in_group[is_positive]
    positive_row = positives // len(gallery)
    positive_position = positions.view(-1)[positives]
    pairs.fill_ignored(positions, rows, binning.outside)
    positions.view(-1).index_fill_(0, in_group, binning.outside)

    # Soft histogram of the distractors: a pair adds 1 − share to the bin on its left and share to the bin on its right.
    left.copy_(positions)
    share = torch.frac(positions, out=work)
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
    positive_counts = positive_counts[:, : binning.outside]
    total = counts[:, : binning.outside] + positive_counts
    average, by_positive, by_total = _average_precision_and_slopes(positive_counts, total, form)

    # A pair that moves to the right takes from its left bin and gives to the next. Pairs outside move nothing.
    distractor_slope = pad(binning.chain(by_total.diff(dim=1)), (0, 2))
    positive_slope = binning.chain((by_positive + by_total).diff(dim=1))
    by_dot = torch.gather(distractor_slope, 1, left, out=work)
    by_positive_dot = positive_slope[positive_row, positive_left]
    if binning.root:
        # The root has no finite derivative at 0, the distance of equal descriptors: such a pair gets gradient 0.
        by_dot.div_(threshold(positions, 0, torch.inf, inplace=True))
        by_positive_dot = by_positive_dot / threshold(positive_position, 0, torch.inf)
    by_dot.view(-1).index_copy_(0, positives, by_positive_dot)
    return average, by_dot


def _average_precision_and_slopes(positives: Tensor, total: Tensor, form: APForm) -> tuple[Tensor, Tensor, Tensor]:
    """Return the relaxed AP of histograms (R, K) and its derivatives in closed form, for a fixed N⁺.

    N⁺ is a constant because a soft histogram conserves the number of items. The precision of a bin is n/t, where n and
    t are sums over the counts of the bins up to it. An item in bin j therefore changes n (if it is positive) and t (in
    any case) of bin j and of all later bins.

    Returns:
        AP (R,), ∂AP/∂c⁺ (R, K) and ∂AP/∂c (R, K). A positive is in both counts, so its derivative is their sum.
    """
    numerator, denominator = positives.cumsum(1), total.cumsum(1)
    if form == "simplified":
        numerator, denominator = 2 * numerator - positives + 1, 2 * denominator - total + 1
    else:
        denominator = denominator.where(denominator > 0, 1)
    precision = numerator / denominator
    number = positives.sum(1, keepdim=True).clamp(min=1)
    share = positives / number
    by_numerator = share / denominator
    by_positive = precision / number + _sum_over_later_bins(by_numerator, form)
    by_total = -_sum_over_later_bins(by_numerator * precision, form)
    return (share * precision).sum(1), by_positive, by_total


def _sum_over_later_bins(slope: Tensor, form: APForm) -> Tensor:
    """Derivative by each count: the sum over its own bin and all later bins, as n and t are sums over earlier ones."""
    suffix = slope.flip(1).cumsum(1).flip(1)
    return 2 * suffix - slope if form == "simplified" else suffix
