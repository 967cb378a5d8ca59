"""What the registry `NETWORKS` expects of a network."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from doap._support.settings import StrictModel


class PatchNetwork(nn.Module):
    """A network from standardised patches (B, 1, S, S) to unit vectors or activations (B, D).

    The constructor takes `kind: Kind` and the fields of `Settings` as keyword arguments.

    Attributes:
        patch_size: S.
        Settings: Keyword arguments of the network.
        cpu_batch: Patches per batch of `Descriptor.describe_patches` on a CPU. Small batches keep the activations in
            the cache, and malloc reuses their memory but maps that of large ones again.
    """

    patch_size: ClassVar[int]
    Settings: ClassVar[type[StrictModel]]
    cpu_batch: ClassVar[int] = 128
