"""The last step of a network: what its activations become."""

from __future__ import annotations

from torch import Tensor, nn

from doap.types import Kind


class UnitLength(nn.Module):
    """Real-valued descriptors: (B, D) → unit rows."""

    def forward(self, activations: Tensor) -> Tensor:
        # In float32 even under autocast: eight bits of a bfloat16 would be all that is left of a descriptor.
        rows = activations.float()
        # As torch's `normalize`, which first makes as many columns of the lengths: OpenCV 4 reads no ONNX file of that.
        unit: Tensor = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)
        return unit


class Activations(nn.Module):
    """Binary descriptors: activations as they are. Their signs are the bits; the loss relaxes signs by tanh."""

    def forward(self, activations: Tensor) -> Tensor:
        return activations.float()


HEADS: dict[Kind, type[nn.Module]] = {"real": UnitLength, "binary": Activations}
