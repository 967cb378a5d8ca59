"""The interface of a loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from doap._support.errors import ArgumentError
from doap._support.settings import StrictModel
from doap.types import Relation


class Loss(nn.Module, ABC):
    """Base class of the losses: `loss(descriptors, groups)` returns a scalar to minimise.

    A new loss is one subclass with its `Settings` and one line in `LOSSES`. `doap train` then builds it from the
    recipe's section `[loss]` as `LOSSES[name](**settings, across_ranks=…)`. A recipe may also name a loss of your own
    package as `package.module:Class`.

    Args:
        across_ranks: The batch spans all ranks of `torch.distributed`; each owns the queries among its patches. The
            mean over ranks is the loss of the whole batch, so DistributedDataParallel's mean of the gradients is exact.
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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.settings)})"

    def __call__(self, descriptors: Any, groups: Any, indices_tuple: None = None) -> Tensor:
        """Return the loss of a batch; arguments of other types than those of `forward` are converted.

        Args:
            descriptors: (M, D) outputs of the network. An array has no gradient.
            groups: (M,) integers as a tensor, an array or a list, or a `Relation`.
            indices_tuple: None. It is accepted for calls in the form of pytorch-metric-learning.
        """
        if indices_tuple is not None:
            raise ArgumentError(
                "indices_tuple: expected None, because the loss ranks the whole batch, got the indices of a miner. "
                "Omit the miner."
            )
        labels = groups if isinstance(groups, Relation) else _as_tensor(groups, name="groups")
        loss: Tensor = super().__call__(_as_tensor(descriptors, name="descriptors"), labels)
        return loss

    @abstractmethod
    def forward(self, descriptors: Tensor, groups: Tensor | Relation) -> Tensor:
        """Return the loss of a batch, a scalar.

        Args:
            descriptors: (M, D) outputs of the network.
            groups: (M,) integers, equal for patches that match, or a `Relation` that also names pairs to ignore.
        """

    def metrics(self, loss: float) -> dict[str, float]:  # noqa: ARG002 - for subclasses
        """Return further values to log beside a mean loss."""
        return {}


def _as_tensor(values: Any, *, name: str) -> Tensor:
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(
            f"{name}: expected a tensor, an array or a list of numbers, got {type(values).__name__} ({error})."
        ) from error
