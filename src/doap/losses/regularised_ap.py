"""`ListwiseAP` with further terms: second-order similarity (SOSNet) and the hardest triplet (HardNet)."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from doap.functional.distance import Distance, from_dot
from doap.losses.gathered_batch import relax
from doap.losses.listwise_ap import ListwiseAP
from doap.losses.triplet import HardestTriplet
from doap.types import Relation

NEIGHBOURS = 8
"""Neighbours of a patch whose distances are compared, as in SOSNet."""


class RegularisedAP(ListwiseAP):
    """`ListwiseAP` + second_order · second-order term + triplet · hardest-triplet loss.

    With several ranks, the second-order term compares the patches of each rank.

    Args:
        second_order: Weight of `second_order_difference` of the first two patches of each group.
        triplet: Weight of `HardestTriplet`.
        settings: Settings of `ListwiseAP`.

    >>> loss = RegularisedAP(second_order=1.0)
    >>> a, b = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    >>> loss(torch.stack([a, a, b, b]), torch.tensor([0, 0, 1, 1]))
    tensor(0.)
    """

    class Settings(ListwiseAP.Settings):
        second_order: float = Field(0.0, ge=0, description="weight of the second-order similarity term")
        triplet: float = Field(0.0, ge=0, description="weight of the hardest-triplet loss")

    settings: Settings

    def __init__(
        self, *, second_order: float = 0.0, triplet: float = 0.0, across_ranks: bool = False, **settings: Any
    ) -> None:
        super().__init__(**settings, across_ranks=across_ranks)
        terms = {"second_order": second_order, "triplet": triplet}
        self.settings = self.Settings.check(**{**dict(self.settings), **terms})
        # Both terms are defined for distances, not for their squares.
        self._distance: Distance = "hamming" if self.settings.distance == "hamming" else "euclidean"
        self._triplet = HardestTriplet(distance=self._distance, across_ranks=across_ranks)

    def forward(self, descriptors: Tensor, groups: Tensor | Relation) -> Tensor:
        """Return the weighted sum of the terms; see `Loss.forward`."""
        loss = super().forward(descriptors, groups)
        relation = (groups if isinstance(groups, Relation) else Relation(groups)).first(len(descriptors))
        if weight := self.settings.second_order:
            first, second = _pairs(relation.groups)
            relaxed = relax(descriptors, self.settings.distance)
            loss = loss + weight * second_order_difference(relaxed[first], relaxed[second], self._distance)
        if weight := self.settings.triplet:
            loss = loss + weight * self._triplet(descriptors, relation)
        return loss

    def metrics(self, loss: float) -> dict[str, float]:  # noqa: ARG002 - the loss is not one minus AP
        """Return nothing: the loss has further terms."""
        return {}


def second_order_difference(first: Tensor, second: Tensor, distance: Distance = "euclidean") -> Tensor:
    """Return how much the distances among P points differ between two views of them (SOSNet, Tian et al. 2019).

    The mean over points of the root of the summed squared differences |d(a_i, a_j) − d(b_i, b_j)|², over the
    neighbours j of a_i or of b_i.

    Args:
        first, second: (P, D) unit rows, or codes in [−1, 1] for `hamming`, of the same points.
        distance: `euclidean`, or `hamming` in bits.
    """
    if len(first) < 2:
        return first.sum() * 0
    tables = [from_dot(view @ view.T, distance, view.shape[1]) for view in (first, second)]
    near = torch.zeros_like(tables[0], dtype=torch.bool)
    for table in tables:
        apart = table.detach().clone().fill_diagonal_(torch.inf)
        near.scatter_(1, apart.topk(min(NEIGHBOURS, len(first) - 1), largest=False).indices, True)
    squared = ((tables[0] - tables[1]).square() * near).sum(1)
    # The root has no finite derivative at 0, where both views agree exactly.
    return squared.where(squared > 0, 1).sqrt().where(squared > 0, 0).mean()


def _pairs(groups: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first two items (P,) of each group that has two."""
    order = groups.argsort(stable=True)
    ordered = groups[order]
    begins = torch.ones_like(ordered, dtype=torch.bool)
    begins[1:] = ordered[1:] != ordered[:-1]
    has_second = begins[:-1] & ~begins[1:]
    at = has_second.nonzero().squeeze(1)
    return order[at], order[at + 1]
