"""Binary descriptors of OpenCV, compared by Hamming distance."""

from __future__ import annotations

from functools import partial

from doap._support.errors import ArgumentError
from doap.baselines.opencv import OpenCVBaseline
from doap.detectors.opencv import contrib

# OpenCV defines the name of this constant in C++ only.
_BINBOOST_256 = 302


def teblid(patch_size: int = 32, bits: int = 256) -> OpenCVBaseline:
    """Create TEBLID with 256 or 512 bits (Suárez et al., 2021).

    >>> import torch
    >>> teblid().describe_patches(torch.rand(3, 1, 32, 32)).shape
    torch.Size([3, 32])
    """
    return _learned_boxes("TEBLID", patch_size, bits)


def beblid(patch_size: int = 32, bits: int = 256) -> OpenCVBaseline:
    """Create BEBLID, the predecessor of TEBLID, with 256 or 512 bits (Suárez et al., 2020)."""
    return _learned_boxes("BEBLID", patch_size, bits)


def boostdesc(patch_size: int = 32) -> OpenCVBaseline:
    """Create BinBoost with 256 bits from boosted gradient features (Trzcinski et al., 2013).

    It is the default of the family that OpenCV calls BoostDesc.
    """
    # Trained on 32×32 pixels, and no others are read.
    engine = partial(contrib("BoostDesc_create", needed_by="boostdesc"), desc=_BINBOOST_256, scale_factor=1.0)
    return OpenCVBaseline(
        "boostdesc", engine, dim=256, kind="binary", patch_size=patch_size, side=32, tile=32, keypoint_size=32
    )


def latch(patch_size: int = 32) -> OpenCVBaseline:
    """Create LATCH with 256 bits; each compares three small patches (Levi and Hassner, 2016)."""
    create = contrib("LATCH_create", needed_by="latch")
    engine = partial(create, bytes=32, rotationInvariance=False, half_ssd_size=3)
    # LATCH ignores the keypoint's scale. It compares 7×7 pixels around points up to 24 pixels from
    # the keypoint. On training photos, 48 is the best of 34, 40, 48, 55 and 64. Keypoints within 27
    # pixels of the border are dropped.
    return OpenCVBaseline(
        "latch", engine, dim=256, kind="binary", patch_size=patch_size, side=48, tile=57, keypoint_size=48
    )


def orb(patch_size: int = 32) -> OpenCVBaseline:
    """Create ORB with 256 bits; each compares the brightness of two points (Rublee et al., 2011)."""
    import cv2

    # The points are up to 13 pixels from the keypoint, regardless of its size. On training photos,
    # 27 is the best of 24, 27, 31, 36 and 40. The blur reads three more pixels.
    engine = partial(cv2.ORB.create, nlevels=1, edgeThreshold=0)
    return OpenCVBaseline(
        "orb", engine, dim=256, kind="binary", patch_size=patch_size, side=27, tile=39, keypoint_size=31
    )


def akaze(patch_size: int = 32) -> OpenCVBaseline:
    """Create M-LDB, the descriptor of AKAZE, with 486 bits (Alcantarilla et al., 2013).

    D is 488 because bits are packed into bytes. The last two bits are always 0 and do not change
    distances.
    """
    # The finest level of the scale space, with AKAZE's own keypoint size there: the cells cover ten
    # sizes, and the blur is σ = 1.6. Coarser levels depend on the contrast of the whole image,
    # which a patch does not contain. On training photos, patches of 48 pixels (cropped) and of 80
    # (with a size of 8) scored 0.005 and 0.006 higher.
    create = contrib("AKAZE_create", needed_by="akaze")
    engine = partial(create, nOctaves=1, nOctaveLayers=1)
    return OpenCVBaseline(
        "akaze", engine, dim=488, kind="binary", patch_size=patch_size, side=40, tile=53, keypoint_size=4
    )


def _learned_boxes(name: str, patch_size: int, bits: int) -> OpenCVBaseline:
    """Create TEBLID or BEBLID, which have the same constructor in OpenCV."""
    import cv2

    if bits not in (256, 512):
        raise ArgumentError(f"bits: expected 256 or 512, got {bits}")
    create = contrib(f"{name}_create", needed_by=name.lower())
    # With a scale factor of 1, the keypoint size is the side of the described region. Trained on
    # 32×32 pixels.
    engine = partial(create, 1.0, getattr(cv2.xfeatures2d, f"{name}_SIZE_{bits}_BITS"))
    label = name.lower() if bits == 256 else f"{name.lower()}-{bits}"
    return OpenCVBaseline(
        label, engine, dim=bits, kind="binary", patch_size=patch_size, side=32, tile=32, keypoint_size=32
    )
