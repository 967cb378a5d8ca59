"""Your own loop: plain PyTorch, the sampler of pytorch-metric-learning, the loss of doap.

    python examples/own_loop.py

Whatever is called as `loss(embeddings, labels)` fits in; `their_loss.py` puts one of theirs in.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from pytorch_metric_learning.samplers import MPerClassSampler
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import doap


def make_patches(points: int, views: int = 8) -> tuple[Tensor, Tensor]:
    """Stand-ins for your own: moved, noisy views (N, 1, 32, 32) in 0…1 of some points, and which point each shows."""
    textures = nn.functional.interpolate(torch.rand(points, 1, 10, 10), size=40, mode="bilinear")
    corners = torch.randint(9, (views, 2)).tolist()
    patches = torch.cat([textures[..., y : y + 32, x : x + 32] for y, x in corners])
    return (patches + 0.05 * torch.randn_like(patches)).clamp(0, 1), torch.arange(points).repeat(views)


def mean_ap(descriptor: doap.Descriptor, patches: Tensor, labels: Tensor) -> float:
    """Mean Average Precision of all patches, each looking for the others of its point; our loss is 1 minus this."""
    return 1 - doap.ListwiseAP()(descriptor.describe(patches), labels).item()


def train(loss: Callable[[Tensor, Tensor], Tensor], steps: int = 10) -> tuple[float, float]:
    """Train for some steps; the mean AP of points that training never sees, before and after."""
    torch.manual_seed(0)
    (patches, labels), unseen = make_patches(500), make_patches(50)
    sampler = MPerClassSampler(labels, m=4, batch_size=128, length_before_new_iter=128 * steps)
    descriptor = doap.Descriptor.build("l2net", dim=128)
    optimiser = torch.optim.Adam(descriptor.parameters(), lr=1e-3)
    before = mean_ap(descriptor, *unseen)
    for batch, points in DataLoader(TensorDataset(patches, labels), batch_size=128, sampler=sampler):
        optimiser.zero_grad()
        value = loss(descriptor(batch), points)
        value.backward()
        optimiser.step()
    return before, mean_ap(descriptor, *unseen)


if __name__ == "__main__":
    before, after = train(doap.ListwiseAP())
    print(f"ListwiseAP: mean AP of unseen points {before:.3f} before, {after:.3f} after")
