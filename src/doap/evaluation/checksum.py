"""One checksum of the files that the figures of a benchmark depend on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from doap.files import sha256


def checksum(files: Iterable[Path]) -> str:
    """Of the contents of files, in this order; where they lie and what they are called does not matter."""
    return hashlib.sha256("\n".join(map(sha256, files)).encode()).hexdigest()
