"""Descriptors of OpenCV that are made of bits, to be compared by Hamming distance."""

from __future__ import annotations

from functools import partial

from doap.baselines.opencv import OpenCVBaseline
from doap.detectors.opencv import contrib
from doap.errors import ArgumentError

# Names of constants that OpenCV has in C++ only.
_BINBOOST_256 = 302


def teblid(patch_size: int = 32, bits: int = 256) -> OpenCVBaseline:
    """TEBLID, 256 or 512 bits (Suárez and others, 2021). A flat patch has a code too: bits are learned thresholds."""
    return _learned_boxes("TEBLID", patch_size, bits)


def beblid(patch_size: int = 32, bits: int = 256) -> OpenCVBaseline:
    """BEBLID, 256 or 512 bits (Suárez and others, 2020): TEBLID's forerunner, learned with another loss."""
    return _learned_boxes("BEBLID", patch_size, bits)


def boostdesc(patch_size: int = 32) -> OpenCVBaseline:
    """BinBoost, 256 bits, each a vote of weak learners on gradients (Trzcinski and others, 2013).

    Of the family that OpenCV calls BoostDesc it is OpenCV's default, and the longest whose bits are votes: BGM has one
    weak learner to a bit, and LBGM is made of numbers.
    """
    # It was learned for 32×32 pixels, and reads no others.
    engine = partial(contrib("BoostDesc_create", needed_by="boostdesc"), desc=_BINBOOST_256, scale_factor=1.0)
    return OpenCVBaseline(
        "boostdesc", engine, dim=256, kind="binary", patch_size=patch_size, side=32, tile=32, keypoint_size=32
    )


def latch(patch_size: int = 32) -> OpenCVBaseline:
    """LATCH, 256 bits, each telling which of two spots is more like a third (Levi and Hassner, 2016)."""
    create = contrib("LATCH_create", needed_by="latch")
    engine = partial(create, bytes=32, rotationInvariance=False, half_ssd_size=3)
    # It knows no scale. Its spots are 7×7 pixels around points that lie up to 24 pixels from the keypoint: 48 is the
    # best of 34, 40, 48, 55 and 64 on photos of the training set. Keypoints within 27 pixels of a border are dropped.
    return OpenCVBaseline(
        "latch", engine, dim=256, kind="binary", patch_size=patch_size, side=48, tile=57, keypoint_size=48
    )


def orb(patch_size: int = 32) -> OpenCVBaseline:
    """ORB, 256 bits, each telling which of two points is brighter (Rublee and others, 2011)."""
    import cv2

    # Its points lie up to 13 pixels from the keypoint, whatever its size: 27 is also the best of 24, 27, 31, 36 and 40
    # on photos of the training set. It reads three pixels more, for its blur.
    engine = partial(cv2.ORB.create, nlevels=1, edgeThreshold=0)
    return OpenCVBaseline(
        "orb", engine, dim=256, kind="binary", patch_size=patch_size, side=27, tile=39, keypoint_size=31
    )


def akaze(patch_size: int = 32) -> OpenCVBaseline:
    """M-LDB, the descriptor of AKAZE: 486 bits that compare cells of grids (Alcantarilla and others, 2013).

    D is 488, for bits come in bytes; the last two are always 0 and change no distance.
    """
    # The finest level of its scale space, with the size that AKAZE itself gives to keypoints there: cells cover ten
    # sizes, and the blur is σ = 1.6. Levels above are diffused by the contrast of the whole image, which a patch cannot
    # know. This is AKAZE's own proportion, not the best found: on photos of the training set patches of 48 pixels, seen
    # in part, and of 80, seen whole with a size of 8, scored 0.005 and 0.006 more.
    create = contrib("AKAZE_create", needed_by="akaze")
    engine = partial(create, nOctaves=1, nOctaveLayers=1)
    return OpenCVBaseline(
        "akaze", engine, dim=488, kind="binary", patch_size=patch_size, side=40, tile=53, keypoint_size=4
    )


def _learned_boxes(name: str, patch_size: int, bits: int) -> OpenCVBaseline:
    """TEBLID or BEBLID of OpenCV's contrib, which have one face."""
    import cv2

    if bits not in (256, 512):
        raise ArgumentError(f"bits: expected 256 or 512, got {bits}")
    create = contrib(f"{name}_create", needed_by=name.lower())
    # With a scale factor of 1 the size of a keypoint is the side of what is looked at. It was learned on 32×32 pixels.
    engine = partial(create, 1.0, getattr(cv2.xfeatures2d, f"{name}_SIZE_{bits}_BITS"))
    label = name.lower() if bits == 256 else f"{name.lower()}-{bits}"
    return OpenCVBaseline(
        label, engine, dim=bits, kind="binary", patch_size=patch_size, side=32, tile=32, keypoint_size=32
    )
