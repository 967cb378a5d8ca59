"""The interface of a loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import Tensor, nn

from doap.settings import StrictModel
from doap.types import Relation


class Loss(nn.Module, ABC):
    """Base class of the losses: `loss(descriptors, groups)` returns a scalar to minimise.

    A new loss is one subclass with its `Settings` and one line in `LOSSES`. `doap train` then builds it from the
    recipe's section `[loss]` as `LOSSES[name](**settings, across_ranks=…)`.

    Args:
        across_ranks: The batch spans all ranks of `torch.distributed`; see `GatheredBatch`.
        settings: Values of `Settings`; wrong ones raise an `ArgumentError`.

    Attributes:
        Settings: Model of the settings and their defaults.
        settings: The settings of this loss.
        skipped: Number of queries without a match in the last batch.
    """

    Settings: ClassVar[type[StrictModel]] = StrictModel

    def __init__(self, *, across_ranks: bool = False, **settings: Any) -> None:
        super().__init__()
        self.settings = self.Settings.check(**settings)
        self.across_ranks = across_ranks
        self.skipped: Tensor | int = 0

    @abstractmethod
    def forward(self, descriptors: Tensor, groups: Tensor | Relation) -> Tensor:
        """Return the loss of a batch, a scalar.

        Args:
            descriptors: (M, D) outputs of the network.
            groups: (M,) integers, equal for patches that match, or a `Relation` that also names pairs to ignore.
        """

    def anneal(self, progress: float) -> None:
        """Adapt the loss to the progress of the run, 0 to 1. Called before each step."""

    def metrics(self, loss: float) -> dict[str, float]:  # noqa: ARG002 - for subclasses
        """Return further values to log beside a mean loss."""
        return {}
