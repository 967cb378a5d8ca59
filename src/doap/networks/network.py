"""What the registry `NETWORKS` expects of a network."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict
from torch import nn


class NetworkSettings(BaseModel):
    """Settings of a network: its keyword arguments, and the only home of their defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PatchNetwork(nn.Module):
    """A network from standardised patches (B, 1, S, S) to unit vectors (B, D), or to the activations of D bits.

    The constructor takes `kind: Kind` and the fields of `Settings` as keyword arguments.

    Attributes:
        patch_size: S.
        Settings: Keyword arguments of the network.
    """

    patch_size: ClassVar[int]
    Settings: ClassVar[type[NetworkSettings]]
