"""Pictures written by commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def check_writable(out: Path) -> None:
    """Check before a long computation that its picture can be written."""
    import cv2

    from doap._support.errors import DataError

    if not out.parent.is_dir():
        raise DataError(f"{out}: the folder {out.parent} does not exist. Create it first.")
    # OpenCV crashes if a name is not UTF-8, so it only gets a plain extension.
    if not out.suffix.isascii() or not cv2.haveImageWriter(f"picture{out.suffix}"):
        raise DataError(f"{out}: expected an image file such as *.png or *.jpg, got {out.suffix or 'no extension'!r}.")


def write_picture(pixels: NDArray[np.uint8], out: Path) -> None:
    """Write an image file atomically; call `check_writable` first."""
    import cv2

    from doap._support.files import atomic_write

    encodable, encoded = cv2.imencode(out.suffix, pixels)
    assert encodable, "every uint8 image can be encoded"
    with atomic_write(out) as temporary:
        temporary.write_bytes(encoded.tobytes())
