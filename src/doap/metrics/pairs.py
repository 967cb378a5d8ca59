"""The pairs of a relation, one block of rows at a time: the (Q, N) table is never built as a whole."""

from __future__ import annotations

import torch
from torch import Tensor

from doap.types import Relation


def rows_at_a_time(gallery: Tensor) -> int:
    """Return a fast number of rows per block of distances to a gallery (N, D).

    A million distances fit in the cache of a CPU, and much smaller blocks are dominated by the overhead of each call.
    An accelerator needs larger blocks.
    """
    distances = 2**20 if gallery.device.type == "cpu" else 2**25
    return max(64, distances // max(1, len(gallery)))


def widest_float(device: torch.device) -> torch.dtype:
    """Return the type to accumulate sums in: float64, or float32 on MPS, which has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


class QueryPairs:
    """The matching and ignored pairs of some queries; all other pairs are distractors.

    A block is (R, N): some of the queries against all items. Pairs are flat indices into a block.

    Args:
        relation: Which of the N items match.
        first, count: The queries are the items `first` to `first + count`.

    Attributes:
        rows: Queries that have a positive, counted from `first`, increasing.
    """

    def __init__(self, relation: Relation, first: int, count: int) -> None:
        self.relation, self.first, self.size = relation, first, len(relation)
        self._ordered, self._order = relation.groups.sort(stable=True)
        self._start, self._members = self._members_of(relation.groups[first : first + count].contiguous())
        self.rows = (self._members > 1).nonzero().squeeze(1)
        self._ignored = None
        if relation.ignored_pairs is not None and len(relation.ignored_pairs):
            self._ignored = self._item_pairs(torch.cat([relation.ignored_pairs, relation.ignored_pairs.flip(1)]))

    def in_group(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the flat indices (P,) of all pairs within a group, and (P,) bool, False for a query with itself."""
        row, column = self._expand(self._start[rows], self._members[rows])
        return row * self.size + column, column != rows[row] + self.first

    def fill_ignored(self, block: Tensor, rows: Tensor, value: float) -> None:
        """Write `value` to the pairs of a block that the relation ignores; pairs within a group may be among them."""
        items = rows + self.first
        clusters, table = self.relation.clusters, self.relation.ignored_clusters
        if clusters is not None and table is not None:
            block.masked_fill_(table[clusters[items]][:, clusters], value)
        if self._ignored is not None and len(items):
            query, other = self._ignored
            begin, end = torch.searchsorted(query, torch.stack([items[0], items[-1] + 1]))
            query, other = query[begin:end], other[begin:end]
            row = torch.searchsorted(items, query)
            # The block may skip items between its first and its last row.
            in_block = items[row] == query
            block.view(-1).index_fill_(0, (row * self.size + other)[in_block], value)

    def _members_of(self, groups: Tensor) -> tuple[Tensor, Tensor]:
        """Start (n,) of each of n groups among the items sorted by group, and its size (n,)."""
        start = torch.searchsorted(self._ordered, groups)
        return start, torch.searchsorted(self._ordered, groups, right=True) - start

    def _expand(self, start: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """Expand n runs of the sorted items, by start and size, to the run (P,) and the item (P,) of each member."""
        run = torch.repeat_interleave(size)
        within = torch.arange(len(run), device=run.device) - (size.cumsum(0) - size)[run]
        return run, self._order[start[run] + within]

    def _item_pairs(self, pairs: Tensor) -> Tensor:
        """Expand pairs of groups (P, 2) to all pairs of their items (2, I), sorted by the first item."""
        pair, query = self._expand(*self._members_of(pairs[:, 0].contiguous()))
        start, size = self._members_of(pairs[:, 1].contiguous())
        which, other = self._expand(start[pair], size[pair])
        items = torch.stack([query[which], other])
        return items[:, items[0].argsort()].contiguous()
