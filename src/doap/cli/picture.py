"""Pictures that verbs write for people to look at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def check_writable(out: Path) -> None:
    """Before the work and not after it."""
    import cv2

    from doap.errors import DataError

    if not out.parent.is_dir():
        raise DataError(f"{out}: expected a file in a folder that exists, got no folder {out.parent}; make it first")
    if not cv2.haveImageWriter(out.name):
        raise DataError(f"{out}: expected a picture such as *.png or *.jpg, got {out.suffix or 'no extension'!r}")


def write_picture(pixels: NDArray[np.uint8], out: Path) -> None:
    """Write a picture, whole or not at all; `check_writable` says beforehand whether it can be."""
    import cv2

    from doap.files import atomic_write

    done, encoded = cv2.imencode(out.suffix, pixels)
    assert done, "a uint8 picture can be encoded"
    with atomic_write(out) as unfinished:
        unfinished.write_bytes(encoded.tobytes())
