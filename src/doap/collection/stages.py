"""The two stages of extraction. Every engine runs these and nothing else.

`Detect` processes one image: it reads it and runs the first stage of the extractor. Many processes can run it.
`Describe` runs the second stage for several images together, where the network is, and converts them to rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

import pyarrow as pa
import torch

from doap._support.errors import ArgumentError, DataError, DoapError, is_out_of_memory
from doap._support.processes import tune_allocator
from doap.collection.extractor import ConfiguredExtractor, ExtractorInfo
from doap.collection.features import FailedImage, StoredImage, UnchangedImage, make_table
from doap.collection.image_folder import ImageFolder, Source
from doap.extractor import Extractor, Prepared

Reopen = Callable[[], Extractor]
"""A picklable function that loads an extractor in another process."""

IMAGES_PER_BATCH = 4
"""Images described together: 8,192 patches at 2,048 keypoints per image. Larger batches delay the last images."""


@dataclass(frozen=True)
class PreparedImage:
    """An image after the first stage; the other attributes are those of `StoredImage`."""

    name: str
    checksum: str
    prepared: Prepared
    stamp: str = ""


ImageResult = PreparedImage | FailedImage | UnchangedImage


@dataclass(frozen=True)
class Detect:
    """First stage: `Extractor.prepare` of one image, which is read once, or the reason why it has no new features.

    Attributes:
        folder: Folder of images, and of their masks.
        extractor: Extractor.
        max_keypoints, tile: As for `doap.extract`.
    """

    folder: ImageFolder
    extractor: Extractor
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
            return UnchangedImage(name, stamp)
        try:
            grey, mask = self.folder.decode(name, contents)
            prepared = self.extractor.prepare(grey, max_keypoints=self.max_keypoints, mask=mask, tile=self.tile)
        # A library may raise anything for an unusual image. Wrong arguments were refused earlier.
        except Exception as error:
            if is_out_of_memory(error):
                # Not a fault of the image: without a checksum, the next run tries it again.
                return FailedImage(name, "", f"{path}: not enough memory. Run the same command again.", stamp)
            reason = str(error) if isinstance(error, DoapError) else f"{path}: {type(error).__name__}: {error}"
            return FailedImage(name, contents.checksum, " ".join(reason.split()), stamp)
        return PreparedImage(name, contents.checksum, prepared, stamp)


@dataclass(frozen=True)
class Describe:
    """Second stage: `Extractor.finish` of several images, as rows.

    Attributes:
        extractor: Extractor.
        info: Identity and settings for the rows.
    """

    extractor: Extractor
    info: ExtractorInfo

    def to(self, device: str) -> Describe:
        """Return the stage with a copy of its network on another device."""
        return replace(self, extractor=self.extractor.to(torch.device(device)))

    def __call__(self, images: Sequence[ImageResult]) -> pa.Table:
        """Return the rows of any number of images, in their order."""
        features = iter(self.extractor.finish([one.prepared for one in images if isinstance(one, PreparedImage)]))
        results = [
            StoredImage(one.name, one.checksum, next(features), one.stamp) if isinstance(one, PreparedImage) else one
            for one in images
        ]
        return make_table(results, self.info)


_Stage = TypeVar("_Stage", Detect, Describe)


def make_stages(folder: ImageFolder, configured: ConfiguredExtractor) -> tuple[Detect, Describe]:
    """Return both stages for this process."""
    extractor, info = configured.extractor, configured.info
    return Detect(folder, extractor.first_stage(), info.max_keypoints, info.tile), Describe(extractor, info)


def make_portable(stage: _Stage, reopen: Reopen | None) -> _Stage:
    """Return a stage that can be pickled and then called in another process, where `reopen` loads its extractor."""
    if _is_picklable(stage):
        return stage
    if reopen is not None:
        portable = replace(stage, extractor=cast(Extractor, _Placeholder(reopen)))
        if _is_picklable(portable):
            return portable
    raise ArgumentError(
        f"descriptor and detector: {stage.extractor.name} with this detector cannot be sent to other "
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
