"""The files the published sets are made of: headers of images, tables of numbers; and how problems are gathered."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from doap.errors import DataError, DoapError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def attempt(
    problems: list[str], read: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result | None:
    """Call `read`; where it raises an error of ours, note it as a problem instead, so that the next can be found."""
    try:
        return read(*args, **kwargs)
    except DoapError as error:
        problems.append(str(error))
        return None


def need_file(path: Path) -> Path:
    """The path, if a file is there."""
    if not path.is_file():
        raise DataError(f"{path}: expected a file, got nothing there; check that the set is complete")
    return path


def image_size(path: Path) -> tuple[int, int]:
    """(height, width) from the header of a PNG or BMP: sets of a million patches are examined without decoding them."""
    with need_file(path).open("rb") as file:
        header = file.read(26)
    if len(header) == 26 and header.startswith(b"\x89PNG\r\n\x1a\n"):
        width, height = struct.unpack(">II", header[16:24])
    elif len(header) == 26 and header.startswith(b"BM"):
        width, height = struct.unpack("<ii", header[18:26])
    else:
        raise DataError(f"{path}: expected a PNG or BMP image, got a file with another header; fetch it again")
    # A BMP stored top row first has a negative height.
    return abs(height), width


def read_numbers(path: Path, columns: Sequence[int] | None = None) -> NDArray[np.float64]:
    """(rows, columns) of a text file of numbers between spaces; all columns unless some are named."""
    try:
        with warnings.catch_warnings():
            # numpy warns of an empty file; here that is an error, raised below.
            warnings.simplefilter("ignore")
            table = np.loadtxt(need_file(path), usecols=columns, ndmin=2, dtype=np.float64)
    except ValueError as error:
        raise DataError(f"{path}: expected rows of numbers, got others ({error})") from error
    if not table.size:
        raise DataError(f"{path}: expected rows of numbers, got an empty file; fetch it again")
    return table
