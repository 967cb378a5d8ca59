"""The two stages of extraction. Every engine runs these and nothing else.

`Detect` processes one image: it reads it, detects keypoints and cuts out patches. Many processes can run it. `Describe`
describes the patches of several images together and runs where the network is. A descriptor that reads the image itself
instead of patches runs in the first stage; the second stage then only converts its output to rows.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from doap.describer import Describer, ImageDescriber
from doap.detectors import Detector
from doap.errors import ArgumentError, DoapError
from doap.files import sha256
from doap.images import Pyramid
from doap.pipeline import cut_patches, extract
from doap.processes import tune_allocator
from doap.scale.extractor import Extractor, ExtractorInfo
from doap.scale.features import FailedImage, StoredImage, make_table
from doap.types import Kind

ImageResult = StoredImage | FailedImage
Reopen = Callable[[], Describer]
"""A picklable function that loads a describer in another process."""

IMAGES_PER_BATCH = 4
"""Images described together: 8,192 patches at 2,048 keypoints per image. Larger batches delay the last images."""


class PatchCutter:
    """Describer whose descriptors are the patches themselves, S·S bytes each, to be described in the second stage.

    Args:
        descriptor: Descriptor of the second stage; it defines the size and the extent of the patches.
    """

    kind: Kind = "binary"

    def __init__(self, descriptor: Describer) -> None:
        self.patch_size, self.extent = descriptor.patch_size, descriptor.extent
        self.dim = 8 * self.patch_size**2

    def describe(self, patches: Tensor) -> Tensor:
        """Convert patches (N, 1, S, S) in 0…1 to (N, S·S) uint8."""
        return (patches * 255).round().to(torch.uint8).flatten(1)

    def describe_frames(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> Tensor:
        """Cut out the patches of frames (N, 2, 3) as (N, S·S) uint8."""
        return torch.from_numpy(cut_patches(image, frames, self)).flatten(1)


@dataclass(frozen=True)
class Detect:
    """First stage: `doap.extract` of one image, or the reason why it failed.

    Attributes:
        images: Folder of images.
        detector, max_keypoints: As for `doap.extract`.
        describer: As for `doap.extract`; a `PatchCutter` if the second stage describes.
    """

    images: Path
    detector: Detector
    describer: Describer
    max_keypoints: int

    def __call__(self, name: str) -> ImageResult:
        path = self.images / name
        try:
            checksum = sha256(path)
        except OSError as error:
            return FailedImage(name, "", f"{path}: cannot be read: {error.strerror}. Check the path.")
        try:
            features = extract(path, self.describer, detector=self.detector, max_keypoints=self.max_keypoints)
        # A library may raise anything for an unusual image. Wrong arguments were refused earlier.
        except Exception as error:
            reason = str(error) if isinstance(error, DoapError) else f"{path}: {type(error).__name__}: {error}"
            return FailedImage(name, checksum, " ".join(reason.split()))
        return StoredImage(name, checksum, features)


@dataclass(frozen=True)
class Describe:
    """Second stage: rows of several images.

    Attributes:
        network: Describes the patches of all images together; None if the first stage described them.
        extractor: Identity and settings for the rows.
    """

    network: Describer | None
    extractor: ExtractorInfo

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        parameter = next(self.network.parameters(), None) if isinstance(self.network, nn.Module) else None
        return torch.device("cpu") if parameter is None else parameter.device

    def to(self, device: str) -> Describe:
        """Return the stage with its network on another device; the network of this stage stays where it is."""
        if not isinstance(self.network, nn.Module) or self.device == torch.device(device):
            return self
        return replace(self, network=cast(Describer, copy.deepcopy(self.network).to(device)))

    def __call__(self, images: Sequence[ImageResult]) -> pa.Table:
        """Return the rows of any number of images, in their order."""
        found = [image.features for image in images if isinstance(image, StoredImage)]
        if self.network is None or not found:
            return make_table(images, self.extractor)
        # Bytes go to the device; floats would take four times as long.
        patches = torch.cat([features.descriptors for features in found]).to(self.device)
        size = self.network.patch_size
        described = self.network.describe(patches.view(-1, 1, size, size).float() / 255).cpu()
        parts = iter(described.split([len(features) for features in found]))
        results = [
            replace(image, features=replace(image.features, descriptors=next(parts)))
            if isinstance(image, StoredImage)
            else image
            for image in images
        ]
        return make_table(results, self.extractor)


def make_stages(images: Path, extractor: Extractor) -> tuple[Detect, Describe]:
    """Return both stages for this process."""
    describer, limit = extractor.describer, extractor.info.max_keypoints
    if isinstance(describer, ImageDescriber):
        return Detect(images, extractor.detector, describer, limit), Describe(None, extractor.info)
    return Detect(images, extractor.detector, PatchCutter(describer), limit), Describe(describer, extractor.info)


def make_portable(detect: Detect, reopen: Reopen | None) -> Detect:
    """Return the first stage in a form that can be pickled; it can be called after it was unpickled elsewhere.

    Args:
        detect: First stage for this process.
        reopen: Loads the describer in another process; None if it was given as an object.
    """
    if not _is_picklable(detect.detector):
        raise ArgumentError(
            f"detector: {detect.detector.name} cannot be sent to other processes (not picklable). Use workers=1."
        )
    return replace(detect, describer=portable_describer(detect.describer, reopen))


def portable_describer(describer: Describer, reopen: Reopen | None) -> Describer:
    """Return a describer in a form that can be pickled: itself, or a placeholder that is unpickled by `reopen`."""
    if _is_picklable(describer):
        return describer
    if reopen is None:
        raise ArgumentError(
            f"descriptor: a {type(describer).__name__} cannot be sent to other processes (not picklable). "
            "Pass its name or file instead of the object, or use workers=1."
        )
    return cast(Describer, _Placeholder(reopen))


class _Placeholder:
    """Is unpickled as the result of a function."""

    def __init__(self, make: Reopen) -> None:
        self._make = make

    def __reduce__(self) -> tuple[Reopen, tuple[()]]:
        return self._make, ()


def _is_picklable(value: object) -> bool:
    try:
        pickle.dumps(value)
    # Every type raises an exception of its own.
    except Exception:
        return False
    return True


def prepare_worker() -> None:
    """Configure a worker process: one thread, and freed memory is kept for the next images.

    With glibc's defaults, a quarter of the describing time goes into mapping freed memory again.
    """
    import cv2

    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    tune_allocator()
