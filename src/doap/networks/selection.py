"""Which keypoints to keep if there are too many: a score of keypoints from their descriptors and sizes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from doap.metrics import unpack_bits

HIDDEN = (64, 32)
"""Widths of the hidden layers."""
SIMILAR = (0.5, 0.8)
"""Squared distances of unit vectors up to which another descriptor of the image counts as similar."""
# The nearest and the fifth nearest descriptor, and the squared distance of those that do not count.
_NEIGHBOURS = (0, 4)
_FAR = 4.0
_INPUTS = 6
_ROWS = 1024


class SelectionHead(nn.Module):
    """Score of the keypoints of one image: keypoints with higher scores are more often matched correctly.

    Its inputs are the descriptor, the size, the rank of the size in the image, and how similar the other descriptors of
    the image are, because similar ones fail the ratio test.

    >>> SelectionHead(128)(torch.rand(9, 128), torch.rand(9, 2) * 100, torch.rand(9) + 1).shape
    torch.Size([9])

    Args:
        dim: D, the number of dimensions or bits of the descriptor.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        inputs, (first, second) = dim + _INPUTS, HIDDEN
        self.layers = nn.Sequential(
            nn.Linear(inputs, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(), nn.Linear(second, 1)
        )
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("deviation", torch.ones(inputs))

    @torch.no_grad()
    def forward(self, descriptors: Tensor, xy: Tensor, sizes: Tensor) -> Tensor:
        """Return the scores (N,) of all keypoints of an image; the arguments are those of `selection_inputs`."""
        return self.score(selection_inputs(descriptors, xy, sizes))

    def score(self, inputs: Tensor) -> Tensor:
        """Return the scores (N,) of the inputs (N, D + 6), with gradients."""
        scores: Tensor = self.layers((inputs - self.mean) / self.deviation).squeeze(1)
        return scores


def selection_inputs(descriptors: Tensor, xy: Tensor, sizes: Tensor) -> Tensor:
    """Return the inputs (N, D + 6) of `SelectionHead` for all keypoints of an image.

    Args:
        descriptors: (N, D) unit vectors, or (N, D/8) uint8.
        xy: Positions (N, 2) in pixels.
        sizes: Half the sides (N,) of the regions of the keypoints at SIFT's support.
    """
    values = descriptors.float()
    if descriptors.dtype == torch.uint8:
        bits = unpack_bits(descriptors)
        values = (2 * bits.float() - 1) / bits.shape[1] ** 0.5
    rank = sizes.argsort(descending=True, stable=True).argsort() / max(len(sizes), 1)
    return torch.cat([values, sizes.log()[:, None], rank[:, None], _similarity(values, xy, sizes)], 1)


def _similarity(values: Tensor, xy: Tensor, sizes: Tensor) -> Tensor:
    """Return how near the other unit vectors (N, D) of an image are: two distances and two counts (N, 4).

    Keypoints within two σ do not count, because they show the same point.
    """
    last = max(_NEIGHBOURS)
    found = [values.new_zeros(0, 4)]
    for part in torch.arange(len(values)).split(_ROWS):
        distances = (2 - 2 * values[part] @ values.T).clamp(min=0)
        distances[torch.cdist(xy[part], xy) < sizes[part, None] / 3] = _FAR
        # An image may have fewer neighbours.
        nearest = pad(distances, (0, last + 1), value=_FAR).topk(last + 1, largest=False).values
        counts = [(distances < limit).sum(1).add(1).log() for limit in SIMILAR]
        found.append(torch.stack([*(nearest[:, one].sqrt() for one in _NEIGHBOURS), *counts], 1))
    return torch.cat(found)
