"""L2Net, the network of the paper (§5): seven convolutions, (B, 1, 32, 32) → (B, dim)."""

from __future__ import annotations

from torch import Tensor, nn

from doap.networks.heads import HEADS
from doap.types import Kind


class L2Net(nn.Module):
    """Six 3×3 convolutions that halve the patch twice, and one of 8×8 that sees all that is left.

    As in HardNet's version of it, convolutions have no bias and batch normalisation learns no scale: each is followed
    by one that would undo it.

    Args:
        dim: D, dimensions or bits.
        kind: `real` for unit vectors, `binary` for activations whose signs are the bits.
        dropout: before the last convolution; 0.1 in the paper, 0.5 for RomePatches.
        inner: dimensions that the last convolution gives, if a linear layer makes D of them. Without one, 256 bits take
            three quarters of all weights for that convolution; and with one, a network of `inner` real values can be
            what training starts from.
    """

    patch_size = 32

    def __init__(self, dim: int = 128, kind: Kind = "real", dropout: float = 0.1, inner: int | None = None) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_convolution(1, 32),
            *_convolution(32, 32),
            *_convolution(32, 64, stride=2),
            *_convolution(64, 64),
            *_convolution(64, 128, stride=2),
            *_convolution(128, 128),
            nn.Dropout(dropout),
            nn.Conv2d(128, inner or dim, kernel_size=8, bias=False),
            nn.BatchNorm2d(inner or dim, affine=False),
            nn.Flatten(),
        )
        self.widen = nn.Sequential()
        if inner is not None:
            self.widen = nn.Sequential(nn.Linear(inner, dim, bias=False), nn.BatchNorm1d(dim, affine=False))
        self.head = HEADS[kind]()
        for module in self.features.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, patches: Tensor) -> Tensor:
        """(B, 1, 32, 32) standardised patches → (B, dim)."""
        described: Tensor = self.head(self.widen(self.features(patches)))
        return described


def _convolution(inputs: int, outputs: int, stride: int = 1) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs, affine=False),
        nn.ReLU(),
    )
