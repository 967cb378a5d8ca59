"""Atomic files, folders, checksums and JSON."""

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
    """Yield a temporary path; fsync and rename it to `path` on success.

    If the block raises or the process is killed, an existing file at `path` stays as it was.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_write(Path(folder) / "a.txt") as unfinished:
    ...         _ = unfinished.write_text("complete")
    ...     (Path(folder) / "a.txt").read_text()
    'complete'
    """
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        yield unfinished
        # Without fsync, a power failure after the renaming may leave an empty file.
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def make_folder(path: Path) -> Path:
    """Create a folder if it does not exist. Call this before the work whose results it will hold."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path}: expected a folder to write to, got {error.strerror}. Choose another.") from error
    return path


def sha256(path: Path) -> str:
    """Return the SHA-256 checksum of a file of any size."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{path}: expected a JSON object, got a damaged file. Remove the folder or copy it again."
        ) from error
