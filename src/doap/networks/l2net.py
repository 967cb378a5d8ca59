"""L2Net, the network of the paper (§5): seven convolutions, (B, 1, 32, 32) → (B, D)."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor, nn

from doap._support.checks import MAX_DIM
from doap._support.settings import StrictModel
from doap.networks.network import HEADS, PatchNetwork
from doap.types import Kind


class L2Net(PatchNetwork):
    """Six 3×3 convolutions that halve the resolution twice, and an 8×8 convolution.

    As in HardNet's version, convolutions have no bias and batch normalisation has no learned scale,
    because the next normalisation would cancel both.

    >>> L2Net(kind="binary", dim=256).patch_size
    32
    """

    patch_size = 32

    class Settings(StrictModel):
        dim: int = Field(128, ge=8, le=MAX_DIM, description="D, the number of dimensions or bits.")
        dropout: float = Field(0.1, ge=0, lt=1, description="Dropout rate before the last convolution.")
        width: float = Field(
            1.0, ge=0.25, le=4, description="Factor of the number of channels of all layers but the last."
        )
        inner: int | None = Field(
            None,
            ge=8,
            le=MAX_DIM,
            description="Outputs of the last convolution if a linear layer maps them to D. With inner=128, 256 bits "
            "need few more weights than 128 dimensions, and can be initialised from these.",
        )

    def __init__(self, kind: Kind = "real", **settings: object) -> None:
        super().__init__()
        chosen = self.Settings.model_validate(settings)
        outputs = chosen.inner or chosen.dim
        first, second, third = (round(chosen.width * channels) for channels in (32, 64, 128))
        self.features = nn.Sequential(
            *convolution(1, first),
            *convolution(first, first),
            *convolution(first, second, stride=2),
            *convolution(second, second),
            *convolution(second, third, stride=2),
            *convolution(third, third),
            nn.Dropout(chosen.dropout),
            nn.Conv2d(third, outputs, kernel_size=8, bias=False),
            nn.BatchNorm2d(outputs, affine=False),
            nn.Flatten(),
        )
        self.widen = nn.Sequential()
        if chosen.inner is not None:
            linear = nn.Linear(chosen.inner, chosen.dim, bias=False)
            self.widen = nn.Sequential(linear, nn.BatchNorm1d(chosen.dim, affine=False))
        self.head = HEADS[kind]()
        initialise(self.features)

    def forward(self, patches: Tensor) -> Tensor:
        """Map standardised patches (B, 1, 32, 32) to (B, D)."""
        described: Tensor = self.head(self.widen(self.features(patches)))
        return described


def convolution(
    inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1, padding: int = 1
) -> tuple[nn.Module, ...]:
    """Return a convolution with batch normalisation and ReLU."""
    return (
        nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False),
        nn.BatchNorm2d(outputs, affine=False),
        nn.ReLU(),
    )


def initialise(layers: nn.Module) -> None:
    """Draw the weights of all convolutions."""
    for module in layers.modules():
        # The first normal numbers without data, of a network that only has shapes, would import 800 modules.
        if isinstance(module, nn.Conv2d) and not module.weight.is_meta:
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
