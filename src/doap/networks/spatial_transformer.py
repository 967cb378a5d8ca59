"""A spatial transformer before L2Net (paper §4.1 and appendix B): align the patch, then describe it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import affine_grid, grid_sample

from doap.networks.l2net import L2Net, initialise
from doap.networks.network import PatchNetwork
from doap.types import Kind


class SpatialTransformer(nn.Module):
    """Predict an affine transformation with three convolutions, and resample 42×42 pixels to 32×32.

    The initial transformation is the identity, which shrinks the whole patch. Samples outside the
    patch repeat its border; zeros would add edges that are not in the image.
    """

    size = 42

    def __init__(self) -> None:
        super().__init__()
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
        """Align patches (B, 1, 42, 42) → (B, 1, 32, 32)."""
        transform = self.affine(self.features(patches)).float().unflatten(1, (2, 3)).flatten(2)
        grid = affine_grid(transform, [patches.shape[0], 1, L2Net.patch_size, L2Net.patch_size], align_corners=False)
        return grid_sample(patches.float(), grid, padding_mode="border", align_corners=False)


class L2NetST(PatchNetwork):
    """`SpatialTransformer` followed by `L2Net`; the arguments are those of `L2Net`."""

    patch_size = SpatialTransformer.size
    Settings = L2Net.Settings

    def __init__(self, kind: Kind = "real", **settings: object) -> None:
        super().__init__()
        self.align = SpatialTransformer()
        self.describe = L2Net(kind, **settings)

    def forward(self, patches: Tensor) -> Tensor:
        """Map standardised patches (B, 1, 42, 42) to (B, D)."""
        described: Tensor = self.describe(self.align(patches))
        return described


def parameter_groups(network: nn.Module, learning_rate: float) -> list[dict[str, Any]]:
    """Return parameter groups; the layer that predicts the transformation learns at 1/100 of the rate (appendix B).

    >>> [len(group["params"]) for group in parameter_groups(L2NetST(), 0.1)]
    [9, 2]
    """
    transformers = [module for module in network.modules() if isinstance(module, SpatialTransformer)]
    slow = [parameter for transformer in transformers for parameter in transformer.affine.parameters()]
    fast = [parameter for parameter in network.parameters() if not any(parameter is one for one in slow)]
    groups = [{"params": fast, "lr": learning_rate}, {"params": slow, "lr": 0.01 * learning_rate}]
    return [group for group in groups if group["params"]]
