"""The loss of the paper: one minus the mean Average Precision of a batch in which every patch is a query."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from doap.errors import ArgumentError
from doap.functional.average_precision import APForm
from doap.functional.distance import Distance
from doap.functional.listwise import listwise_average_precision
from doap.losses.gathered_batch import GatheredBatch, mean_over_ranks, relax
from doap.losses.loss import Loss
from doap.settings import StrictModel
from doap.types import Relation

BINS = 8
"""Default number of bins of `euclidean` and `squared` distances; `hamming` has one bin per bit."""


class ListwiseAP(Loss):
    """1 − mean AP over the queries that have a match in the batch.

    `doap.functional.relaxed_average_precision` computes the differentiable AP. The loss takes the outputs of the
    network and relaxes them: rows are normalised to unit length for `euclidean` and `squared`, and go through tanh for
    `hamming`, whose bits are the signs of the outputs. Queries without a match are skipped and counted. A batch
    without any match has loss 0.

    `ListwiseAP()` is what `doap train` uses by default; `ListwiseAP.paper()` has the settings of the paper.

    Args:
        distance: `squared` Euclidean, `euclidean`, or `hamming` for binary codes.
        bins: Number of histogram bins b; distances are shared among b + 1 bin centres. None selects the default.
        form: Relaxation of AP: `simplified` (TALR, to which the paper refers) or `fastap`.
        margin: Distance by which a match must be nearer than a distractor to be ranked before it, in the unit of
            `distance`.
        memory: Maximum number of descriptors of earlier batches that are ranked too, without gradient. `groups` then
            covers the M descriptors of the batch and the K of the memory, the most recent batch last;
            `doap.data.Batches` builds such relations.
        initial_bins: Number of bins at the start of training; `anneal` goes from it to `bins`.
        final_slope: For `hamming`: slope of tanh(slope·x) at the end of training; `anneal` starts from 1.
        straight_through: For `hamming`: rank by the signs, with the gradient of tanh.
        chunk: Rows of the distance matrix per step. It bounds the memory and does not change the result. None selects
            a fast one.
        across_ranks: The batch spans all ranks of `torch.distributed`, and each rank owns the queries among its own
            patches. The mean over ranks is the loss of the whole batch, so DistributedDataParallel's mean of the
            gradients is exact.

    Attributes:
        bins: Current number of bins; None for one per bit.
        slope: Current slope of tanh.
        skipped: Number of queries without a match in the last batch.
        remembered: (K, D) relaxed descriptors of earlier batches, part of the state of the module.

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
        memory: int = Field(0, ge=0, description="descriptors of earlier batches that are ranked too")
        initial_bins: int | None = Field(None, ge=1, description="bins at the start of training")
        final_slope: float = Field(1.0, ge=1, description="hamming: slope of tanh at the end of training")
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
        memory: int = _defaults.memory,
        initial_bins: int | None = _defaults.initial_bins,
        final_slope: float = _defaults.final_slope,
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
            memory=memory,
            initial_bins=initial_bins,
            final_slope=final_slope,
            straight_through=straight_through,
            chunk=chunk,
        )
        self.final_bins = BINS if bins is None and distance != "hamming" else bins
        if initial_bins is not None and self.final_bins is None:
            raise ArgumentError(f"initial_bins: expected bins too for hamming distances, got {initial_bins} without it")
        self.remembered: Tensor | None = None
        self.anneal(0.0)

    @classmethod
    def paper(cls, *, chunk: int | None = _defaults.chunk, across_ranks: bool = False) -> ListwiseAP:
        """Return the loss with the paper's settings: Euclidean distances and 25 bins."""
        return cls("euclidean", 25, chunk=chunk, across_ranks=across_ranks)

    def forward(self, descriptors: Tensor, groups: Tensor | Relation) -> Tensor:
        """Return 1 − mean AP of a batch; see `Loss.forward`."""
        settings = self.settings
        relaxed = relax(descriptors, settings.distance, self.slope, settings.straight_through)
        batch = GatheredBatch.of(relaxed, groups, self.across_ranks, self.remembered)
        total, queries = listwise_average_precision(
            batch.own,
            batch.gallery,
            batch.relation,
            first=batch.first,
            memory=batch.memory,
            margin=settings.margin,
            distance=settings.distance,
            bins=self.bins or relaxed.shape[1],
            form=settings.form,
            chunk=settings.chunk,
        )
        self.skipped = len(descriptors) - queries
        if settings.memory:
            latest = batch.gallery.detach()
            remembered = latest if self.remembered is None else torch.cat([self.remembered, latest])
            self.remembered = remembered[-settings.memory :]
        # Without any query the loss is 0/1: zero, and still connected to the graph.
        queries_per_rank = mean_over_ranks(queries, self.across_ranks)
        return (queries - total) / queries_per_rank.where(queries_per_rank > 0, 1).to(total.dtype)

    def get_extra_state(self) -> dict[str, Tensor]:
        """Return the memory, so that a checkpoint has it."""
        return {} if self.remembered is None else {"remembered": self.remembered}

    def set_extra_state(self, state: dict[str, Tensor]) -> None:
        """Restore the memory."""
        self.remembered = state.get("remembered")

    def anneal(self, progress: float) -> None:
        """Move the bins from `initial_bins` to `bins` and the slope from 1 to `final_slope`, both linearly."""
        first, last = self.settings.initial_bins, self.final_bins
        self.bins = last if first is None or last is None else round(first + progress * (last - first))
        self.slope = 1 + progress * (self.settings.final_slope - 1)

    def metrics(self, loss: float) -> dict[str, float]:
        """Return the mean AP that belongs to a mean loss."""
        return {"ap": 1 - loss}
