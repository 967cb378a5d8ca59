"""The hardest-in-batch triplet loss of HardNet (Mishchuk et al., NIPS 2017), the baseline of `ListwiseAP`."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from doap.checks import check_finite
from doap.functional.distance import Distance, from_dot
from doap.functional.pairs import QueryPairs, rows_at_a_time
from doap.losses.gathered_batch import GatheredBatch, gather_rows, mean_over_ranks, relax
from doap.losses.loss import Loss
from doap.settings import StrictModel
from doap.types import Relation


class HardestTriplet(Loss):
    """Mean of max(0, margin + d(a, p) − d(hardest)) over all matching pairs (a, p) of a batch.

    The hardest distractor of a pair is the one nearest to either of its two patches. HardNet's batches have two
    patches per point, and only the patches of the other column are candidates. Here groups may have any size, and all
    patches that do not match are candidates, as in `ListwiseAP`. A pair without any distractor has no triplet.

    Distractors are chosen without gradient, a chunk of rows at a time. Only the chosen distances are differentiated.

    Args:
        margin: 1 for unit vectors (HardNet); in bits for `hamming`.
        distance, chunk, across_ranks: As for `ListwiseAP`.

    Attributes:
        skipped: Number of queries without a match in the last batch.

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
        # On several ranks, all of them find the fault and stop together.
        check_finite(batch.gallery, name="descriptors")
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
        pairs_per_rank = mean_over_ranks(torch.tensor(len(cost), device=cost.device), self.across_ranks)
        return cost.sum() / pairs_per_rank.where(pairs_per_rank > 0, 1).to(cost.dtype)

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
