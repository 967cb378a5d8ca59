"""The loss of the paper: one minus the mean Average Precision of a batch in which every patch is a query."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from doap._support.settings import StrictModel
from doap.loss.average_precision import APForm
from doap.loss.gathered_batch import GatheredBatch, mean_over_ranks, relax
from doap.loss.kernel import listwise_average_precision
from doap.loss.loss import Loss
from doap.metrics.distance import Distance
from doap.types import Relation

BINS = 8  # default for real-valued descriptors


class ListwiseAP(Loss):
    """1 − mean AP over the queries that have a match in the batch.

    `relaxed_average_precision` defines the AP. The loss takes the outputs of the network and relaxes them: rows are
    normalised to unit length for `euclidean` and `squared`, and go through tanh for `hamming`, whose bits are the signs
    of the outputs. Queries without a match are skipped and counted. A batch without any match has loss 0.

    `ListwiseAP()` is what `doap train` uses by default; `ListwiseAP.paper()` has the settings of the paper.

    Args:
        distance: `squared` Euclidean, `euclidean`, or `hamming` for binary codes.
        bins: Number of bins b; distances are shared among b + 1 bin centres. None: 8, or one per bit for `hamming`.
        form: Relaxation of AP: `simplified` (TALR, to which the paper refers) or `fastap`.
        margin: Distance by which a match must be nearer than a distractor to be ranked before it.
        straight_through: For `hamming`: rank by the signs, with the gradient of tanh.
        chunk: Rows of distances per step. It bounds the memory and does not change the result. None: a fast one.
        across_ranks: The batch spans all ranks of `torch.distributed`; see `Loss`.

    >>> import torch
    >>> loss = ListwiseAP()
    >>> a, b = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    >>> loss(torch.stack([a, a, b, b]), torch.tensor([0, 0, 1, 1]))
    tensor(0.)
    >>> loss(torch.stack([a, b, a, b]), torch.tensor([0, 0, 1, 2])), int(loss.skipped)
    (tensor(0.6000), 2)
    """

    class Settings(StrictModel):
        distance: Distance = Field("squared", description="squared, euclidean, or hamming for binary codes")
        bins: int | None = Field(None, ge=1, description=f"histogram bins; default {BINS}, one per bit for hamming")
        form: APForm = Field("simplified", description="relaxation of AP: simplified (TALR) or fastap")
        margin: float = Field(0.0, ge=0, description="distance by which a match must be nearer than a distractor")
        straight_through: bool = Field(False, description="hamming: rank by signs, with the gradient of tanh")
        chunk: int | None = Field(None, ge=1, description="rows of distances per step; bounds memory")

    settings: Settings
    _defaults = Settings()

    def __init__(
        self,
        distance: Distance = _defaults.distance,
        bins: int | None = _defaults.bins,
        form: APForm = _defaults.form,
        *,
        margin: float = _defaults.margin,
        straight_through: bool = _defaults.straight_through,
        chunk: int | None = _defaults.chunk,
        across_ranks: bool = False,
    ) -> None:
        super().__init__(
            across_ranks=across_ranks,
            distance=distance,
            bins=bins,
            form=form,
            margin=margin,
            straight_through=straight_through,
            chunk=chunk,
        )

    @classmethod
    def paper(cls, *, chunk: int | None = _defaults.chunk, across_ranks: bool = False) -> ListwiseAP:
        """Return the loss with the paper's settings: Euclidean distances and 25 bins."""
        return cls("euclidean", 25, chunk=chunk, across_ranks=across_ranks)

    def forward(self, descriptors: Tensor, groups: Tensor | Relation) -> Tensor:
        """Return 1 − mean AP of a batch; see `Loss.forward`."""
        settings = self.settings
        relaxed = relax(descriptors, settings.distance, settings.straight_through)
        batch = GatheredBatch.of(relaxed, groups, self.across_ranks)
        default = relaxed.shape[1] if settings.distance == "hamming" else BINS
        total, queries = listwise_average_precision(
            batch,
            distance=settings.distance,
            bins=settings.bins or default,
            margin=settings.margin,
            form=settings.form,
            chunk=settings.chunk,
        )
        self.skipped = len(descriptors) - queries
        # Without any query the loss is 0/1: zero, and still connected to the graph.
        return mean_over_ranks(queries - total, queries, self.across_ranks)

    def metrics(self, loss: float) -> dict[str, float]:
        """Return the mean AP that belongs to a mean loss."""
        return {"ap": 1 - loss}
