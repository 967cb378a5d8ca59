"""What is done with images, in two stages, wherever they run: all engines call these and nothing else.

`Look` works on one image and can be done by many processes: read, detect, cut out patches. `Describe` works on what was
seen in many images at once and is done where the network is. A descriptor that sees the image itself, not patches, is
used while looking, and there is nothing left for the second stage but to write rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.baselines import BASELINES
from doap.describer import Describer, ImageDescriber, fingerprint
from doap.detectors import Detector
from doap.errors import ArgumentError, DoapError
from doap.files import sha256
from doap.images import Pyramid
from doap.pipeline import cut_patches, extract
from doap.processes import tune_allocator
from doap.scale.extractor import Extractor
from doap.scale.features import FailedImage, StoredImage, rows_table
from doap.types import Kind

Looked = StoredImage | FailedImage

IMAGES_AT_ONCE = 4
"""Images that are described together: 8,192 patches of 2,048 keypoints each; more make the last ones late."""


class Patches:
    """The describer of those who describe later: the descriptor of a frame is its patch, S·S bytes.

    So whoever looks at an image calls `doap.extract`, as whoever describes it at once does.

    Args:
        descriptor: whose patches they are; of their size, and of its `extent` if it has one.
    """

    kind: Kind = "binary"

    def __init__(self, descriptor: Describer) -> None:
        self.patch_size, self.extent = descriptor.patch_size, descriptor.extent
        self.dim = 8 * self.patch_size**2

    def describe(self, patches: Tensor) -> Tensor:
        """(N, 1, S, S) in 0…1 → (N, S·S) uint8."""
        return (patches * 255).round().to(torch.uint8).flatten(1)

    def describe_frames(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> Tensor:
        """(N, S·S) uint8 of frames (N, 2, 3)."""
        return torch.from_numpy(cut_patches(image, frames, self)).flatten(1)


@dataclass(frozen=True)
class Look:
    """The first stage: what `doap.extract` makes of an image, or why it makes nothing.

    Attributes:
        images: the folder.
        detector, describer, most: as for `doap.extract`; the describer is `Patches` if the second stage describes.
    """

    images: Path
    detector: Detector
    describer: Describer
    max_keypoints: int

    def __call__(self, name: str) -> Looked:
        path = self.images / name
        try:
            checksum = sha256(path)
        except OSError as error:
            return FailedImage(name, "", f"{path}: expected an image file, got {error.strerror}; check the path")
        try:
            return StoredImage(
                name, checksum, extract(path, self.describer, detector=self.detector, max_keypoints=self.max_keypoints)
            )
        # Whatever a library says of a strange image is its reason. That the arguments are right was seen before.
        except Exception as error:
            reason = str(error) if isinstance(error, DoapError) else f"{path}: {type(error).__name__}: {error}"
            return FailedImage(name, checksum, " ".join(reason.split()))


@dataclass(frozen=True)
class Describe:
    """The second stage: rows of what was seen in some images.

    Attributes:
        network: describes patches, those of all the images together; None if they are described already.
        extractor: what the rows are made by.
    """

    network: Describer | None
    extractor: Extractor

    def __call__(self, looked: Sequence[Looked]) -> pa.Table:
        """Rows of images in any number, in their order."""
        return rows_table(looked if self.network is None else _described(looked, self.network), self.extractor)


def _described(looked: Sequence[Looked], network: Describer) -> list[Looked]:
    """Images with descriptors in place of patches."""
    seen = [image.features for image in looked if isinstance(image, StoredImage)]
    if not seen:
        return list(looked)
    patches = torch.cat([features.descriptors for features in seen])
    size = network.patch_size
    described = network.describe(patches.view(-1, 1, size, size).float() / 255).cpu()
    of_each = iter(described.split([len(features) for features in seen]))
    return [
        replace(image, features=replace(image.features, descriptors=next(of_each)))
        if isinstance(image, StoredImage)
        else image
        for image in looked
    ]


def begin_process() -> None:
    """For a process that is one of as many as are to be busy: one thread, and memory that is kept for the next images.

    Of a core's time for describing, a quarter went into pages that glibc had given back.
    """
    import cv2

    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    tune_allocator()


def make_stages(
    images: Path,
    descriptor: Describer,
    detector: Detector,
    extractor: Extractor,
    reopen: Callable[[], Describer] | None,
    *,
    network_travels: bool,
) -> tuple[Look, Describe]:
    """Both stages; the first can be sent to other processes, the second too if its network travels."""
    if isinstance(descriptor, ImageDescriber):
        look = Look(images, detector, sendable(descriptor, reopen), extractor.max_keypoints)
        describe = Describe(None, extractor)
    else:
        look = Look(images, detector, Patches(descriptor), extractor.max_keypoints)
        describe = Describe(sendable(descriptor, reopen) if network_travels else descriptor, extractor)
    if not _pickles(detector):
        raise ArgumentError(f"detector: expected one that can be pickled, got {detector.name} that cannot")
    return look, describe


def sendable(describer: Describer, reopen: Callable[[], Describer] | None) -> Describer:
    """The describer, or a stand-in for one that cannot be pickled, which in another process is the describer again.

    Args:
        describer: anybody's.
        reopen: makes it, in any process; not needed for `BASELINES`.
    """
    if _pickles(describer):
        return describer
    peer = BASELINES.get(getattr(describer, "name", ""))
    if reopen is None and peer is not None and fingerprint(peer()) == fingerprint(describer):
        reopen = peer
    if reopen is None or not _pickles(reopen):
        raise ArgumentError(
            f"descriptor: expected one that can be pickled, got a {type(describer).__name__} that cannot; "
            "give reopen=, a function of a module that makes it"
        )
    return cast(Describer, _OnItsWay(reopen))


class _OnItsWay:
    """Arrives in another process as what `make` makes there."""

    def __init__(self, make: Callable[[], Describer]) -> None:
        self._make = make

    def __reduce__(self) -> tuple[Callable[[], Describer], tuple[()]]:
        return self._make, ()


def _pickles(value: Any) -> bool:
    try:
        pickle.dumps(value)
    # Every type has its own way to refuse.
    except Exception:
        return False
    return True
