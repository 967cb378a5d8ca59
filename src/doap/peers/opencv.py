"""Descriptors of OpenCV, computed on patches.

They see the patches that a network sees, no more. It costs them little: SIFT of a 32×32 patch has a cosine of about
0.97 with SIFT of the photo that the patch was cut from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from doap.detectors.opencv import contrib
from doap.errors import ArgumentError, check_shape
from doap.networks import Kind


class Peer:
    """A descriptor of OpenCV, computed for one keypoint in the middle of each patch.

    Args:
        name: its name in `doap.peers.PEERS`.
        engine: a `cv2.Feature2D`.
        dim: D.
        kind: `real` or `binary`.
        patch_size: S.
        keypoint_size: the `KeyPoint.size` with which the engine looks at the S×S pixels of the patch.
        finish: what becomes of the numbers of the engine, (N, D) → (N, D).
    """

    def __init__(
        self,
        name: str,
        engine: Any,
        *,
        dim: int,
        kind: Kind,
        patch_size: int,
        keypoint_size: float,
        finish: Callable[[Tensor], Tensor] = lambda described: described,
    ) -> None:
        if patch_size < 8:
            raise ArgumentError(f"patch_size: expected 8 pixels or more, got {patch_size}")
        self.name, self.dim, self.patch_size = name, dim, patch_size
        self.kind: Kind = kind
        self._engine, self._keypoint_size, self._finish = engine, keypoint_size, finish

    def describe(self, patches: Tensor) -> Tensor:
        """Describe patches one by one.

        Args:
            patches: (N, 1, S, S) floats in 0…1, on any device; rounded to 8 bits, as OpenCV wants them. N may be 0.

        Returns:
            (N, D) float32, unit rows, but zeros for a flat patch; or (N, D/8) uint8. On the CPU.
        """
        import cv2

        count = check_shape(patches, f"N 1 {self.patch_size} {self.patch_size}", name="patches")["N"]
        if not patches.is_floating_point():
            raise ArgumentError(f"patches: expected floats in 0…1, got {patches.dtype}; divide by 255")
        pixels = (patches[:, 0] * 255).round().clamp(0, 255).to("cpu", torch.uint8).numpy()
        binary = self.kind == "binary"
        described = np.zeros((count, self.dim // 8 if binary else self.dim), np.uint8 if binary else np.float32)
        # OpenCV rounds keypoints to whole pixels, and the middle of an even patch lies between two. So the patch is
        # sampled anew around its middle, with its border repeated as far as the outermost bins of SIFT reach.
        reach, middle = self.patch_size * 3 // 4, (self.patch_size - 1) / 2
        keypoint = cv2.KeyPoint(reach, reach, self._keypoint_size, angle=0, response=0, octave=0)
        for row, patch in zip(described, pixels, strict=True):
            centred = cv2.getRectSubPix(patch, (2 * reach + 1, 2 * reach + 1), (middle, middle))
            row[:] = self._engine.compute(centred, [keypoint])[1][0]
        return self._finish(torch.from_numpy(described))


def sift(patch_size: int = 32) -> Peer:
    """SIFT, 128 numbers, as OpenCV computes it.

    >>> sift().describe(torch.rand(3, 1, 32, 32)).shape
    torch.Size([3, 128])
    """
    return _sift("sift", patch_size, normalize)


def rootsift(patch_size: int = 32) -> Peer:
    """RootSIFT: the roots of SIFT's numbers as shares of their sum (Arandjelović and Zisserman, 2012)."""
    return _sift("rootsift", patch_size, lambda described: normalize(described, p=1).sqrt())


def teblid(patch_size: int = 32) -> Peer:
    """TEBLID, 256 bits (Suárez and others, 2021). A flat patch has a code too: bits compare with learned thresholds."""
    return _learned_bits("TEBLID", patch_size)


def beblid(patch_size: int = 32) -> Peer:
    """BEBLID, 256 bits (Suárez and others, 2020): TEBLID's forerunner, learned with another loss."""
    return _learned_bits("BEBLID", patch_size)


def _learned_bits(name: str, patch_size: int) -> Peer:
    """TEBLID or BEBLID of OpenCV's contrib, which have one face."""
    import cv2

    create = contrib(f"{name}_create", needed_by=name.lower())
    # With a scale factor of 1 the size of a keypoint is the side of what is looked at.
    engine = create(1.0, getattr(cv2.xfeatures2d, f"{name}_SIZE_256_BITS"))
    return Peer(name.lower(), engine, dim=256, kind="binary", patch_size=patch_size, keypoint_size=patch_size)


def _sift(name: str, patch_size: int, finish: Callable[[Tensor], Tensor]) -> Peer:
    """SIFT that looks at 4×4 bins, each 3σ wide: at 12σ, or six times `KeyPoint.size`, which are the whole patch.

    It works on an image blurred to σ. A keypoint's `octave` says which level of the pyramid that is, and 0 is the
    first, so the first level is given just this blur; the others are not used, and one layer makes them few.
    """
    import cv2

    engine = cv2.SIFT.create(nOctaveLayers=1, sigma=patch_size / 12)
    return Peer(name, engine, dim=128, kind="real", patch_size=patch_size, keypoint_size=patch_size / 6, finish=finish)
