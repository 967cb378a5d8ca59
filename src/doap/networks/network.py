"""What the registry `NETWORKS` expects of a network, and how activations become a descriptor."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from doap._support.settings import StrictModel
from doap.types import Kind


class PatchNetwork(nn.Module):
    """A network from standardised patches (B, 1, S, S) to unit vectors or activations (B, D).

    The constructor takes `kind`, `real` for unit vectors or `binary` for activations whose signs are the bits, and the
    fields of `Settings` as keyword arguments.

    Attributes:
        patch_size: S.
        Settings: Keyword arguments of the network.
        cpu_batch: Patches per batch of `Descriptor.describe_patches` on a CPU. Small batches keep the activations in
            the cache, and malloc reuses their memory but maps that of large ones again.
    """

    patch_size: ClassVar[int]
    Settings: ClassVar[type[StrictModel]]
    cpu_batch: ClassVar[int] = 128


class UnitLength(nn.Module):
    """Output of real-valued descriptors: scale the rows of (B, D) to unit length."""

    def forward(self, activations: Tensor) -> Tensor:
        # Computed in float32 even under autocast, because bfloat16 would leave 8 bits of precision.
        rows = activations.float()
        # Not torch's `normalize`: it expands the lengths to D columns, and OpenCV 4 cannot read
        # that from ONNX.
        unit: Tensor = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)
        return unit


class Activations(nn.Module):
    """Output of binary descriptors: the activations (B, D), whose signs are the bits."""

    def forward(self, activations: Tensor) -> Tensor:
        return activations.float()


HEADS: dict[Kind, type[nn.Module]] = {"real": UnitLength, "binary": Activations}
