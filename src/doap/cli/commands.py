"""The class of all commands, which refuses values that no command can use."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from doap.cli.terminal import printable

MAX_INTEGER = 2**31 - 1
"""Largest integer of an option without a maximum of its own: OpenCV, COLMAP and faiss count with 32 bits."""
_UNSET = "Expected a value, got an empty text. Is a shell variable unset?"


class CheckedCommand(TyperCommand):
    """A command that refuses empty texts, names that are not UTF-8, and numbers that are not finite or too large.

    Typer takes an empty path for the current folder. Libraries for images, indexes and models take only names in UTF-8;
    some of them crash otherwise.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of the command line, and check the values."""
        words = list(args)
        left: list[str] = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            self._refuse_empty(ctx, words)
            params: list[Any] = list(self.params)
            for param in params:
                given = ctx.params.get(param.name)
                for value in given if isinstance(given, list | tuple) else [given]:
                    if expected := _expectation(value, _maximum(param)):
                        raise typer.BadParameter(
                            f"Expected {expected}, got {printable(str(value))}.", ctx=ctx, param=param
                        )
        return left

    def _refuse_empty(self, ctx: Any, words: list[str]) -> None:
        """Refuse an empty word, and an option that ends with the equals sign."""
        options = {name for param in self.params for name in param.opts}
        for before, word in zip(["", *words], words, strict=False):
            name = before if not word else word[:-1]
            if not word or (word.endswith("=") and name in options):
                hint = name if name in options else "an argument"
                raise typer.BadParameter(_UNSET, ctx=ctx, param_hint=hint)


class CommandGroup(typer.Typer):
    """A group whose commands are checked."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Register a function as a command."""
        return super().command(name, **{"cls": CheckedCommand, **settings})


def _maximum(param: Any) -> float:
    """Return the largest value of an option. Older versions of Typer keep it in the type of the option."""
    own = getattr(param, "max", None) or getattr(getattr(param, "type", None), "max", None)
    return float(own or MAX_INTEGER)


def _expectation(value: object, maximum: float) -> str | None:
    """Return what a value should have been; None if it is possible."""
    if isinstance(value, str | Path):
        try:
            str(value).encode()
        except UnicodeEncodeError:
            return "a name in UTF-8"
    if isinstance(value, float) and not math.isfinite(value):
        return "a finite number"
    if isinstance(value, int) and abs(value) > maximum:
        return f"a number of at most {maximum:.0f}"
    return None
