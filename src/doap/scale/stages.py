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
from typing import TypeVar, cast

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from doap.describer import Describer, ImageDescriber
from doap.detectors import Detector
from doap.errors import ArgumentError, DataError, DoapError, is_out_of_memory
from doap.images import Pyramid
from doap.pipeline import cut_patches, detect_and_describe
from doap.processes import tune_allocator
from doap.scale.extractor import Extractor, ExtractorInfo
from doap.scale.features import UNCHANGED, FailedImage, StoredImage, make_table
from doap.scale.image_folder import ImageFolder, Source
from doap.types import Kind

ImageResult = StoredImage | FailedImage
Reopen = Callable[[], Describer]
"""A picklable function that loads a describer in another process."""

IMAGES_PER_BATCH = 4
"""Images described together: 8,192 patches at 2,048 keypoints per image. Larger batches delay the last images."""


class PatchCutter:
    """Describer whose descriptors are the patches for the second stage's descriptor, S·S bytes each."""

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
    """First stage: `doap.extract` of one image, which is read once, or the reason why it has no new features.

    Attributes:
        folder: Folder of images, and of their masks.
        detector, max_keypoints, tile: As for `doap.extract`.
        describer: As for `doap.extract`; a `PatchCutter` if the second stage describes.
    """

    folder: ImageFolder
    detector: Detector
    describer: Describer
    max_keypoints: int
    tile: int | None = None

    def __call__(self, source: Source) -> ImageResult:
        name, stamp, known = source
        path = self.folder.locate(name)
        try:
            contents = self.folder.read(name)
        except OSError as error:
            return FailedImage(name, "", f"{path}: cannot be read: {error.strerror or error}. Check the path.", stamp)
        except DataError as error:
            return FailedImage(name, "", str(error), stamp)
        if contents.checksum == known:
            return FailedImage(name, known, UNCHANGED, stamp)
        try:
            grey, mask = self.folder.decode(name, contents)
            features = detect_and_describe(
                grey, self.describer, self.detector, self.max_keypoints, mask=mask, tile=self.tile
            )
        # A library may raise anything for an unusual image. Wrong arguments were refused earlier.
        except Exception as error:
            if is_out_of_memory(error):
                # Not a fault of the image: without a checksum, the next run tries it again.
                return FailedImage(name, "", f"{path}: not enough memory. Run the same command again.", stamp)
            reason = str(error) if isinstance(error, DoapError) else f"{path}: {type(error).__name__}: {error}"
            return FailedImage(name, contents.checksum, " ".join(reason.split()), stamp)
        return StoredImage(name, contents.checksum, features, stamp)


@dataclass(frozen=True)
class Describe:
    """Second stage: rows of several images.

    Attributes:
        describer: Describes the patches of all images together; None if the first stage described them.
        extractor: Identity and settings for the rows.
    """

    describer: Describer | None
    extractor: ExtractorInfo

    @property
    def device(self) -> torch.device:
        """Device of the describer."""
        parameters: list[nn.Parameter] = (
            list(self.describer.parameters()) if isinstance(self.describer, nn.Module) else []
        )
        return parameters[0].device if parameters else torch.device("cpu")

    def to(self, device: str) -> Describe:
        """Return the stage with a copy of its describer on another device."""
        if not isinstance(self.describer, nn.Module) or self.device == torch.device(device):
            return self
        return replace(self, describer=cast(Describer, copy.deepcopy(self.describer).to(device)))

    def __call__(self, images: Sequence[ImageResult]) -> pa.Table:
        """Return the rows of any number of images, in their order."""
        found = [image.features for image in images if isinstance(image, StoredImage)]
        if self.describer is None or not found:
            return make_table(images, self.extractor)
        # Bytes go to the device; floats would take four times as long.
        patches = torch.cat([features.descriptors for features in found]).to(self.device)
        size = self.describer.patch_size
        described = self.describer.describe(patches.view(-1, 1, size, size).float() / 255).cpu()
        parts = iter(described.split([len(features) for features in found]))
        results = [
            replace(image, features=replace(image.features, descriptors=next(parts)))
            if isinstance(image, StoredImage)
            else image
            for image in images
        ]
        return make_table(results, self.extractor)


_Stage = TypeVar("_Stage", Detect, Describe)


def make_stages(folder: ImageFolder, extractor: Extractor) -> tuple[Detect, Describe]:
    """Return both stages for this process."""
    info, describer = extractor.info, extractor.describer
    reads_image = isinstance(describer, ImageDescriber)
    first = describer if reads_image else PatchCutter(describer)
    detect = Detect(folder, extractor.detector, first, info.max_keypoints, info.tile)
    return detect, Describe(None if reads_image else describer, info)


def make_portable(stage: _Stage, reopen: Reopen | None) -> _Stage:
    """Return a stage that can be pickled and then called in another process, where `reopen` loads its describer."""
    if _is_picklable(stage):
        return stage
    if reopen is not None:
        portable = replace(stage, describer=cast(Describer, _Placeholder(reopen)))
        if _is_picklable(portable):
            return portable
    raise ArgumentError(
        f"descriptor and detector: a {type(stage.describer).__name__} with this detector cannot be sent to other "
        "processes (not picklable). Pass names or files instead of objects, or use workers=1."
    )


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
