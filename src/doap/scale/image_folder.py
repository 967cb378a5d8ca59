"""A folder of images and, optionally, a folder of their masks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from doap.errors import DataError
from doap.files import sha256
from doap.images.header import declared_size
from doap.text import counted

# Headers end before this byte, except for unusual files. Those are checked when their pixels are read.
_HEADER_BYTES = 1 << 20


@dataclass(frozen=True)
class ImageFolder:
    """A folder of images and, optionally, a folder of their masks, as in COLMAP.

    The mask of `a/b.jpg` is `a/b.jpg.png` in the folder of masks. It has the size of the image, and keypoints are
    detected where it is not zero. An image without a mask file has no mask.
    """

    images: Path
    masks: Path | None = None

    def __post_init__(self) -> None:
        if self.masks is None:
            return
        if not self.masks.is_dir():
            fault = "is a file" if self.masks.exists() else "does not exist"
            raise DataError(f"{self.masks}: expected a folder of masks, but it {fault}.")
        if self.masks.resolve().is_relative_to(self.images.resolve()):
            raise DataError(
                f"{self.masks}: the folder of masks is inside the folder of images, so masks would count as images. "
                f"Move it out of {self.images}."
            )

    def path(self, name: str) -> Path:
        """Return the file of an image."""
        return self.images / name

    def mask(self, name: str) -> Path | None:
        """Return the mask of an image; None if there is none."""
        path = None if self.masks is None else self.masks / f"{name}.png"
        return path if path is not None and path.is_file() else None

    def checksum(self, name: str) -> str:
        """Return the SHA-256 of an image, or of the checksums of image and mask: it changes if either file changes."""
        image, mask = sha256(self.path(name)), self.mask(name)
        return image if mask is None else hashlib.sha256(f"{image} {sha256(mask)}".encode()).hexdigest()

    def check_masks(self, names: Sequence[str]) -> None:
        """Refuse masks whose headers declare another size than those of their images."""
        sizes = {name: (_size(self.path(name)), _size(mask)) for name in names if (mask := self.mask(name))}
        wrong = {name: (image, mask) for name, (image, mask) in sizes.items() if image and mask and image != mask}
        if wrong:
            name, ((height, width), (mask_height, mask_width)) = next(iter(wrong.items()))
            raise DataError(
                f"{self.mask(name)}: expected the size of {name}, {width} × {height}, got {mask_width} × "
                f"{mask_height}. {counted(len(wrong), 'mask')} of {len(sizes):,} must be resized."
            )


def _size(path: Path) -> tuple[int, int] | None:
    """Return the (height, width) that an image file declares; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return declared_size(file.read(_HEADER_BYTES))
    except OSError:
        return None
