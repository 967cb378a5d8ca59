"""Exceptions that doap raises intentionally.

    DoapError
    ├── ShapeError      wrong shape of a tensor or array     (also a ValueError)
    ├── ArgumentError   invalid value of an argument         (also a ValueError)
    ├── DataError       missing, damaged or unexpected file or folder
    └── MissingExtra    optional library not installed       (also an ImportError)

A message states the subject, the expectation, the value and a remedy. The command line prints it as
one line and exits with 1. Any other exception is a bug in doap.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

_OUT_OF_MEMORY = re.compile(
    r"can(no|')t allocate|(not enough|insufficient|out of) memory|bad_alloc|unable to allocate|failed to map segment|"
    r"can't start new thread",
    re.IGNORECASE,
)
# A process that has come this close to its limit may have failed because of it.
_MARGIN_BYTES = 64 << 20


class DoapError(Exception):
    """Base class of all errors that doap raises intentionally.

    >>> import doap
    >>> try:
    ...     doap.load("no-such-descriptor")
    ... except doap.DoapError as error:
    ...     print(str(error).partition(":")[0])
    descriptor
    """


class ShapeError(DoapError, ValueError):
    """A tensor or array has the wrong shape.

    >>> import doap
    >>> issubclass(doap.ShapeError, ValueError)
    True
    """


class ArgumentError(DoapError, ValueError):
    """An argument has an invalid value.

    >>> import doap
    >>> issubclass(doap.ArgumentError, ValueError)
    True
    """


class DataError(DoapError):
    """A file or folder is missing, damaged or of the wrong kind.

    >>> import doap
    >>> issubclass(doap.DataError, doap.DoapError)
    True
    """


class MissingExtra(DoapError, ImportError):  # noqa: N818 - named after what is missing
    """An optional library is not installed.

    >>> import doap
    >>> str(doap.MissingExtra("faiss", "index"))
    "faiss is not installed. Run `pip install 'doap[index]'`."

    Args:
        library: Name of the library.
        extra: Extra of doap that installs it.
        install: Arguments of `pip install`, for a library that no extra installs.
    """

    def __init__(self, library: str, extra: str = "", *, install: str = "") -> None:
        arguments = install or f"'doap[{extra}]'"
        super().__init__(f"{library} is not installed. Run `pip install {arguments}`.")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception, or one that caused it, reports that memory could not be allocated.

    Only Python has an exception for it. Libraries in C++ and the loader of shared libraries have messages, and some
    libraries fail in other ways after this process has reached its limit. An error that doap raises intentionally needs
    both, because a damaged length in a file can request any amount of memory.

    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    True
    """
    # The causes of an error that a library keeps and raises again are a circle.
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) and cause not in chain:
        chain.append(cause)
    reported = any(isinstance(one, MemoryError) or _OUT_OF_MEMORY.search(str(one)) for one in chain)
    if isinstance(error, DoapError):
        return reported and _was_near_limit()
    return reported or _was_near_limit()


def _was_near_limit() -> bool:
    """Return whether this process has come close to its memory limit (`ulimit -v`); most may be free again."""
    if not sys.platform.startswith("linux"):
        return False
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    peak = re.search(r"^VmPeak:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"), re.MULTILINE)
    return limit != resource.RLIM_INFINITY and peak is not None and 1024 * int(peak[1]) > limit - _MARGIN_BYTES


def import_extra(module: str, extra: str) -> Any:
    """Import a module of an optional library where it is used, or raise `MissingExtra`."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        # Too little memory to load a library does not mean that it is missing.
        if is_out_of_memory(error):
            raise
        raise MissingExtra(module.partition(".")[0], extra) from error


def import_pycolmap() -> Any:
    """Import pycolmap and silence its log."""
    pycolmap = import_extra("pycolmap", "colmap")
    pycolmap.logging.minloglevel = pycolmap.logging.FATAL.value
    return pycolmap
