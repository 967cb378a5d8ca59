"""Distillation: a small network also learns the similarities that a larger one, the teacher, gives to a batch."""

from __future__ import annotations

from torch import Tensor

from doap.descriptor import Descriptor
from doap.loss.gathered_batch import relax
from doap.training.step import BatchLoss
from doap.types import Kind, Relation


class Teacher:
    """A trained descriptor whose similarities a network learns, in addition to its loss.

    Args:
        descriptor: Real-valued descriptor. It is not trained.
        weight: Weight of `similarity_difference`.
    """

    def __init__(self, descriptor: Descriptor, weight: float) -> None:
        self._descriptor, self._weight = descriptor, weight

    def extend(self, loss: BatchLoss, patches: Tensor, kind: Kind) -> BatchLoss:
        """Return the loss of a batch (M, 1, S, S) with the term of the teacher; with several ranks, each has its own.

        Args:
            loss: Loss of descriptors and relation.
            patches: Patches that the network describes.
            kind: Kind of the network.
        """
        taught = self._descriptor.describe_patches(patches)

        def extended(descriptors: Tensor, relation: Relation) -> Tensor:
            return loss(descriptors, relation) + self._weight * similarity_difference(descriptors, taught, kind)

        return extended


def similarity_difference(descriptors: Tensor, taught: Tensor, kind: Kind = "real") -> Tensor:
    """Return the mean squared difference of the cosine similarities of all pairs in a batch.

    Rotations of the descriptors do not change it, so both may have any number of dimensions.

    >>> import torch
    >>> first, second = torch.eye(2), torch.eye(3)[:2]
    >>> similarity_difference(first, second)
    tensor(0.)

    Args:
        descriptors: (M, D) outputs of the network that learns.
        taught: (M, E) unit rows of the teacher.
        kind: `real`, or `binary` if the outputs are activations of bits; their similarity is that of tanh.
    """
    rows = relax(descriptors, "hamming" if kind == "binary" else "euclidean")
    scale = rows.shape[1] if kind == "binary" else 1
    difference: Tensor = rows @ rows.T / scale - taught @ taught.T
    return difference.square().mean()
