"""Pairs of images to match."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from doap._support.errors import ArgumentError, DataError

NamePair = tuple[str, str]
Pairs = str | Path | Sequence[NamePair]
"""`exhaustive`, `sequential`, a file with one pair of names per line, or a sequence of pairs."""


def resolve_pairs(pairs: Pairs, names: Sequence[str], overlap: int = 10) -> list[NamePair]:
    """Return the pairs of images to match, without duplicates, in the order of their names.

    >>> resolve_pairs("sequential", ["1.jpg", "2.jpg", "3.jpg", "4.jpg"], overlap=2)
    [('1.jpg', '2.jpg'), ('1.jpg', '3.jpg'), ('2.jpg', '3.jpg'), ('2.jpg', '4.jpg'), ('3.jpg', '4.jpg')]

    Args:
        pairs: `exhaustive` for all pairs; `sequential` for each image with the next `overlap` images, as in a video; a
            text file as COLMAP and hloc write it, with two names per line, where empty lines and #-comments are
            skipped; or pairs of names. A name that no image has is an error.
        names: Names of all images, sorted.
        overlap: See `pairs`.
    """
    if overlap < 1:
        raise ArgumentError(f"overlap: expected 1 or more, got {overlap}.")
    if isinstance(pairs, str) and pairs == "exhaustive":
        return list(combinations(names, 2))
    if isinstance(pairs, str) and pairs == "sequential":
        return [(name, other) for index, name in enumerate(names) for other in names[index + 1 : index + 1 + overlap]]
    listed = _read_lines(Path(pairs)) if isinstance(pairs, str | Path) else [("pairs", pair) for pair in pairs]
    known = set(names)
    found = set()
    for where, pair in listed:
        if len(pair) != 2 or pair[0] == pair[1]:
            raise DataError(f"{where}: expected the names of two images, got {' '.join(pair)!r}.")
        if unknown := [name for name in pair if name not in known]:
            raise DataError(f"{where}: no image is named {unknown[0]!r}. Names are paths inside the folder of images.")
        found.add((min(pair), max(pair)))
    return sorted(found)


def _read_lines(file: Path) -> list[tuple[str, Sequence[str]]]:
    """Return the position and the words of each line that is neither empty nor a comment."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"{file}: cannot read the list of image pairs: {error.strerror}. Check the path.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: expected a list of image pairs as UTF-8 text, got other bytes.") from error
    listed: list[tuple[str, Sequence[str]]] = [
        (f"{file}, line {number}", line.split())
        for number, line in enumerate(lines, start=1)
        if line.strip() and not line.startswith("#")
    ]
    if not listed:
        raise DataError(f"{file}: expected pairs of images, got none. Lines that start with # are comments.")
    return listed
