"""AdaLAM (Cavalli et al., 2020): matches whose neighbourhood moves by one local affine map. The code is kornia's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from doap._support.errors import import_extra
from doap.matching.matcher import Matcher
from doap.metrics import hamming
from doap.types import Features, Matches


@dataclass(frozen=True)
class AdaLAM:
    """A matcher that keeps those matches of another matcher whose neighbours move in the same way.

    A table of all N0 · N1 distances is held in memory.
    """

    matcher: Matcher

    def match(self, features0: Features, features1: Features) -> Matches:
        """Match the keypoints of two images."""
        kornia, matches = import_extra("kornia.feature", "kornia"), self.matcher.match(features0, features1)
        consistent: set[tuple[int, ...]] = set()
        if min(len(features0), len(features1)) > 1:
            descriptors0, descriptors1 = features0.descriptors, features1.descriptors.to(features0.descriptors.device)
            # AdaLAM squares distances. The number of different bits is the square of their Euclidean distance.
            binary = descriptors0.dtype == torch.uint8
            distances = hamming(descriptors0, descriptors1).float().sqrt() if binary else None
            _, pairs = kornia.match_adalam(
                descriptors0.float(),
                descriptors1.float(),
                _frames(features0, descriptors0),
                _frames(features1, descriptors0),
                hw1=features0.image_size,
                hw2=features1.image_size,
                dm=distances,
            )
            consistent = {tuple(pair) for pair in pairs.tolist()}
        kept = np.array([tuple(pair) in consistent for pair in matches.indices.tolist()], np.bool_)
        offsets = None if matches.offsets is None else matches.offsets[kept]
        return Matches(matches.indices[kept], matches.scores[kept], offsets)


def _frames(features: Features, like: Tensor) -> Tensor:
    """Return frames as kornia expects them: (1, N, 2, 3) on the device of a tensor."""
    return torch.from_numpy(features.frames)[None].to(like.device)
