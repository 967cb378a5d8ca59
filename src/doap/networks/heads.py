"""Output layers: how the activations of a network become a descriptor."""

from __future__ import annotations

from torch import Tensor, nn

from doap.types import Kind


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
