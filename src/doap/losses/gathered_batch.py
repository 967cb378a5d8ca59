"""What a loss looks at: descriptors as distances need them, and the list of one rank or of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import normalize

from doap.checks import check_shape
from doap.errors import ArgumentError
from doap.functional.distance import Distance
from doap.types import Relation


@dataclass(frozen=True)
class GatheredBatch:
    """The list a loss ranks, and the part of it whose queries this process owns.

    Attributes:
        own: (Q, D) relaxed descriptors of this process; items `first` to `first + Q` of the gallery.
        gallery: (N, D) relaxed descriptors of all processes.
        relation: who matches whom among the N.
        first: position of the first own item in the gallery.
    """

    own: Tensor
    gallery: Tensor
    relation: Relation
    first: int = 0

    @classmethod
    def of(cls, relaxed: Tensor, groups: Tensor | Relation, across_ranks: bool) -> GatheredBatch:
        """Take relaxed descriptors (M, D) and their groups; gather those of all ranks if asked to."""
        size = check_shape(relaxed, "M D", name="descriptors")["M"]
        relation = groups if isinstance(groups, Relation) else Relation(groups)
        if len(relation) != size:
            raise ArgumentError(f"groups: expected one for each of {size} descriptors, got {len(relation)}")
        relation = relation.to(relaxed.device)
        if not across_ranks:
            return cls(relaxed, relaxed, relation)
        sizes = _sizes(size, relaxed.device)
        first = sum(sizes[: dist.get_rank()])
        gallery: Tensor = _GatherWithGradient.apply(relaxed, sizes)  # type: ignore[no-untyped-call]
        return cls(relaxed, gallery, _gather_relation(relation), first)


def relax(descriptors: Tensor, distance: Distance, slope: float = 1.0, signs: bool = False) -> Tensor:
    """What the network puts out as distances need it, in float32 or better: unit rows, or numbers in −1…1 for bits.

    >>> relax(torch.tensor([[0.1, -2.0]]), "hamming", signs=True)
    tensor([[ 1., -1.]])

    Args:
        descriptors: (M, D) outputs of the network.
        distance: for `hamming`, rows go through tanh; for the others they are brought to unit length.
        slope: tanh(slope·x); the steeper, the nearer to the bits in use, and the fewer bits have a gradient.
        signs: take the bits in use, and their gradient from tanh ("straight through").
    """
    precise = descriptors.to(torch.promote_types(descriptors.dtype, torch.float32))
    if distance != "hamming":
        return normalize(precise, dim=-1)
    soft = (slope * precise).tanh()
    # As `pack_bits` has it, 0 is no positive number.
    return soft + (torch.where(precise > 0, 1.0, -1.0) - soft).detach() if signs else soft


def mean_over_ranks(value: Tensor, across_ranks: bool) -> Tensor:
    """The mean of a number over all ranks, without gradient."""
    value = value.double()
    if across_ranks:
        dist.all_reduce(value)
        value /= dist.get_world_size()
    return value


def gather_rows(rows: Tensor) -> Tensor:
    """(n, …) of each rank, any n → all of them in the order of ranks, without gradient."""
    return _gather(rows, _sizes(len(rows), rows.device))


class _GatherWithGradient(torch.autograd.Function):
    """Concatenate the ranks' rows; backward, each rank's rows collect what all ranks ask of them.

    Summed, not averaged: DistributedDataParallel divides by the number of ranks afterwards, once.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int]) -> Tensor:
        ctx.sizes = sizes
        return _gather(rows, sizes)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> tuple[Tensor, None]:
        gradient = incoming[0].contiguous()
        dist.all_reduce(gradient)
        return gradient.split(ctx.sizes)[dist.get_rank()], None


def _sizes(size: int, device: torch.device) -> list[int]:
    own = torch.tensor([size], device=device)
    everyone = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, own)
    return [int(one) for one in everyone]


def _gather(rows: Tensor, sizes: list[int]) -> Tensor:
    # Collectives want equal shapes; groups are ragged, so ranks pad to the longest and cut again.
    padded = rows.new_zeros(max(sizes), *rows.shape[1:])
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def _gather_relation(relation: Relation) -> Relation:
    device = relation.groups.device
    none = torch.zeros(0, 2, dtype=torch.long, device=device)
    pairs = gather_rows(none if relation.ignored_pairs is None else relation.ignored_pairs)
    table = relation.ignored_clusters
    tables = gather_rows(none[:, :1].flatten().bool() if table is None else table.flatten())
    if table is None or relation.clusters is None:
        if len(tables):
            raise ArgumentError("ignored_clusters: expected on all ranks or on none, got it on other ranks only")
        return Relation(gather_rows(relation.groups), pairs)
    if not torch.equal(tables, table.flatten().repeat(dist.get_world_size())):
        raise ArgumentError("ignored_clusters: expected the same table on all ranks, got different ones")
    return Relation(gather_rows(relation.groups), pairs, gather_rows(relation.clusters), table)
