"""A spatial transformer before L2Net (paper §4.1 and appendix B): align the patch, then describe it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import affine_grid, grid_sample

from doap.networks.l2net import L2Net, L2NetSettings, initialise
from doap.networks.network import PatchNetwork
from doap.types import Kind


class SpatialTransformer(nn.Module):
    """Predict an affine transformation with three convolutions, and resample 42×42 pixels to 32×32.

    The initial transformation is the identity, which shrinks the whole patch. Samples outside the
    patch repeat its border; zeros would add edges that are not in the image.
    """

    size = 42

    def __init__(self, out: int = L2Net.patch_size) -> None:
        super().__init__()
        self.out = out
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=5, stride=2, bias=False),
            nn.BatchNorm2d(16, affine=False),
            nn.ReLU(),
            nn.Conv2d(16, 32, kernel_size=5, stride=2, bias=False),
            nn.BatchNorm2d(32, affine=False),
            nn.ReLU(),
        )
        self.affine = nn.Conv2d(32, 6, kernel_size=8)
        initialise(self.features)
        nn.init.zeros_(self.affine.weight)
        assert self.affine.bias is not None
        with torch.no_grad():
            self.affine.bias.copy_(torch.tensor([1.0, 0, 0, 0, 1, 0]))

    def forward(self, patches: Tensor) -> Tensor:
        """Align patches (B, 1, 42, 42); returns (B, 1, 32, 32)."""
        transform = self.affine(self.features(patches)).float().unflatten(1, (2, 3)).flatten(2)
        grid = affine_grid(transform, [patches.shape[0], 1, self.out, self.out], align_corners=False)
        return grid_sample(patches.float(), grid, padding_mode="border", align_corners=False)


class L2NetST(PatchNetwork):
    """`SpatialTransformer` followed by `L2Net`; the arguments are those of `L2Net`."""

    patch_size = SpatialTransformer.size
    Settings = L2NetSettings

    def __init__(self, kind: Kind = "real", **settings: object) -> None:
        super().__init__()
        self.align = SpatialTransformer()
        self.describe = L2Net(kind, **settings)

    def forward(self, patches: Tensor) -> Tensor:
        """Map standardised patches (B, 1, 42, 42) to (B, D)."""
        described: Tensor = self.describe(self.align(patches))
        return described


def parameter_groups(network: nn.Module, learning_rate: float, affine_scale: float = 0.01) -> list[dict[str, Any]]:
    """Return parameter groups in which the layer that predicts the transformation learns slowly.

    Its learning rate is `affine_scale` times that of the other layers (appendix B).

    >>> [len(group["params"]) for group in parameter_groups(L2NetST(), 0.1)]
    [9, 2]
    """
    slow = {
        id(parameter)
        for module in network.modules()
        if isinstance(module, SpatialTransformer)
        for parameter in module.affine.parameters()
    }
    groups = (
        ([p for p in network.parameters() if id(p) not in slow], learning_rate),
        ([p for p in network.parameters() if id(p) in slow], learning_rate * affine_scale),
    )
    return [{"params": parameters, "lr": rate} for parameters, rate in groups if parameters]
