"""Networks for inference: in evaluation mode, with batch normalisation folded into the convolution before it."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

Module = TypeVar("Module", bound=nn.Module)

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def for_inference(module: Module, *, fold: bool = True) -> Module:
    """Return a copy of a module in evaluation mode, with batch normalisation folded into the convolution before it.

    The copy shares all other weights with the module, whose own mode and state do not change: switching the module
    itself would affect other threads, which may describe or train with it. Only layers that follow each other in an
    `nn.Sequential` are folded. The copy takes a few milliseconds and is made for each call; a stored one would
    miss changes of the weights. Without `fold`, the copy shares all weights.
    """
    copied = copy.copy(module)
    copied.training = False
    # `named_children` would omit a module that is registered twice.
    children = {
        name: None if child is None else for_inference(child, fold=fold) for name, child in module._modules.items()
    }
    if fold and isinstance(module, nn.Sequential):
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


@torch.no_grad()
def used_layers(network: nn.Module, patch_size: int) -> set[str]:
    """Return the names of all layers whose weights or buffers take part in the output for a patch."""
    weight = next(network.parameters(), torch.zeros(()))
    with _Recorder() as recorder:
        for_inference(network, fold=False)(weight.new_zeros(1, 1, patch_size, patch_size))
    return {
        name.rpartition(".")[0]
        for name, tensor in network.state_dict().items()
        if tensor.untyped_storage().data_ptr() in recorder.addresses
    }


class _Recorder(TorchFunctionMode):
    """Records the addresses of all tensors that functions of torch are called with."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: set[int] = set()

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), named: dict[str, Any] | None = None
    ) -> Any:
        # Reading an attribute, such as the device, does not use the values.
        if function.__name__ != "__get__":
            tensors = [leaf for leaf in tree_leaves((arguments, named)) if isinstance(leaf, Tensor)]
            self.addresses.update(tensor.untyped_storage().data_ptr() for tensor in tensors)
        return function(*arguments, **(named or {}))
