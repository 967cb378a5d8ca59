"""What the registry `NETWORKS` expects of a network."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from doap.settings import StrictModel


class PatchNetwork(nn.Module):
    """A network from standardised patches (B, 1, S, S) to unit vectors or activations (B, D).

    The constructor takes `kind: Kind` and the fields of `Settings` as keyword arguments.

    Attributes:
        patch_size: S.
        Settings: Keyword arguments of the network.
    """

    patch_size: ClassVar[int]
    Settings: ClassVar[type[StrictModel]]
