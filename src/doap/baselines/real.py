"""Real-valued descriptors of OpenCV, based on histograms of gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import normalize

from doap.baselines.opencv import OpenCVBaseline
from doap.detectors.opencv import contrib

# OpenCV defines the name of this constant in C++ only.
_VGG_120 = 100


def sift(patch_size: int = 32, extent: float = 1.0) -> OpenCVBaseline:
    """Create OpenCV's SIFT with 128 dimensions; rows have unit length, and a flat patch is all zeros.

    >>> sift().describe_patches(torch.rand(3, 1, 32, 32)).shape
    torch.Size([3, 128])
    """
    return _sift("sift", patch_size, normalize, extent)


def rootsift(patch_size: int = 32) -> OpenCVBaseline:
    """Create RootSIFT: square roots of L1-normalised SIFT (Arandjelović and Zisserman, 2012)."""
    return _sift("rootsift", patch_size, _normalised_root)


def rootsift_wide() -> OpenCVBaseline:
    """Create RootSIFT of 1.5 times its support, which separates the effect of wider patches from that of learning."""
    return _sift("rootsift-wide", 32, _normalised_root, 1.5)


def _normalised_root(described: Tensor) -> Tensor:
    return normalize(described, p=1).sqrt()


def vgg(patch_size: int = 32) -> OpenCVBaseline:
    """Create VGG with 120 dimensions: learned pooling and projection (Simonyan et al., 2014).

    It was trained on patches of 64×64 pixels with a blur of 1.4 pixels, for Euclidean distances
    without normalisation; rows therefore do not have unit length.
    """
    create = contrib("VGG_create", needed_by="vgg")
    engine = partial(create, desc=_VGG_120, isigma=1.4, scale_factor=1.0)
    # The blur reads 6 pixels beyond the 64.
    return OpenCVBaseline(
        "vgg", engine, dim=120, kind="real", patch_size=patch_size, side=64, tile=76, keypoint_size=64
    )


def daisy(patch_size: int = 32) -> OpenCVBaseline:
    """Create DAISY with 200 dimensions: gradient histograms at 25 points (Tola et al., 2010)."""
    create = contrib("DAISY_create", needed_by="daisy")
    # DAISY ignores the keypoint's scale. With this radius, the outer ring touches the sides of the
    # patch. On training photos, radii of 8 to 14 scored lower and 18 the same; normalising each
    # histogram scored lower than whole rows.
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
    """Scale rows to unit length, except for rounding errors; the faintest edge has a norm of 1e-3."""
    lengths = described.norm(dim=1, keepdim=True)
    return torch.where(lengths > 1e-6, described / lengths.clamp(min=1e-6), 0)


def _sift(name: str, patch_size: int, finish: Callable[[Tensor], Tensor], extent: float = 1.0) -> OpenCVBaseline:
    """Create SIFT whose 4×4 bins of 3σ cover the patch: its side is 12σ, or six times `KeyPoint.size`.

    SIFT reads the pyramid level given by the keypoint's `octave`. Octave 0 is the first level, so
    `sigma` gives that level the blur σ. OpenCV computes the other levels too, which nothing reads. They take the least
    time with three layers: with one, there are fewer of them, but each is blurred with a wider kernel.
    """
    import cv2

    engine = partial(cv2.SIFT.create, nOctaveLayers=3, sigma=patch_size / 12)
    # Interpolation between bins reads a quarter of the patch beyond its border.
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
        native=cv2.SIFT.create,
        extent=extent,
    )
