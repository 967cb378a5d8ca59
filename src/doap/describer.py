"""Describers: an image and its keypoints in, descriptors out."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from doap._support.checks import MAX_PATCH_SIZE, check_shape
from doap._support.errors import ArgumentError, DoapError, ShapeError, is_out_of_memory
from doap._support.settings import StrictModel
from doap.images import Pyramid, extract_patches, resize_frames
from doap.types import Kind

if TYPE_CHECKING:
    from hashlib import _Hash

PatchFunction = Callable[[Tensor], Tensor | NDArray[np.generic]]
"""A function of patches: (N, 1, S, S) floats in 0…1 → (N, D) floats or (N, D/8) uint8."""

DEFAULT_RATIO = 0.9
"""Threshold of the ratio test of descriptors for which no other one was selected on validation scenes."""
_BATCH = 512


@runtime_checkable
class Describer(Protocol):
    """Anything that describes keypoints of an image as rows (N, D): a `Descriptor`, a baseline or your own object."""

    @property
    def dim(self) -> int:
        """D, the number of dimensions (`real`) or bits (`binary`)."""

    @property
    def kind(self) -> Kind:
        """`real` for floats, `binary` for packed bits."""

    @property
    def extent(self) -> float:
        """Side of the described region, divided by the side of the detector's frame; 1.0 for most baselines."""

    @property
    def ratio(self) -> float:
        """Default threshold of the ratio test, in (0, 1]; it changes matches, not descriptors."""

    def describe(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> Tensor:
        """Describe frames (N, 2, 3) of a grey image (H, W) as (N, D) float32 or (N, D/8) uint8; N may be 0."""

    def fingerprint(self) -> str:
        """Return a checksum of everything that changes descriptors; it is independent of device and precision."""


class PatchDescriber(ABC):
    """Base class of describers of patches (N, 1, S, S).

    A subclass has the attributes of `Describer`, `describe_patches`, and `patch_size`, the side S in pixels.
    """

    patch_size: int
    dim: int
    kind: Kind
    extent: float = 1.0
    ratio: float = DEFAULT_RATIO

    @abstractmethod
    def describe_patches(self, patches: Tensor) -> Tensor:
        """Describe patches (N, 1, S, S) in 0…1 as (N, D) float32 or (N, D/8) uint8; N may be 0."""

    def describe(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> Tensor:
        """Describe frames (N, 2, 3) of a grey image (H, W) as (N, D) float32 or (N, D/8) uint8."""
        patches = cut_patches(image, frames, self.patch_size, self.extent)
        return self.describe_patches(patches.unsqueeze(1).float() / 255)

    def fingerprint(self) -> str:
        """Return a checksum of the descriptors of fixed patches."""
        extent = f"{self.extent} " if self.extent != 1 else ""
        digest = hashlib.sha256(f"{self.kind} {self.dim} {self.patch_size} {extent}".encode())
        digest.update(self.describe_patches(fixed_patches(self.patch_size)).cpu().contiguous().numpy().data)
        return digest.hexdigest()


def cut_patches(
    image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32], patch_size: int, extent: float
) -> Tensor:
    """Cut the patches (N, S, S) uint8 of frames (N, 2, 3), enlarged by `extent`."""
    return torch.from_numpy(extract_patches(image, resize_frames(frames, extent), patch_size))


def check_patches(patches: Tensor, size: int) -> None:
    """Check that patches are a tensor (N, 1, S, S) of floats. N may be symbolic, as in an export."""
    if not isinstance(patches, Tensor):
        raise ArgumentError(
            f"patches: expected a torch tensor (N, 1, {size}, {size}), got {type(patches).__name__}. "
            "Convert an array with torch.from_numpy."
        )
    if patches.ndim != 4 or tuple(patches.shape[1:]) != (1, size, size):
        raise ShapeError(f"patches: expected (N, 1, {size}, {size}), got {tuple(patches.shape)}.")
    if not patches.is_floating_point():
        raise ArgumentError(f"patches: expected floats in 0…1, got {patches.dtype}. Divide by 255.")


def hash_weights(digest: _Hash, weights: Mapping[str, Tensor]) -> None:
    """Add the names, types, shapes and values of weights to a checksum."""
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data)


def fixed_patches(size: int) -> Tensor:
    """Return the patches (17, 1, S, S) of fingerprints: fine noise, coarse noise and a flat patch."""
    random = np.random.Generator(np.random.PCG64(0))
    fine = random.random((8, size, size), np.float32)
    cells = random.random((8, 4, 4), np.float32)
    coarse = cells.repeat(-(-size // 4), 1).repeat(-(-size // 4), 2)[:, :size, :size]
    flat = np.full((1, size, size), 0.5, np.float32)
    return torch.from_numpy(np.concatenate([fine, coarse, flat])).unsqueeze(1)


class ShowsSettings:
    """Base class of describers whose `repr` shows their settings, such as `Name(name='teblid', dim=256)`."""

    def __repr__(self) -> str:
        names = [name for name in ("name", "kind", "dim", "patch_size", "extent") if hasattr(self, name)]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


class _Settings(StrictModel):
    """Patches that a function is called with, and the threshold of the ratio test of its output."""

    patch_size: int = Field(ge=1, le=MAX_PATCH_SIZE)
    extent: float = Field(gt=0)
    ratio: float = Field(gt=0, le=1)


class FunctionDescriber(ShowsSettings, PatchDescriber):
    """A `PatchDescriber` that calls your own function of patches. D and kind follow from its output for one patch.

    >>> means = from_function(lambda patches: patches.mean(dim=(2, 3)))
    >>> means.dim, means.kind, means.describe_patches(torch.ones(2, 1, 32, 32)).tolist()
    (1, 'real', [[1.0], [1.0]])

    Args:
        function: Maps (N, 1, S, S) floats in 0…1 to (N, D) floats, or to (N, D/8) uint8 for bits,
            as a tensor or an array. N is between 1 and 512, and the descriptor of a patch must not
            depend on the rest of the batch.
        patch_size: S.
        name: Name in tables.
        extent: Side of the patch, divided by the side of the detector's frame.
        ratio: Default threshold of the ratio test.
    """

    def __init__(
        self,
        function: PatchFunction,
        patch_size: int = 32,
        name: str = "function",
        extent: float = 1.0,
        ratio: float = DEFAULT_RATIO,
    ) -> None:
        settings = _Settings.check(patch_size=patch_size, extent=extent, ratio=ratio)
        self._function, self.name = function, name
        self.patch_size, self.extent, self.ratio = settings.patch_size, settings.extent, settings.ratio
        one = self._call(torch.zeros(1, 1, self.patch_size, self.patch_size))
        width = check_shape(one, "1 D", name="function of one patch")["D"]
        if not width:
            raise ShapeError("function of one patch: expected (1, D) with D ≥ 1, got (1, 0)")
        self.kind: Kind = "binary" if one.dtype == torch.uint8 else "real"
        self.dim = 8 * width if self.kind == "binary" else width

    def describe_patches(self, patches: Tensor) -> Tensor:
        """Describe patches (N, 1, S, S) as (N, D) float32 or (N, D/8) uint8, on the CPU."""
        check_patches(patches, self.patch_size)
        binary = self.kind == "binary"
        described = [torch.zeros(0, self.dim // 8, dtype=torch.uint8) if binary else torch.zeros(0, self.dim)]
        for batch in patches.split(_BATCH) if len(patches) else ():
            returned = self._call(batch)
            check_shape(returned, f"{len(batch)} {described[0].shape[1]}", name="function of the patches")
            if (returned.dtype == torch.uint8) != binary:
                expected = "uint8" if binary else "floats"
                raise ArgumentError(f"{self.name}: expected {expected} as for one patch, got {returned.dtype}.")
            described.append(returned.to(described[0]))
        return torch.cat(described)

    @torch.no_grad()
    def _call(self, patches: Tensor) -> Tensor:
        """Call the function, which may be the user's and can raise or return anything."""
        try:
            returned = self._function(patches)
            described = torch.as_tensor(returned) if isinstance(returned, Tensor | np.ndarray) else None
        except Exception as error:
            if isinstance(error, DoapError) or is_out_of_memory(error):
                raise
            raise ArgumentError(
                f"{self.name}: expected descriptors of patches {tuple(patches.shape)}, but the function raised "
                f"{type(error).__name__}: {error}"
            ) from error
        if described is None or not (described.dtype == torch.uint8 or described.is_floating_point()):
            found = type(returned).__name__ if described is None else described.dtype
            raise ArgumentError(f"{self.name}: expected a tensor or array of floats, or uint8 for bits, got {found}.")
        return described


from_function = FunctionDescriber
"""Turn your own function of patches into a `PatchDescriber`."""
