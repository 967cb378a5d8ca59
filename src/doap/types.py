"""Frozen dataclasses that cross rooms."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from doap.errors import ArgumentError, check_shape


@dataclass(frozen=True)
class Relation:
    """Who matches whom in a list of M descriptors: match, distractor or ignore.

    Two items of one group match. All other pairs are distractors, except those named here, which count neither
    for nor against a query. It is held compactly, never as an (M, M) table:

    Attributes:
        groups: (M,) integers; equal means match. A group of one is a distractor to all and is never a query.
        ignored_pairs: (P, 2) positions in the list, P pairs in any order, each read in both directions.
        clusters: (M,) integers in 0…C−1, given together with `ignored_clusters`.
        ignored_clusters: (C, C) bool, symmetric: items of these two clusters ignore each other unless they match.
    """

    groups: Tensor
    ignored_pairs: Tensor | None = None
    clusters: Tensor | None = None
    ignored_clusters: Tensor | None = None

    def __post_init__(self) -> None:
        size = check_shape(self.groups, "M", name="groups")["M"]
        if self.groups.is_floating_point():
            raise ArgumentError(f"groups: expected integers, got {self.groups.dtype}")
        if self.ignored_pairs is not None:
            check_shape(self.ignored_pairs, "P 2", name="ignored_pairs")
            _check_positions(self.ignored_pairs, size, name="ignored_pairs")
        if (self.clusters is None) != (self.ignored_clusters is None):
            raise ArgumentError("clusters and ignored_clusters: give both or neither, got one of them")
        if self.clusters is not None and self.ignored_clusters is not None:
            check_shape(self.clusters, str(size), name="clusters")
            count = check_shape(self.ignored_clusters, "C C", name="ignored_clusters")["C"]
            _check_positions(self.clusters, count, name="clusters")
            if self.ignored_clusters.dtype != torch.bool:
                raise ArgumentError(f"ignored_clusters: expected bool, got {self.ignored_clusters.dtype}")
            if not torch.equal(self.ignored_clusters, self.ignored_clusters.T):
                raise ArgumentError("ignored_clusters: expected a symmetric table, got one that is not")

    def __len__(self) -> int:
        return len(self.groups)

    def to(self, device: torch.device) -> Relation:
        """The same relation on another device."""
        if self.groups.device == device:
            return self
        ignored = (self.ignored_pairs, self.clusters, self.ignored_clusters)
        return Relation(self.groups.to(device), *(None if part is None else part.to(device) for part in ignored))


def _check_positions(values: Tensor, end: int, *, name: str) -> None:
    if values.numel() and (values.is_floating_point() or values.min() < 0 or values.max() >= end):
        raise ArgumentError(f"{name}: expected integers from 0 to {end - 1}, got others; check the offsets")
