"""The baseline of `ListwiseAP`, and a term that can be added to any loss."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from doap._support.settings import StrictModel
from doap.loss.gathered_batch import GatheredBatch, gather_rows, mean_over_ranks, relax
from doap.loss.loss import Loss
from doap.metrics.distance import Distance, from_dot
from doap.metrics.pairs import QueryPairs, rows_at_a_time
from doap.types import Kind, Relation

NEIGHBOURS = 8  # whose distances the second-order term compares, as in SOSNet


class HardestTriplet(Loss):
    """The loss of HardNet (NIPS 2017): max(0, margin + d(a, p) − d(hardest)), mean of all matching pairs (a, p).

    The hardest distractor of a pair is the one nearest to either of its two patches. HardNet's batches have two
    patches per point, and only the patches of the other column are candidates. Here groups may have any size, and all
    patches that do not match are candidates, as in `ListwiseAP`. A pair without any distractor has no triplet.

    Distractors are chosen without gradient, a chunk of rows at a time. Only the chosen distances are differentiated.

    Args:
        margin: 1 for unit vectors (HardNet); in bits for `hamming`.
        distance, chunk, across_ranks: As for `ListwiseAP`.

    >>> import torch
    >>> loss = HardestTriplet()
    >>> a, b = torch.tensor([1.0, 0.0]), torch.tensor([-1.0, 0.0])
    >>> loss(torch.stack([a, a, b, b]), torch.tensor([0, 0, 1, 1]))
    tensor(0.)
    """

    class Settings(StrictModel):
        margin: float = Field(1.0, gt=0, description="margin of the triplet loss; in bits for hamming")
        distance: Distance = Field("euclidean", description="euclidean, squared, or hamming for binary codes")
        chunk: int | None = Field(None, ge=1, description="rows of distances per step; bounds memory")

    settings: Settings
    _defaults = Settings()

    def __init__(
        self,
        margin: float = _defaults.margin,
        distance: Distance = _defaults.distance,
        *,
        chunk: int | None = _defaults.chunk,
        across_ranks: bool = False,
    ) -> None:
        super().__init__(across_ranks=across_ranks, margin=margin, distance=distance, chunk=chunk)

    def forward(self, descriptors: Tensor, groups: Tensor | Relation) -> Tensor:
        """Return the mean triplet loss of a batch; see `Loss.forward`."""
        batch = GatheredBatch.of(relax(descriptors, self.settings.distance), groups, self.across_ranks)
        if not len(batch.gallery):
            self.skipped = 0
            return descriptors.sum()
        pairs = QueryPairs(batch.relation, batch.first, len(batch.own))
        self.skipped = len(descriptors) - len(pairs.rows)
        anchor, positive, similarity, nearest = self._mine(batch, pairs)
        # Take the harder of the two distractors nearest to the anchor and to the positive.
        harder = torch.where(similarity[anchor] >= similarity[positive], anchor, positive)
        exists = similarity[harder] > -torch.inf
        anchor, positive, harder = anchor[exists], positive[exists], harder[exists]
        to_positive = self._distances(batch.gallery, anchor, positive)
        to_distractor = self._distances(batch.gallery, harder, nearest[harder])
        cost = (self.settings.margin + (to_positive - to_distractor)).clamp(min=0)
        return mean_over_ranks(cost.sum(), torch.tensor(len(cost), device=cost.device), self.across_ranks)

    @torch.no_grad()
    def _mine(self, batch: GatheredBatch, pairs: QueryPairs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Find the matching pairs and the nearest distractors.

        Returns:
            Anchors (P,) among this rank's patches and their positives (P,); for each patch of the gallery the largest
            dot product with a distractor (N,) and the index of that distractor (N,).
        """
        size = len(batch.gallery)
        queries = torch.arange(len(batch.own), device=batch.own.device)
        similarity, nearest, anchors, positives = [], [], [], []
        with torch.autocast(batch.own.device.type, enabled=False):
            for rows in queries.split(self.settings.chunk or rows_at_a_time(batch.gallery)):
                dots = batch.own[rows] @ batch.gallery.T
                flat, _ = pairs.in_group(rows)
                pairs.fill_ignored(dots, rows, -torch.inf)
                dots.view(-1).index_fill_(0, flat, -torch.inf)
                best, index = dots.max(dim=1)
                similarity.append(best)
                nearest.append(index)
                anchor, positive = rows[flat // size] + batch.first, flat % size
                # The cost is the same from both ends: each pair counts once, on the rank of its first patch.
                anchors.append(anchor[positive > anchor])
                positives.append(positive[positive > anchor])
        best, index = torch.cat(similarity), torch.cat(nearest)
        if self.across_ranks:
            best, index = gather_rows(best), gather_rows(index)
        return torch.cat(anchors), torch.cat(positives), best, index

    def _distances(self, gallery: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Distances (P,) between the gallery's items at `first` (P,) and `second` (P,)."""
        dots = (gallery.index_select(0, first) * gallery.index_select(0, second)).sum(1)
        return from_dot(dots, self.settings.distance, gallery.shape[1])


def second_order_difference(descriptors: Tensor, groups: Tensor, kind: Kind = "real") -> Tensor:
    """Return how much the distances among the points of a batch differ between two views of them (SOSNet, CVPR 2019).

    The views a and b are the first two patches of each group that has two. The value is the mean over the points i of
    the root of Σ (d(a_i, a_j) − d(b_i, b_j))² over the neighbours j of a_i or of b_i. In a recipe, `second_order` in
    the section `[loss]` is its weight. With several ranks, each compares its own patches.

    Args:
        descriptors: (M, D) outputs of the network.
        groups: (M,) integers, equal for patches of one point.
        kind: Kind of the network: `real` for Euclidean distances, `binary` for distances in bits.
    """
    distance: Distance = "hamming" if kind == "binary" else "euclidean"
    relaxed = relax(descriptors, distance)
    ordered, order = groups.sort(stable=True)
    same = (ordered[1:] == ordered[:-1]).int()
    # The first pair of neighbours in the order that belongs to one group.
    at = (same.diff(prepend=same.new_zeros(1)) > 0).nonzero().squeeze(1)
    if len(at) < 2:
        return relaxed.sum() * 0
    tables = [from_dot(view @ view.T, distance, view.shape[1]) for view in (relaxed[order[at]], relaxed[order[at + 1]])]
    near = torch.zeros_like(tables[0], dtype=torch.bool)
    for table in tables:
        apart = table.detach().clone().fill_diagonal_(torch.inf)
        near.scatter_(1, apart.topk(min(NEIGHBOURS, len(at) - 1), largest=False).indices, True)
    squared = ((tables[0] - tables[1]).square() * near).sum(1)
    # The root has no finite derivative at 0, where both views agree exactly.
    return squared.where(squared > 0, 1).sqrt().where(squared > 0, 0).mean()
