"""One step: descriptors of a list, their loss, and the gradient of every weight."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from doap.random_streams import stream
from doap.types import Relation


def full_step(
    network: nn.Module, loss: nn.Module, patches: Tensor, relation: Relation, precision: torch.dtype
) -> Tensor:
    """Forward and backward of a list (M, 1, S, S) in one piece; the loss's value, without gradient."""
    with _cast(patches, precision):
        described = network(patches)
    value: Tensor = loss(described, relation)
    value.backward()
    return value.detach()


def micro_batch_step(
    network: nn.Module,
    loss: nn.Module,
    patches: Tensor,
    relation: Relation,
    precision: torch.dtype,
    piece: int,
    seed: int,
) -> Tensor:
    """The same for lists whose activations do not fit in memory: the network sees `piece` patches at a time.

    First the whole list is described without keeping activations; the loss gives the gradient of each descriptor; then
    each piece is described again, with activations, and that gradient is sent back through it. Everything is computed
    twice, memory is that of one piece, and the gradient is exact, with one thing to know: **batch normalisation
    normalises each piece by its own statistics**, not by those of the list. Both passes see the same pieces, so they
    agree with each other; the network is the one that batches of `piece` would train.

    Args:
        piece: patches at a time.
        seed: of dropout, which must fall alike in both passes.
    """
    parts = patches.split(piece)
    inner = getattr(network, "module", network)
    described = []
    with torch.no_grad(), _still_statistics(inner), _cast(patches, precision):
        for number, part in enumerate(parts):
            _seed_dropout(seed, number)
            described.append(inner(part))
    leaf = torch.cat(described).requires_grad_()
    value: Tensor = loss(leaf, relation)
    value.backward()
    assert leaf.grad is not None
    for number, (part, gradient) in enumerate(zip(parts, leaf.grad.split(piece), strict=True)):
        _seed_dropout(seed, number)
        # Ranks average their gradients once, after the last piece.
        alone = getattr(network, "no_sync", nullcontext) if number + 1 < len(parts) else nullcontext
        with alone():
            with _cast(part, precision):
                again = network(part)
            again.backward(gradient)
    return value.detach()


def seed_step(seed: int, step: int) -> int:
    """Seed torch's generator, which dropout draws from, for one step; also a number for the step's pieces.

    Each step has its own seed, so a resumed run drops what an undisturbed one would.
    """
    drawn = int(stream(seed, "dropout", step).integers(2**62))
    _seed_dropout(drawn, 0)
    return drawn


def _cast(patches: Tensor, precision: torch.dtype) -> torch.autocast:
    return torch.autocast(patches.device.type, precision, enabled=precision != torch.float32)


def _seed_dropout(seed: int, number: int) -> None:
    torch.manual_seed(seed + number)


@contextmanager
def _still_statistics(network: nn.Module) -> Iterator[None]:
    """Leave running statistics as they are: they are to see each patch once, in the second pass."""
    layers = [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 0.0
    try:
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
