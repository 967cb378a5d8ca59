"""Train with your own PyTorch loop, a sampler of pytorch-metric-learning and doap's loss.

    pip install 'doap[examples]'
    python examples/custom_loop.py

The extra `examples` adds pytorch-metric-learning. Any function `loss(embeddings, labels)` works; `third_party_loss.py`
uses a loss of pytorch-metric-learning.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from pytorch_metric_learning.samplers import MPerClassSampler
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import doap


def make_patches(points: int, views: int = 8) -> tuple[Tensor, Tensor]:
    """Return shifted, noisy views (N, 1, 32, 32) in 0…1 of some points, and their labels (N,)."""
    textures = nn.functional.interpolate(torch.rand(points, 1, 10, 10), size=40, mode="bilinear")
    corners = torch.randint(9, (views, 2)).tolist()
    patches = torch.cat([textures[..., y : y + 32, x : x + 32] for y, x in corners])
    return (patches + 0.05 * torch.randn_like(patches)).clamp(0, 1), torch.arange(points).repeat(views)


def mean_ap(descriptor: doap.Descriptor, patches: Tensor, labels: Tensor) -> float:
    """Return the mean Average Precision of all patches as queries; doap's loss is 1 minus this."""
    return 1 - doap.ListwiseAP()(descriptor.describe_patches(patches), labels).item()


def train(loss: Callable[[Tensor, Tensor], Tensor], steps: int = 10) -> tuple[float, float]:
    """Train for some steps; return the mean AP on held-out points before and after."""
    torch.manual_seed(0)
    (patches, labels), held_out = make_patches(500), make_patches(50)
    sampler = MPerClassSampler(labels, m=4, batch_size=128, length_before_new_iter=128 * steps)
    descriptor = doap.Descriptor.build("l2net", dim=128)
    optimiser = torch.optim.Adam(descriptor.parameters(), lr=1e-3)
    before = mean_ap(descriptor, *held_out)
    for batch, points in DataLoader(TensorDataset(patches, labels), batch_size=128, sampler=sampler):
        optimiser.zero_grad()
        value = loss(descriptor(batch), points)
        value.backward()
        optimiser.step()
    return before, mean_ap(descriptor, *held_out)


if __name__ == "__main__":
    before, after = train(doap.ListwiseAP())
    print(f"ListwiseAP: mean AP on held-out points {before:.3f} before, {after:.3f} after")
