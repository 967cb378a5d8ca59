"""Output of the commands: text that is safe to print, JSON, and pictures."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# C0 and C1 control characters except tab and newline, and the surrogates of file names that are not UTF-8.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Escape characters that a terminal would interpret or that it cannot show.

    >>> print(printable("a\x1b[31m.jpg"))
    a\x1b[31m.jpg
    """
    return _UNSAFE.sub(lambda found: repr(found[0])[1:-1], text)


def echo(text: str = "", *, err: bool = False) -> None:
    """Print a line on stdout or stderr, without control characters."""
    typer.echo(printable(text), err=err)


def echo_json(values: object) -> None:
    """Print a result as one JSON object: dataclasses as objects, paths as text."""
    echo(json.dumps(values, default=_as_plain))


def _as_plain(value: Any) -> Any:
    return vars(value) if dataclasses.is_dataclass(value) else str(value)


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
