"""MKD: multiple-kernel descriptors with learned whitening (Mukundan et al., 2019), as implemented in kornia."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from doap._support.errors import import_extra
from doap.describer import FunctionDescriber, from_function

TRAINING_SET = "liberty"


def recognise(content: object) -> bool:
    """Return whether the content of a file is a set of whitening models of MKD."""
    models = content.get(TRAINING_SET) if isinstance(content, dict) else None
    return isinstance(models, dict) and "pca" in models


def mkd(content: dict[str, Any], device: torch.device) -> FunctionDescriber:
    """Build MKD, 128 dimensions from patches of 32×32 pixels, with attenuated PCA whitening learned on Liberty."""
    feature = import_extra("kornia.feature.mkd", "kornia")
    # kornia downloads the whitening model that it is asked for; this one is given.
    network = feature.MKDDescriptor(patch_size=32, kernel_type="concat", whitening=None)
    network.whitening = "pcawt"
    network.whitening_layer = feature.Whitening("pcawt", content[TRAINING_SET], in_dims=network.odims, output_dims=128)
    network.to(device).eval()
    return from_function(partial(_describe, network, device), 32, "mkd")


def _describe(network: nn.Module, device: torch.device, patches: Tensor) -> Tensor:
    described: Tensor = network(patches.float().to(device))
    return described
