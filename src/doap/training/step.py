"""The gradient of one step: describe a batch, compute its loss, and propagate back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from doap._support.random_streams import stream
from doap.loss.gathered_batch import relax
from doap.types import Kind, Relation

BatchLoss = Callable[[Tensor, Relation], Tensor]
"""Loss of descriptors (M, D) and their relation."""


def full_step(
    network: nn.Module, loss: BatchLoss, patches: Tensor, relation: Relation, precision: torch.dtype
) -> Tensor:
    """Run forward and backward for a whole batch (M, 1, S, S); return the loss without gradient."""
    with _cast(patches, precision):
        descriptors = network(patches)
    value: Tensor = loss(descriptors, relation)
    value.backward()
    return value.detach()


def micro_batch_step(
    network: nn.Module,
    loss: BatchLoss,
    patches: Tensor,
    relation: Relation,
    precision: torch.dtype,
    micro_batch: int,
    seed: int,
) -> Tensor:
    """Run forward and backward in micro-batches, for batches whose activations do not fit in memory.

    The whole batch is described first, without storing activations. The loss of the batch gives the gradient of each
    descriptor. Then each micro-batch is described again, with activations, and its gradient is propagated back.
    Everything is computed twice, the memory is that of one micro-batch, and the gradient is exact. **Batch
    normalisation uses the statistics of each micro-batch**, not of the whole batch; both passes use the same ones,
    and the same dropout, which `seed` determines.
    """
    parts = patches.split(micro_batch)
    inner = getattr(network, "module", network)
    described = []
    with torch.no_grad(), _frozen_statistics(inner), _cast(patches, precision):
        for number, part in enumerate(parts):
            _seed_dropout(seed, number)
            described.append(inner(part))
    descriptors = torch.cat(described).requires_grad_()
    value: Tensor = loss(descriptors, relation)
    value.backward()
    assert descriptors.grad is not None
    for number, (part, gradient) in enumerate(zip(parts, descriptors.grad.split(micro_batch), strict=True)):
        _seed_dropout(seed, number)
        # Ranks average their gradients once, after the last micro-batch.
        last = number + 1 == len(parts)
        no_sync = nullcontext if last else getattr(network, "no_sync", nullcontext)
        with no_sync():
            with _cast(part, precision):
                output = network(part)
            output.backward(gradient)
    return value.detach()


def similarity_difference(descriptors: Tensor, taught: Tensor, kind: Kind = "real") -> Tensor:
    """Return the mean squared difference of the cosine similarities of (M, D) outputs and a teacher's (M, E) unit rows.

    Rotations do not change it, so D and E may differ. The similarity of activations of bits is that of their tanh.

    >>> import torch
    >>> first, second = torch.eye(2), torch.eye(3)[:2]
    >>> similarity_difference(first, second)
    tensor(0.)
    """
    rows = relax(descriptors, "hamming" if kind == "binary" else "euclidean")
    scale = rows.shape[1] if kind == "binary" else 1
    difference: Tensor = rows @ rows.T / scale - taught @ taught.T
    return difference.square().mean()


def seed_step(seed: int, step: int) -> int:
    """Seed torch's generator, which dropout uses, for one step; return the seed for its micro-batches.

    Each step has its own seed, so dropout is the same in a resumed run.
    """
    drawn = int(stream(seed, "dropout", step).integers(2**62))
    _seed_dropout(drawn, 0)
    return drawn


def _cast(patches: Tensor, precision: torch.dtype) -> torch.autocast:
    return torch.autocast(patches.device.type, precision, enabled=precision != torch.float32)


def _seed_dropout(seed: int, number: int) -> None:
    torch.manual_seed(seed + number)


@contextmanager
def _frozen_statistics(network: nn.Module) -> Iterator[None]:
    """Do not update running statistics: each patch must count once, in the second pass."""
    layers = [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 0.0
    try:
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
