"""Every error doap raises on purpose, and the shape check at the public doors.

    DoapError
    ├── ShapeError      a tensor of the wrong shape        (also a ValueError)
    ├── ArgumentError   a value outside what is allowed    (also a ValueError)
    ├── DataError       a file or folder that is not what it should be
    └── MissingExtra    an optional library is needed      (also an ImportError)

A message names the subject, the rule, the value found, and a way out. The command line prints it as one line and
exits with 1; any other exception is a bug of ours.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Protocol


class DoapError(Exception):
    """Base of every error that doap raises on purpose."""


class ShapeError(DoapError, ValueError):
    """A tensor or array does not have the shape the function needs."""


class ArgumentError(DoapError, ValueError):
    """An argument is outside the values the function allows."""


class DataError(DoapError):
    """A file or folder is missing, damaged, or not what it should be."""


class MissingExtra(DoapError, ImportError):  # noqa: N818 - it reads as what is missing
    """An optional library is needed; `extra` of doap installs it."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"{library}: needed here and not installed; run `pip install 'doap[{extra}]'`")


def import_extra(module: str, extra: str) -> Any:
    """A module of an optional library, or what to install; call it where the library is used, not before."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(module.partition(".")[0], extra) from error


class HasShape(Protocol):
    """Anything with a `shape`: torch tensors, numpy arrays, memory maps."""

    @property
    def shape(self) -> Sequence[int]: ...


def check_shape(value: HasShape, pattern: str, *, name: str) -> dict[str, int]:
    """Check a shape against a pattern of axis letters and fixed sizes; return the sizes of the letters.

    A letter that appears twice must have one size. Called once, at the public door, never in hot code.

    >>> import torch
    >>> check_shape(torch.zeros(4, 1, 32, 32), "B 1 S S", name="patches")
    {'B': 4, 'S': 32}
    >>> check_shape(torch.zeros(4, 32, 32), "B 1 S S", name="patches")
    Traceback (most recent call last):
        ...
    doap.errors.ShapeError: patches: expected (B, 1, S, S), got (4, 32, 32)
    """
    axes = pattern.split()
    shape = tuple(int(size) for size in value.shape)
    sizes: dict[str, int] = {}
    fits = len(axes) == len(shape) and all(
        size == int(axis) if axis.isdigit() else sizes.setdefault(axis, size) == size
        for axis, size in zip(axes, shape, strict=True)
    )
    if not fits:
        raise ShapeError(f"{name}: expected ({', '.join(axes)}), got {shape}")
    return sizes


def check_choice(value: str, allowed: Sequence[str], *, name: str) -> None:
    """Check that a named option is one of those that exist."""
    if value not in allowed:
        raise ArgumentError(f"{name}: expected one of {', '.join(allowed)}, got {value!r}")
