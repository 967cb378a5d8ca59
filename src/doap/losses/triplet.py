"""The baseline to beat: the hardest-in-batch triplet loss of HardNet (Mishchuk et al., NIPS 2017)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from doap.functional.distance import Distance, from_dot
from doap.functional.pairs import QueryPairs, rows_at_a_time
from doap.losses.gathered_batch import GatheredBatch, gather_rows, mean_over_ranks, relax
from doap.types import Relation


class HardestTriplet(nn.Module):
    """Mean of max(0, margin + d(a, p) − d(hardest)) over all matching pairs (a, p) of a list.

    The hardest distractor of a pair is the one nearest to either end of it. HardNet's batches hold two patches per
    point and look for it only among the patches of the other column; here groups may have any size, and it is looked
    for among all items that do not match, as `ListwiseAP` ranks them all. A pair without any distractor has no triplet.

    Distractors are chosen without gradient, a chunk of rows at a time; only the chosen distances are differentiated.

    Args:
        margin: 1 for unit vectors (HardNet); in bits for `hamming`.
        distance, chunk, across_ranks: as for `ListwiseAP`.

    Attributes:
        skipped: how many queries of the last call had no match.

    >>> import torch
    >>> loss = HardestTriplet()
    >>> near, far = torch.tensor([1.0, 0.0]), torch.tensor([-1.0, 0.0])
    >>> loss(torch.stack([near, near, far, far]), torch.tensor([0, 0, 1, 1]))
    tensor(0.)
    """

    def __init__(
        self,
        margin: float = 1.0,
        distance: Distance = "euclidean",
        chunk: int | None = None,
        across_ranks: bool = False,
    ) -> None:
        super().__init__()
        self.margin, self.distance, self.chunk = margin, distance, chunk
        self.across_ranks = across_ranks
        self.skipped: Tensor | int = 0

    def forward(self, descriptors: Tensor, groups: Tensor | Relation) -> Tensor:
        """The loss of a list; arguments as for `ListwiseAP`."""
        whole = GatheredBatch.of(relax(descriptors, self.distance), groups, self.across_ranks)
        if not len(whole.gallery):
            self.skipped = 0
            return descriptors.sum()
        pairs = QueryPairs(whole.relation, whole.first, len(whole.own))
        self.skipped = len(descriptors) - len(pairs.rows)
        anchor, positive, likeness, hardest = self._mine(whole, pairs)
        # Either end of the pair may have the harder distractor.
        harder = torch.where(likeness[anchor] >= likeness[positive], anchor, positive)
        exists = likeness[harder] > -torch.inf
        anchor, positive, harder = anchor[exists], positive[exists], harder[exists]
        gap = self._distance(whole.gallery, anchor, positive) - self._distance(whole.gallery, harder, hardest[harder])
        cost = (self.margin + gap).clamp(min=0)
        pairs_per_rank = mean_over_ranks(torch.tensor(len(cost), device=cost.device), self.across_ranks)
        return cost.sum() / pairs_per_rank.where(pairs_per_rank > 0, 1).to(cost.dtype)

    @torch.no_grad()
    def _mine(self, whole: GatheredBatch, pairs: QueryPairs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Matching pairs (P,), (P,) of own anchors; each item's largest dot with a distractor, and whose (N,), (N,)."""
        size = len(whole.gallery)
        everyone = torch.arange(len(whole.own), device=whole.own.device)
        likeness, hardest, anchors, positives = [], [], [], []
        with torch.autocast(whole.own.device.type, enabled=False):
            for rows in everyone.split(self.chunk or rows_at_a_time(whole.gallery)):
                dots = whole.own[rows] @ whole.gallery.T
                flat, _ = pairs.in_group(rows)
                pairs.fill_ignored(dots, rows, -torch.inf)
                dots.view(-1).index_fill_(0, flat, -torch.inf)
                best, index = dots.max(dim=1)
                likeness.append(best)
                hardest.append(index)
                anchor, positive = rows[flat // size] + whole.first, flat % size
                # Each pair once, on the rank that owns its first item; the cost is the same from both ends.
                anchors.append(anchor[positive > anchor])
                positives.append(positive[positive > anchor])
        best, index = torch.cat(likeness), torch.cat(hardest)
        if self.across_ranks:
            best, index = gather_rows(best), gather_rows(index)
        return torch.cat(anchors), torch.cat(positives), best, index

    def _distance(self, gallery: Tensor, one: Tensor, other: Tensor) -> Tensor:
        return from_dot(
            (gallery.index_select(0, one) * gallery.index_select(0, other)).sum(1), self.distance, gallery.shape[1]
        )
