"""Text for messages and tables."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, in the plural unless the number is 1.

    >>> counted(1, "image"), counted(1200, "image pair"), counted(0, "match")
    ('1 image', '1,200 image pairs', '0 matches')
    """
    ending = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}{ending}"
