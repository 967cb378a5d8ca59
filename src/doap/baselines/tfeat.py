"""TFeat, a shallow network trained with triplets (Balntas et al., 2016)."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from doap.describer import FunctionDescriber, from_function


def recognise(content: object) -> bool:
    """Return whether the content of a file is a state of TFeat, such as `tfeat-liberty.params`."""
    return isinstance(content, dict) and {"features.1.weight", "descr.0.weight"} <= content.keys()


def tfeat(content: dict[str, Tensor], device: torch.device) -> FunctionDescriber:
    """Build TFeat: 128 dimensions for patches of 32×32 pixels, compared without normalisation.

    The network standardises each patch, so the range 0…1 of the input does not matter.
    """
    features = nn.Sequential(
        nn.InstanceNorm2d(1), nn.Conv2d(1, 32, 7), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 6), nn.Tanh()
    )
    network = nn.ModuleDict({"features": features, "descr": nn.Sequential(nn.Linear(64 * 8 * 8, 128), nn.Tanh())})
    network.load_state_dict(content)
    network.to(device).eval()
    return from_function(partial(_describe, network, device), 32, "tfeat")


def _describe(network: nn.ModuleDict, device: torch.device, patches: Tensor) -> Tensor:
    described: Tensor = network["descr"](network["features"](patches.to(device)).flatten(1))
    return described
