"""Read image headers and tables of numbers, and collect the problems of a dataset."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import DataError, DoapError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def attempt(
    problems: list[str], read: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result | None:
    """Call `read`, append its `DoapError` to `problems` instead of raising it, and return None then."""
    try:
        return read(*args, **kwargs)
    except DoapError as error:
        problems.append(str(error))
        return None


def need_file(path: Path) -> Path:
    """Return the path if the file exists."""
    if not path.is_file():
        raise DataError(f"{path}: no such file. Check that the dataset is complete.")
    return path


def image_size(path: Path) -> tuple[int, int]:
    """Return (height, width) of a PNG or BMP from its header, without decoding the image."""
    with need_file(path).open("rb") as file:
        header = file.read(26)
    if len(header) == 26 and header.startswith(b"\x89PNG\r\n\x1a\n"):
        width, height = struct.unpack(">II", header[16:24])
    elif len(header) == 26 and header.startswith(b"BM"):
        width, height = struct.unpack("<ii", header[18:26])
    else:
        raise DataError(f"{path}: not a PNG or BMP image. Download it again.")
    # A BMP with the top row first has a negative height.
    return abs(height), width


def read_numbers(path: Path, columns: Sequence[int] | None = None) -> NDArray[np.float64]:
    """Return some or all columns of a text file of numbers as an array (rows, columns)."""
    try:
        with warnings.catch_warnings():
            # numpy warns about an empty file, which is an error below.
            warnings.simplefilter("ignore")
            table = np.loadtxt(need_file(path), usecols=columns, ndmin=2, dtype=np.float64)
    except ValueError as error:
        raise DataError(f"{path}: expected rows of numbers ({error}).") from error
    if not table.size:
        raise DataError(f"{path}: expected rows of numbers, got an empty file. Download it again.")
    return table
