"""The batch that a loss ranks: relaxed descriptors, of one rank or gathered from all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from doap._support.checks import check_finite, check_shape
from doap._support.errors import ArgumentError
from doap.metrics.distance import Distance
from doap.metrics.pairs import widest_float
from doap.types import Relation


def relax(descriptors: Tensor, distance: Distance, straight_through: bool = False) -> Tensor:
    """Prepare the outputs of a network for a distance, in float32 or better.

    >>> relax(torch.tensor([[0.1, -2.0]]), "hamming", straight_through=True)
    tensor([[ 1., -1.]])

    Args:
        descriptors: (M, D) outputs of the network.
        distance: `hamming` applies tanh; the other distances normalise rows to unit length. A row shorter than 10⁻⁶ has
            no direction: it becomes 0 and has no gradient, which would be larger than 10⁶.
        straight_through: Return the deployed bits as ±1, with the gradient of tanh (straight-through estimator).
    """
    precise = descriptors.to(torch.promote_types(descriptors.dtype, torch.float32))
    if distance != "hamming":
        lengths = torch.linalg.vector_norm(precise, dim=-1, keepdim=True)
        directed = lengths > 1e-6
        unit: Tensor = precise / lengths.where(directed, 1) * directed
        return unit
    soft = precise.tanh()
    if not straight_through:
        return soft
    # As in `pack_bits`, zero is not positive.
    bits = torch.where(precise > 0, 1.0, -1.0)
    return soft + (bits - soft).detach()


@dataclass(frozen=True)
class GatheredBatch:
    """The batch of all ranks, and the part of it whose queries this rank owns.

    Attributes:
        own: (Q, D) relaxed descriptors of this rank; items `first` to `first + Q` of the gallery.
        gallery: (N, D) relaxed descriptors of all ranks.
        relation: Which of the N items match.
        first: Position of the first own item in the gallery.
    """

    own: Tensor
    gallery: Tensor
    relation: Relation
    first: int = 0

    @classmethod
    def of(cls, relaxed: Tensor, groups: Tensor | Relation, across_ranks: bool) -> GatheredBatch:
        """Build the batch from relaxed descriptors (M, D) of this rank and their groups or relation."""
        size = check_shape(relaxed, "M D", name="descriptors")["M"]
        relation = groups if isinstance(groups, Relation) else Relation(groups)
        if len(relation) != size:
            raise ArgumentError(f"groups: expected one for each of {size} descriptors, got {len(relation)}")
        relation = relation.to(relaxed.device)
        gallery, first = relaxed, 0
        if across_ranks:
            sizes = _sizes(size, relaxed.device)
            gallery = _GatherWithGradient.apply(relaxed, sizes)  # type: ignore[no-untyped-call]
            relation, first = _gather_relation(relation), sum(sizes[: dist.get_rank()])
        # All ranks find a fault and stop together.
        check_finite(gallery, name="descriptors")
        return cls(relaxed, gallery, relation, first)


def mean_over_ranks(total: Tensor, count: Tensor, across_ranks: bool) -> Tensor:
    """Divide the sum of this rank by the mean count of all ranks: the mean of the results is then the overall mean."""
    count = count.to(widest_float(count.device))
    if across_ranks:
        dist.all_reduce(count)
        count /= dist.get_world_size()
    return total / count.where(count > 0, 1).to(total.dtype)


def gather_rows(rows: Tensor) -> Tensor:
    """Concatenate (n, …) of each rank in the order of ranks, without gradient; n may differ between ranks."""
    return _gather(rows, _sizes(len(rows), rows.device))


class _GatherWithGradient(torch.autograd.Function):
    """Concatenate the ranks' rows. The backward pass sums the gradients that all ranks have for a rank's rows.

    It sums and does not average because DistributedDataParallel divides by the number of ranks afterwards.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int]) -> Tensor:
        ctx.sizes = sizes
        return _gather(rows, sizes)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *incoming: Tensor) -> tuple[Tensor, None]:
        gradient = incoming[0].contiguous()
        dist.all_reduce(gradient)
        return gradient.split(ctx.sizes)[dist.get_rank()], None


def _sizes(size: int, device: torch.device) -> list[int]:
    own = torch.tensor([size], device=device)
    sizes = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, own)
    return [int(one) for one in sizes]


def _gather(rows: Tensor, sizes: list[int]) -> Tensor:
    # Collectives need equal shapes: ranks pad to the longest, and the padding is cut off again.
    padded = rows.new_zeros(max(sizes), *rows.shape[1:])
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def _gather_relation(relation: Relation) -> Relation:
    nothing = relation.groups.new_zeros(0, 2)
    groups = gather_rows(relation.groups)
    pairs = gather_rows(nothing if relation.ignored_pairs is None else relation.ignored_pairs)
    table = relation.ignored_clusters
    own = nothing.flatten().bool() if table is None else table.flatten()
    if not torch.equal(gather_rows(own), own.repeat(dist.get_world_size())):
        raise ArgumentError("ignored_clusters: expected the same table on all ranks or on none, got different ones")
    if relation.clusters is None:
        return Relation(groups, pairs)
    return Relation(groups, pairs, gather_rows(relation.clusters), table)
