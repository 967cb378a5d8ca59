"""The loss of the paper: one minus the mean Average Precision of a list, every item querying the others."""

from __future__ import annotations

from torch import Tensor, nn

from doap.functional.average_precision import APForm
from doap.functional.distance import Distance
from doap.functional.listwise import listwise_average_precision
from doap.losses.gathered_batch import GatheredBatch, mean_over_ranks, relax
from doap.types import Relation


class ListwiseAP(nn.Module):
    """1 − mean AP of the queries that have a match in the list; see `doap.functional.listwise_average_precision`.

    It takes what the network puts out and relaxes it itself: rows are brought to unit length for `euclidean` and
    `squared` (which leaves unit rows as they are), and through tanh for `hamming`, whose bits are signs in use.
    A query without a match is skipped and counted; a list without any match costs 0.

    Args:
        distance: `euclidean` (the paper), `squared` (its authors' released layer), or `hamming` for binary codes.
        bins: b, see there; None means 25, and one per bit for `hamming`.
        form: `simplified` (the paper) or `fastap`.
        slope, signs: for `hamming`, how near to the bits in use the relaxed ones are; see `relax`.
        chunk: rows taken at a time; bounds memory, changes nothing else. None chooses what is fast.
        across_ranks: the list spans all ranks of `torch.distributed`, each rank asking for its own items. Ranks
            average to the loss of the whole list, so DistributedDataParallel's mean of gradients is the true one.

    Attributes:
        skipped: how many queries of the last call had no match.

    >>> import torch
    >>> loss = ListwiseAP()
    >>> near, far = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    >>> loss(torch.stack([near, near, far, far]), torch.tensor([0, 0, 1, 1]))
    tensor(0.)
    >>> loss(torch.stack([near, far, near, far]), torch.tensor([0, 0, 1, 2])), int(loss.skipped)
    (tensor(0.6042), 2)
    """

    def __init__(
        self,
        distance: Distance = "euclidean",
        bins: int | None = None,
        form: APForm = "simplified",
        chunk: int | None = None,
        across_ranks: bool = False,
        slope: float = 1.0,
        signs: bool = False,
    ) -> None:
        super().__init__()
        self.slope, self.signs = slope, signs
        self.distance, self.bins, self.form, self.chunk = distance, bins, form, chunk
        self.across_ranks = across_ranks
        self.skipped: Tensor | int = 0

    def forward(self, descriptors: Tensor, groups: Tensor | Relation) -> Tensor:
        """The loss of a list.

        Args:
            descriptors: (M, D) outputs of the network.
            groups: (M,) integers, equal for items that match, or a `Relation` that also names pairs to ignore.
        """
        whole = GatheredBatch.of(relax(descriptors, self.distance, self.slope, self.signs), groups, self.across_ranks)
        total, asked = listwise_average_precision(
            whole.own,
            whole.gallery,
            whole.relation,
            first=whole.first,
            distance=self.distance,
            bins=self.bins,
            form=self.form,
            chunk=self.chunk,
        )
        self.skipped = len(descriptors) - asked
        # Where nobody asks, 0/1 keeps the loss 0 and the graph whole.
        mean_asked = mean_over_ranks(asked, self.across_ranks)
        return (asked - total) / mean_asked.where(mean_asked > 0, 1).to(total.dtype)
