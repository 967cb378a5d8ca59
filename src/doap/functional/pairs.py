"""Who matches whom, a block of rows at a time: the (Q, N) table of a relation is never made whole."""

from __future__ import annotations

import torch
from torch import Tensor

from doap.types import Relation


def rows_at_a_time(gallery: Tensor) -> int:
    """How many rows of distances to a gallery (N, D) to take in one piece, where speed decides.

    On a processor a million distances stay in the cache, and fewer would drown in the cost of each call; an accelerator
    wants longer work.
    """
    distances = 2**20 if gallery.device.type == "cpu" else 2**25
    return max(64, distances // max(1, len(gallery)))


class QueryPairs:
    """The pairs of some queries that are not plain distractors.

    The queries are items `first` to `first + count` of the N related ones. A block is (R, N): some queries against all
    items; pairs are given as flat positions in it.

    Attributes:
        rows: those queries, counted from `first`, that have a positive; increasing.
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
        """(P,) flat positions of all pairs inside a group, and (P,) bool: not the query with itself."""
        row, column = self._expand(self._start[rows], self._members[rows])
        return row * self.size + column, column != rows[row] + self.first

    def fill_ignored(self, block: Tensor, rows: Tensor, value: float) -> None:
        """Write `value` over the pairs that the relation ignores; pairs inside a group may be among them."""
        items = rows + self.first
        clusters, table = self.relation.clusters, self.relation.ignored_clusters
        if clusters is not None and table is not None:
            block.masked_fill_(table[clusters[items]][:, clusters], value)
        if self._ignored is not None and len(items):
            query, other = self._ignored
            begin, end = torch.searchsorted(query, torch.stack([items[0], items[-1] + 1]))
            query, other = query[begin:end], other[begin:end]
            row = torch.searchsorted(items, query)
            # Between the first and the last row of the block there may be items that are not in it.
            asked = items[row] == query
            block.view(-1).index_fill_(0, (row * self.size + other)[asked], value)

    def _members_of(self, groups: Tensor) -> tuple[Tensor, Tensor]:
        """For (n,) groups: where each begins among the items sorted by group (n,), and its size (n,)."""
        start = torch.searchsorted(self._ordered, groups)
        return start, torch.searchsorted(self._ordered, groups, right=True) - start

    def _expand(self, start: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """Runs of the sorted items (n,), (n,) → (P,) the run and (P,) the item of each member."""
        run = torch.repeat_interleave(size)
        within = torch.arange(len(run), device=run.device) - (size.cumsum(0) - size)[run]
        return run, self._order[start[run] + within]

    def _item_pairs(self, pairs: Tensor) -> Tensor:
        """(P, 2) groups → (2, I) items: all of the first with all of the second, sorted by the first."""
        pair, query = self._expand(*self._members_of(pairs[:, 0].contiguous()))
        start, size = self._members_of(pairs[:, 1].contiguous())
        which, other = self._expand(start[pair], size[pair])
        items = torch.stack([query[which], other])
        return items[:, items[0].argsort()].contiguous()
