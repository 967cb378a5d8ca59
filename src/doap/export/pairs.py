"""Which images are matched with which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

from doap.errors import ArgumentError, DataError

Pair = tuple[str, str]
Pairing = Callable[[Sequence[str]], list[Pair]]
"""From the names of all images, in order, to the pairs to match: each once, the earlier name first."""


def exhaustive(names: Sequence[str]) -> list[Pair]:
    """Each with each."""
    return list(combinations(names, 2))


def sequential(overlap: int = 10) -> Pairing:
    """Each with the next `overlap` ones, for the frames of a film or photos taken along a way.

    >>> sequential(2)(["1.jpg", "2.jpg", "3.jpg", "4.jpg"])
    [('1.jpg', '2.jpg'), ('1.jpg', '3.jpg'), ('2.jpg', '3.jpg'), ('2.jpg', '4.jpg'), ('3.jpg', '4.jpg')]
    """
    if overlap < 1:
        raise ArgumentError(f"overlap: expected 1 or more, got {overlap}")

    def pair(names: Sequence[str]) -> list[Pair]:
        return [(name, other) for place, name in enumerate(names) for other in names[place + 1 : place + 1 + overlap]]

    return pair


def listed(file: str | Path) -> Pairing:
    """Those of a text file as COLMAP and hloc write it: two names to a line; empty lines and #-comments are skipped.

    A pair that is there twice, in any order, is matched once. A name that no image has is an error: a list for other
    images would otherwise give an empty database, after a long time.
    """
    file = Path(file)

    def pair(names: Sequence[str]) -> list[Pair]:
        place = {name: number for number, name in enumerate(names)}
        found = set()
        for number, line in enumerate(_lines(file), start=1):
            words = line.split()
            if not words or line.startswith("#"):
                continue
            if len(words) != 2 or words[0] == words[1]:
                raise DataError(f"{file}, line {number}: expected the names of two images, got {line!r}")
            if unknown := [word for word in words if word not in place]:
                raise DataError(
                    f"{file}, line {number}: expected names of images, as paths inside their folder, got {unknown[0]!r}"
                )
            found.add(tuple(sorted(place[word] for word in words)))
        return [(names[first], names[second]) for first, second in sorted(found)]

    return pair


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"{file}: expected a list of pairs of images, got {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: expected a list of pairs of images as text, got other bytes") from error
