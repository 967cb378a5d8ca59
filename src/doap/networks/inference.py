"""Networks for inference: in evaluation mode, with batch normalisation folded into the convolution before it."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import TypeVar

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

Module = TypeVar("Module", bound=nn.Module)

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def for_inference(module: Module) -> Module:
    """Return a copy of a module in evaluation mode, with batch normalisation folded into the convolution before it.

    The copy shares all other weights with the module, whose own mode and state do not change: switching the module
    itself would affect other threads, which may describe or train with it. Only layers that follow each other in an
    `nn.Sequential` are folded. The copy takes a few milliseconds and is made for each call; a stored one would
    miss changes of the weights.
    """
    copied = copy.copy(module)
    copied.training = False
    # `named_children` would omit a module that is registered twice.
    children = {name: None if child is None else for_inference(child) for name, child in module._modules.items()}
    if isinstance(module, nn.Sequential):
        _fold(children)
    copied._modules = children
    return copied


def _fold(layers: dict[str, nn.Module | None]) -> None:
    """Fold batch normalisation into the convolution before it, and leave an identity in its position."""
    for first, second in pairwise(layers):
        convolution, normalisation = layers[first], layers[second]
        if _foldable(convolution, normalisation):
            layers[first], layers[second] = fuse_conv_bn_eval(convolution, normalisation), nn.Identity()  # type: ignore[arg-type, type-var]


def _foldable(convolution: nn.Module | None, normalisation: nn.Module | None) -> bool:
    """Return whether two layers are a convolution and a normalisation with stored statistics, without hooks.

    Subclasses may compute something else. Weights in half precision would lose digits.
    """
    if type(convolution) is not nn.Conv2d or type(normalisation) is not nn.BatchNorm2d:
        return False
    exact = convolution.weight.dtype in (torch.float32, torch.float64)
    hooks = [getattr(layer, name) for layer in (convolution, normalisation) for name in _HOOKS]
    return exact and normalisation.running_mean is not None and not any(hooks)
