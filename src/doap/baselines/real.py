"""Descriptors of OpenCV that are made of numbers: histograms of gradients, and what was learned of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import normalize

from doap.baselines.opencv import OpenCVBaseline
from doap.detectors.opencv import contrib

# Names of constants that OpenCV has in C++ only.
_VGG_120 = 100


def sift(patch_size: int = 32) -> OpenCVBaseline:
    """SIFT, 128 numbers, as OpenCV computes it; unit rows, but zeros for a flat patch.

    >>> sift().describe(torch.rand(3, 1, 32, 32)).shape
    torch.Size([3, 128])
    """
    return _sift("sift", patch_size, normalize)


def rootsift(patch_size: int = 32) -> OpenCVBaseline:
    """RootSIFT: the roots of SIFT's numbers as shares of their sum (Arandjelović and Zisserman, 2012)."""
    return _sift("rootsift", patch_size, lambda described: normalize(described, p=1).sqrt())


def vgg(patch_size: int = 32) -> OpenCVBaseline:
    """VGG, 120 numbers: learned sums of gradients, and a learned projection (Simonyan and others, 2014).

    It was learned for patches of 64×64 pixels, blurred by 1.4 of them, and for Euclidean distances of its numbers as
    they are: so rows have any length.
    """
    create = contrib("VGG_create", needed_by="vgg")
    engine = partial(create, desc=_VGG_120, isigma=1.4, scale_factor=1.0)
    # Its blur reaches 6 pixels beyond the 64.
    return OpenCVBaseline(
        "vgg", engine, dim=120, kind="real", patch_size=patch_size, side=64, tile=76, keypoint_size=64
    )


def daisy(patch_size: int = 32) -> OpenCVBaseline:
    """DAISY, 200 numbers: histograms of gradients at 25 places on three rings (Tola and others, 2010); unit rows."""
    create = contrib("DAISY_create", needed_by="daisy")
    # It knows no scale. With this radius the outer ring touches the sides of the patch. On photos of the training set
    # 8, 10.5, 12 and 14 scored less and 18 the same; at 16, histograms of unit length scored less than unit rows.
    engine = partial(create, radius=16.0)
    return OpenCVBaseline(
        "daisy",
        engine,
        dim=200,
        kind="real",
        patch_size=patch_size,
        side=32,
        tile=49,
        keypoint_size=32,
        finish=_unit_unless_flat,
    )


def _unit_unless_flat(described: Tensor) -> Tensor:
    """Unit rows, but zeros where there is only DAISY's rounding; an edge of one grey level has a length of 1e-3."""
    lengths = described.norm(dim=1, keepdim=True)
    return torch.where(lengths > 1e-6, described / lengths.clamp(min=1e-6), 0)


def _sift(name: str, patch_size: int, finish: Callable[[Tensor], Tensor]) -> OpenCVBaseline:
    """SIFT that looks at 4×4 bins, each 3σ wide: at 12σ, or six times `KeyPoint.size`, which are the whole patch.

    It works on an image blurred to σ. A keypoint's `octave` says which level of the pyramid that is, and 0 is the
    first, so the first level is given just this blur; the others are not used, and one layer makes them few.
    """
    import cv2

    engine = partial(cv2.SIFT.create, nOctaveLayers=1, sigma=patch_size / 12)
    # The outermost bins of SIFT reach a quarter of the patch beyond it.
    tile = 2 * (patch_size * 3 // 4) + 1
    return OpenCVBaseline(
        name,
        engine,
        dim=128,
        kind="real",
        patch_size=patch_size,
        side=patch_size,
        tile=tile,
        keypoint_size=patch_size / 6,
        finish=finish,
    )
