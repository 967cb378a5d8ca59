"""FastNet, a small network for CPUs: 1.7 million multiplications per patch, a twentieth of L2Net's."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor, nn

from doap._support.checks import MAX_DIM
from doap._support.settings import StrictModel
from doap.networks.l2net import convolution, initialise
from doap.networks.network import HEADS, PatchNetwork
from doap.types import Kind


class FastNet(PatchNetwork):
    """An 8×8 convolution that reduces the resolution by four, three 3×3 convolutions, and a 4×4 convolution.

    Most of L2Net's time is spent at the resolution of the patch. Here, only the first layer sees it.

    >>> FastNet(kind="binary", dim=256).patch_size
    32
    """

    patch_size = 32
    cpu_batch = 512

    class Settings(StrictModel):
        dim: int = Field(128, ge=8, le=MAX_DIM, description="D, the number of dimensions or bits.")

    def __init__(self, kind: Kind = "real", **settings: object) -> None:
        super().__init__()
        dim = self.Settings.model_validate(settings).dim
        self.features = nn.Sequential(
            *convolution(1, 32, kernel=8, stride=4, padding=2),
            *convolution(32, 32),
            *convolution(32, 32),
            *convolution(32, 64, stride=2),
            nn.Conv2d(64, dim, kernel_size=4, bias=False),
            nn.BatchNorm2d(dim, affine=False),
            nn.Flatten(),
        )
        self.head = HEADS[kind]()
        initialise(self.features)

    def forward(self, patches: Tensor) -> Tensor:
        """Map standardised patches (B, 1, 32, 32) to (B, D)."""
        described: Tensor = self.head(self.features(patches))
        return described
