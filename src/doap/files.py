"""Files that are whole or not there, folders for them, and what is in them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from doap.errors import DataError


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` to write to; at the end it is on the disk and gets the name, and not before.

    A process killed in between, or an error, leaves what was there before.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_write(Path(folder) / "a.txt") as unfinished:
    ...         _ = unfinished.write_text("all of it")
    ...     (Path(folder) / "a.txt").read_text()
    'all of it'
    """
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        yield unfinished
        # Without this a power cut after the renaming may leave the name with nothing behind it.
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def make_folder(path: Path) -> Path:
    """Make a folder, unless it is there; called before the work that is to be written to it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path}: expected a folder to write to, got {error.strerror}; choose another") from error
    return path


def sha256(path: Path) -> str:
    """The checksum of a file of any size."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{path}: expected a JSON object, got a damaged file; remove or copy the folder again"
        ) from error
