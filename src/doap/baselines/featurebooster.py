"""FeatureBooster: SIFT, refined by its position, scale and orientation and by all other keypoints of the image.

Wang et al., CVPR 2023. A transformer without pairwise attention mixes the keypoints of one image. Positions are
relative to the image centre, which helps if the camera hardly moves and hurts if it rotates.
"""

from __future__ import annotations

import hashlib
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from doap.baselines.opencv import sift
from doap.describer import DEFAULT_RATIO, ShowsSettings, hash_weights
from doap.images import Pyramid, angles, centres, scales
from doap.images.frames import SIFT_EXTENT
from doap.metrics import pack_bits
from doap.types import Kind


class FeatureBooster(ShowsSettings):
    """SIFT+Boost-F (128 dimensions) or SIFT+Boost-B (256 bits); the file determines which."""

    extent = 1.0

    def __init__(self, content: dict[str, Tensor], device: torch.device) -> None:
        self.dim = int(content["final_proj.weight"].shape[0])
        self.kind: Kind = "real" if self.dim == 128 else "binary"
        self.name, self.ratio = ("sift-boost-f", DEFAULT_RATIO) if self.kind == "real" else ("sift-boost-b", 0.85)
        self._device, self._sift = device, sift()
        self._network = _Booster(self.dim)
        self._network.load_state_dict(content)
        self._network.to(device).eval()

    @torch.no_grad()
    def describe(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> Tensor:
        """Describe the frames (N, 2, 3) of all keypoints of a grey image as (N, 128) float32 or (N, 32) uint8."""
        pixels = image.levels[0] if isinstance(image, Pyramid) else image
        if not len(frames):
            empty = torch.zeros(0, self.dim)
            return empty if self.kind == "real" else pack_bits(empty)
        descriptors = normalize(self._sift.describe(image, frames)).to(self._device)
        geometry = torch.from_numpy(_geometry(frames, pixels.shape)).to(self._device)
        boosted = self._network(descriptors, geometry)
        return normalize(boosted) if self.kind == "real" else pack_bits(boosted)

    def fingerprint(self) -> str:
        """Return a checksum of the name and the weights."""
        digest = hashlib.sha256(self.name.encode())
        hash_weights(digest, self._network.state_dict())
        return digest.hexdigest()


def _geometry(frames: NDArray[np.float32], size: tuple[int, ...]) -> NDArray[np.float32]:
    """Return (N, 4): position relative to the image centre, scale and angle, in the units of the training."""
    height, width = size
    centre = np.array([width, height]) / 2
    position = (centres(frames) - centre) / (0.7 * max(height, width))
    sigma = scales(frames) / SIFT_EXTENT
    angle = (2 * np.pi - np.radians(angles(frames))) % (2 * np.pi)
    return np.column_stack([position, sigma, angle]).astype(np.float32)


class _Booster(nn.Module):
    """The network; the names of its parts are those in the published files."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.kenc = nn.ModuleDict({"encoder": _perceptron(4, 32, 64, 128, 128, 128)})
        self.denc = nn.ModuleDict({"encoder": _perceptron(128, 256, 128, 128)})
        self.layer_norm = nn.LayerNorm(128, eps=1e-6)
        self.attn_proj = nn.ModuleDict({"layers": nn.Sequential(*(_Layer() for _ in range(4)))})
        self.final_proj = nn.Linear(128, outputs)

    def forward(self, descriptors: Tensor, geometry: Tensor) -> Tensor:
        encoded = descriptors + self.denc["encoder"](descriptors) + self.kenc["encoder"](geometry)
        mixed: Tensor = self.final_proj(self.attn_proj["layers"](self.layer_norm(encoded)))
        return mixed


class _Layer(nn.Module):
    """One layer: a gated, weighted mean over all keypoints, then a perceptron; both with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        linear = {name: nn.Linear(128, 128) for name in ("query", "key", "value", "proj")}
        self.attn = nn.ModuleDict({**linear, "layer_norm": nn.LayerNorm(128, eps=1e-6)})
        self.ffn = nn.ModuleDict({"mlp": _perceptron(128, 256, 128), "layer_norm": nn.LayerNorm(128, eps=1e-6)})

    def forward(self, rows: Tensor) -> Tensor:
        attention, perceptron = self.attn, self.ffn
        weights = attention["key"](rows).softmax(dim=0)
        mean = (weights * attention["value"](rows)).sum(dim=0, keepdim=True)
        gated = attention["proj"](attention["query"](rows).sigmoid() * mean)
        rows = attention["layer_norm"](rows + gated)
        refined: Tensor = perceptron["layer_norm"](rows + perceptron["mlp"](rows))
        return refined


def _perceptron(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
