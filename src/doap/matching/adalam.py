"""AdaLAM (Cavalli et al., 2020): matches whose neighbourhood moves by one local affine map. The code is kornia's."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.errors import import_extra
from doap.functional import hamming
from doap.types import Features


def adalam(features0: Features, features1: Features) -> NDArray[np.int64]:
    """Return the nearest neighbours (M, 2) of two images that are consistent with their surroundings.

    A table of all N0 · N1 distances is held in memory.
    """
    kornia = import_extra("kornia.feature", "kornia")
    if min(len(features0), len(features1)) < 2:
        return np.empty((0, 2), np.int64)
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
    return np.asarray(pairs.cpu().numpy(), np.int64).reshape(-1, 2)


def _frames(features: Features, like: Tensor) -> Tensor:
    """Return frames as kornia expects them: (1, N, 2, 3) on the device of a tensor."""
    return torch.from_numpy(features.frames)[None].to(like.device)
