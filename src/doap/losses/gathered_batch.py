"""The batch that a loss ranks: relaxed descriptors, of one rank or gathered from all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from doap.checks import check_shape
from doap.errors import ArgumentError
from doap.functional.distance import Distance
from doap.functional.pairs import widest_float
from doap.types import Relation

_SHORTEST = 1e-6


@dataclass(frozen=True)
class GatheredBatch:
    """The batch of all ranks, and the part of it whose queries this rank owns.

    Attributes:
        own: (Q, D) relaxed descriptors of this rank; items `first` to `first + Q` of the gallery.
        gallery: (N, D) relaxed descriptors of all ranks.
        relation: Which of the N items of the gallery, and then of the K items of the memory, match.
        first: Position of the first own item in the gallery.
        memory: (K, D) relaxed descriptors of earlier batches of all ranks, the same on all ranks; None for none.
    """

    own: Tensor
    gallery: Tensor
    relation: Relation
    first: int = 0
    memory: Tensor | None = None

    @classmethod
    def of(
        cls, relaxed: Tensor, groups: Tensor | Relation, across_ranks: bool, remembered: Tensor | None = None
    ) -> GatheredBatch:
        """Build the batch from relaxed descriptors (M, D) and their groups.

        Args:
            relaxed: (M, D) relaxed descriptors of this rank.
            groups: Groups or relation of the M descriptors and of the K latest `remembered` ones; K may be 0.
            across_ranks: Gather the descriptors of all ranks.
            remembered: (R, D) relaxed descriptors of earlier batches, R ≥ K.
        """
        size = check_shape(relaxed, "M D", name="descriptors")["M"]
        relation = groups if isinstance(groups, Relation) else Relation(groups)
        available = 0 if remembered is None else len(remembered)
        if not size <= len(relation) <= size + available:
            expected = f"each of {size} descriptors" + (f" and up to {available} remembered ones" if available else "")
            raise ArgumentError(f"groups: expected one for {expected}, got {len(relation)}")
        relation = relation.to(relaxed.device)
        known = len(relation) - size
        memory = remembered[available - known :] if remembered is not None and known else None
        if not across_ranks:
            return cls(relaxed, relaxed, relation, memory=memory)
        sizes = _sizes(size, relaxed.device)
        first = sum(sizes[: dist.get_rank()])
        gallery: Tensor = _GatherWithGradient.apply(relaxed, sizes)  # type: ignore[no-untyped-call]
        return cls(relaxed, gallery, _gather_relation(relation, size), first, memory)


def relax(descriptors: Tensor, distance: Distance, slope: float = 1.0, straight_through: bool = False) -> Tensor:
    """Prepare the outputs of a network for a distance, in float32 or better.

    >>> relax(torch.tensor([[0.1, -2.0]]), "hamming", straight_through=True)
    tensor([[ 1., -1.]])

    Args:
        descriptors: (M, D) outputs of the network.
        distance: `hamming` applies tanh; the other distances normalise rows to unit length.
        slope: tanh(slope·x). A steeper tanh is nearer to the bits that are deployed, but fewer bits have a gradient.
        straight_through: Return the deployed bits as ±1, with the gradient of tanh (straight-through estimator).

    Returns:
        (M, D) unit rows, or numbers in −1…1 for `hamming`.
    """
    precise = descriptors.to(torch.promote_types(descriptors.dtype, torch.float32))
    if distance != "hamming":
        return _normalise(precise)
    soft = (slope * precise).tanh()
    if not straight_through:
        return soft
    # As in `pack_bits`, zero is not positive.
    bits = torch.where(precise > 0, 1.0, -1.0)
    return soft + (bits - soft).detach()


def _normalise(rows: Tensor) -> Tensor:
    """Scale rows (M, D) to unit length.

    A row shorter than 10⁻⁶ has no direction: it becomes 0 and has no gradient, which would be larger than 10⁶.
    """
    lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    directed = lengths > _SHORTEST
    unit: Tensor = rows / lengths.where(directed, 1) * directed
    return unit


def mean_over_ranks(value: Tensor, across_ranks: bool) -> Tensor:
    """Mean of a scalar over all ranks, without gradient."""
    value = value.to(widest_float(value.device))
    if across_ranks:
        dist.all_reduce(value)
        value /= dist.get_world_size()
    return value


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


def _gather_relation(relation: Relation, size: int) -> Relation:
    """Gather the relations of all ranks' first `size` items; the items after them are the same on all ranks."""

    def gather_items(values: Tensor) -> Tensor:
        return torch.cat([gather_rows(values[:size]), values[size:]])

    device = relation.groups.device
    none = torch.zeros(0, 2, dtype=torch.long, device=device)
    pairs = gather_rows(none if relation.ignored_pairs is None else relation.ignored_pairs)
    table = relation.ignored_clusters
    tables = gather_rows(none[:, :1].flatten().bool() if table is None else table.flatten())
    if table is None or relation.clusters is None:
        if len(tables):
            raise ArgumentError("ignored_clusters: expected a table on all ranks or on none, got it on some ranks")
        return Relation(gather_items(relation.groups), pairs)
    if not torch.equal(tables, table.flatten().repeat(dist.get_world_size())):
        raise ArgumentError("ignored_clusters: expected the same table on all ranks, got different tables")
    return Relation(gather_items(relation.groups), pairs, gather_items(relation.clusters), table)
