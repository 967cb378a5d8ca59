"""HardTFeat: the shallow network of TFeat, trained with HardNet's loss (Mishchuk et al., 2017)."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from doap.describer import FunctionDescriber, from_function

# The published file also holds the buffers of a SIFT module that the network does not use.
_UNUSED = "SIFT."
EXTENT = 1.5
"""It scores best on patches 1.5 times as wide as SIFT's support."""


def recognise(content: object) -> bool:
    """Return whether the content of a file is a checkpoint of HardTFeat."""
    state = content.get("state_dict") if isinstance(content, dict) else None
    return isinstance(state, dict) and "classifier.1.weight" in state


def hardtfeat(
    content: dict[str, dict[str, Tensor]], device: torch.device, *, extent: float = EXTENT
) -> FunctionDescriber:
    """Build HardTFeat, 128 dimensions from patches of 32×32 pixels, from its checkpoint."""
    network = nn.ModuleDict(
        {
            "features": nn.Sequential(nn.Conv2d(1, 32, 7), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 6), nn.Tanh()),
            "classifier": nn.Sequential(nn.Dropout(0.1), nn.Conv2d(64, 128, 8), nn.Tanh()),
        }
    )
    state = {name: value for name, value in content["state_dict"].items() if not name.startswith(_UNUSED)}
    network.load_state_dict(state)
    network.to(device).eval()
    return from_function(partial(_describe, network, device), 32, "hardtfeat", extent)


def _describe(network: nn.ModuleDict, device: torch.device, patches: Tensor) -> Tensor:
    # The network was trained on grey levels; the added constant keeps flat patches finite.
    grey = 255 * patches.to(device)
    mean, deviation = grey.mean(dim=(1, 2, 3), keepdim=True), grey.std(dim=(1, 2, 3), keepdim=True)
    features = network["features"]((grey - mean) / (deviation + 1e-7))
    return normalize(network["classifier"](features).flatten(1))
