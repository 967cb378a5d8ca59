"""What can be judged: anything that describes patches, or frames of an image."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.checks import check_shape
from doap.detectors import Detector
from doap.images import Pyramid
from doap.types import Kind

_AT_ONCE = 512


@runtime_checkable
class Describer(Protocol):
    """A `Descriptor`, a `OpenCVBaseline`, or anybody's own object with these four."""

    @property
    def patch_size(self) -> int: ...  # S

    @property
    def dim(self) -> int: ...  # D, numbers or bits

    @property
    def kind(self) -> Kind: ...

    def describe(self, patches: Tensor) -> Tensor: ...  # (N, 1, S, S) in 0…1 -> (N, D) float32 or (N, D/8) uint8


@runtime_checkable
class ImageDescriber(Describer, Protocol):
    """One that looks at the image itself where there is one, and so at more than the patch."""

    def describe_frames(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> Tensor: ...


@runtime_checkable
class DetectsKeypoints(ImageDescriber, Protocol):
    """One that describes the keypoints of its own detector only; its `describe` says that patches are not enough."""

    @property
    def detector(self) -> Detector: ...


def extent_of(describer: Describer) -> float:
    """Side of the patches that a describer wants over the side of a detector's frames: its `extent`, if it has one."""
    return float(getattr(describer, "extent", 1.0))


def fingerprint(describer: Describer) -> str:
    """Checksum of what a describer makes of fixed patches, or of a fixed picture if it needs one.

    Weights and settings show in it, wherever they are kept.
    """
    size = describer.patch_size
    generator = np.random.Generator(np.random.PCG64(0))
    if isinstance(describer, DetectsKeypoints):
        picture = generator.integers(0, 256, (16, 16), np.uint8).repeat(8, axis=0).repeat(8, axis=1)
        described = describer.describe_frames(picture, describer.detector.detect(picture, 16)[0])
    else:
        # Noise of two grains, and a flat patch.
        fine = generator.random((8, size, size), np.float32)
        cells = generator.random((8, 4, 4), np.float32)
        coarse = cells.repeat(-(-size // 4), 1).repeat(-(-size // 4), 2)[:, :size, :size]
        patches = torch.from_numpy(np.concatenate([fine, coarse, np.full((1, size, size), 0.5, np.float32)]))
        described = describer.describe(patches.unsqueeze(1))
    extent = extent_of(describer)
    wider = f"{extent} " if extent != 1 else ""
    digest = hashlib.sha256(f"{describer.kind} {describer.dim} {size} {wider}".encode())
    digest.update(described.cpu().contiguous().numpy().data)
    return digest.hexdigest()


def from_function(
    function: Callable[[Tensor], Tensor | NDArray[Any]], patch_size: int = 32, name: str = "function"
) -> FunctionDescriber:
    """Anybody's own function of patches, with the face of a descriptor.

    >>> means = from_function(lambda patches: patches.mean(dim=(2, 3)))
    >>> means.dim, means.kind, means.describe(torch.ones(2, 1, 32, 32)).tolist()
    (1, 'real', [[1.0], [1.0]])

    Args:
        function: (N, 1, S, S) floats in 0…1 → (N, D) floats, or (N, D/8) uint8 for bits, tensor or array. It is given
            one to 512 patches at a time, so what it makes of one must not depend on the others.
        patch_size: S.
        name: for tables.
    """
    return FunctionDescriber(function, patch_size, name)


class FunctionDescriber:
    """See `from_function`; what the function makes of a black patch tells D and the kind."""

    def __init__(self, function: Callable[[Tensor], Tensor | NDArray[Any]], patch_size: int, name: str) -> None:
        self._function, self.patch_size, self.name = function, patch_size, name
        one = torch.as_tensor(function(torch.zeros(1, 1, patch_size, patch_size)))
        width = check_shape(one, "1 D", name="function of one patch")["D"]
        self.kind: Kind = "binary" if one.dtype == torch.uint8 else "real"
        self.dim = 8 * width if self.kind == "binary" else width

    def describe(self, patches: Tensor) -> Tensor:
        """As `OpenCVBaseline.describe`; the numbers are the function's own."""
        count = check_shape(patches, f"N 1 {self.patch_size} {self.patch_size}", name="patches")["N"]
        binary = self.kind == "binary"
        width, dtype = (self.dim // 8, torch.uint8) if binary else (self.dim, torch.float32)
        described = torch.zeros(count, width, dtype=dtype)
        for rows, some in zip(described.split(_AT_ONCE), patches.split(_AT_ONCE), strict=True):
            if len(some):
                of_some = torch.as_tensor(self._function(some))
                check_shape(of_some, f"{len(some)} {width}", name="function of the patches")
                rows[:] = of_some
        return described
