"""Output of the commands: text from files and file names is made safe to print."""

from __future__ import annotations

import re

import typer

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
