"""A folder of images and, optionally, a folder of their masks; on this machine or in an object store."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import DataError
from doap.collection.storage import LocalFolder, Storage, open_storage
from doap.images.read import check_names, decode_colour, decode_grey, decode_mask, is_image

# A changed image with the same size and time is not extracted again.
_CHANGED = (
    "the image or its mask changed after its features were extracted. Run the same command again. If that does not "
    "help, delete the folder of features first."
)


class Contents(NamedTuple):
    """The contents of an image file and of its mask, as they were when they were read.

    Attributes:
        image, mask: Contents; the mask is None if there is none.
        checksum: SHA-256 of the image, or of the checksums of image and mask: it changes if either file changes.
    """

    image: bytes
    mask: bytes | None
    checksum: str


@dataclass(frozen=True)
class ImageFolder:
    """A folder of images and, optionally, a folder of their masks, as in COLMAP.

    The mask of `a/b.jpg` is `a/b.jpg.png` in the folder of masks. It has the size of the image, and keypoints are
    detected where it is not zero. An image without a mask file has no mask.
    """

    images: Storage
    masks: Storage | None = None

    @classmethod
    def open(cls, images: str | Path, masks: str | Path | None = None) -> ImageFolder:
        """Open folders given by paths or URLs."""
        return cls(_open(images), None if masks is None else _open(masks))

    def __post_init__(self) -> None:
        if self.masks is None:
            return
        folder, images = self.masks.local, self.images.local
        if folder and not folder.is_dir():
            fault = "is a file" if folder.exists() else "does not exist"
            raise DataError(f"{folder}: expected a folder of masks, but it {fault}.")
        if folder and images and folder.resolve().is_relative_to(images.resolve()):
            raise DataError(
                f"{folder}: the folder of masks is inside the folder of images, so masks would count as images. "
                f"Move it out of {images}."
            )

    def locate(self, name: str) -> str:
        """Return the path or URL of an image."""
        return self.images.locate(name)

    def list(self) -> dict[str, str]:
        """Return the sorted names of all images, and their stamps: that of the file, and that of its mask if any."""
        local = self.images.local
        if local and not local.is_dir():
            fault = "is a file" if local.exists() else "does not exist"
            raise DataError(f"{local}: expected a folder of images, but it {fault}.")
        found = dict(file for file in self.images.list() if file.stamp and is_image(file.name))
        masks = {} if self.masks is None else dict(self.masks.list())
        pairs = ((name, masks.get(f"{name}.png")) for name in check_names(found, str(self.images)))
        return {name: found[name] if not mask else f"{found[name]} {mask}" for name, mask in pairs}

    def count_masks(self, stamps: Iterable[str]) -> int | None:
        """Return how many images have a mask, given the stamps of `list`; None without a folder of masks."""
        return None if self.masks is None else sum(" " in stamp for stamp in stamps)

    def read(self, name: str) -> Contents:
        """Read an image and its mask, once."""
        image = self.images.read(name)
        checksum, mask = hashlib.sha256(image).hexdigest(), None
        if self.masks is not None:
            try:
                mask = self.masks.read(f"{name}.png")
            except FileNotFoundError:
                return Contents(image, None, checksum)
            both = f"{checksum} {hashlib.sha256(mask).hexdigest()}"
            checksum = hashlib.sha256(both.encode()).hexdigest()
        return Contents(image, mask, checksum)

    def checksum(self, name: str) -> str:
        """Return the checksum of `read`, or "" if the image or its mask cannot be read."""
        try:
            return self.read(name).checksum
        except OSError:
            return ""

    def decode(self, name: str, contents: Contents) -> tuple[NDArray[np.uint8], NDArray[np.uint8] | None]:
        """Return the grey pixels (H, W) of an image, and its mask (H, W) or None."""
        grey = decode_grey(contents.image, self.locate(name))
        if self.masks is None or contents.mask is None:
            return grey, None
        return grey, decode_mask(contents.mask, self.masks.locate(f"{name}.png"), grey.shape)

    def read_colour(self, name: str, checksum: str) -> NDArray[np.uint8]:
        """Read an image in colour, (H, W, 3) as blue, green, red; refuse it if it no longer has this checksum."""
        path = self.locate(name)
        try:
            contents = self.read(name)
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}. Check the path.") from error
        if contents.checksum != checksum:
            raise DataError(f"{path}: {_CHANGED}")
        return decode_colour(contents.image, path)

    def check_unchanged(self, listing: Mapping[str, str]) -> None:
        """Refuse images whose stamps, or those of their masks, are no longer those of a listing."""
        current = self.list()
        if changed := next((name for name, stamp in listing.items() if current.get(name) != stamp), None):
            raise DataError(f"{self.locate(changed)}: {_CHANGED}")


def _open(folder: str | Path) -> Storage:
    storage: Storage = open_storage(folder)
    # Other processes may have another working directory.
    if storage.local is not None:
        storage = LocalFolder(storage.local.absolute())
    return storage
