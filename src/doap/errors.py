"""The exceptions that doap raises on purpose.

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
from typing import Any


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
