"""A checksum of the files that a benchmark depends on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from doap._support.files import sha256


def checksum(files: Iterable[Path]) -> str:
    """Return a checksum of the contents of files in the given order; their names and folders do not matter."""
    return hashlib.sha256("\n".join(map(sha256, files)).encode()).hexdigest()
