"""Read HDF5 files of unknown origin in a child process, because damaged ones can make HDF5 hang or crash.

Only this module opens files that doap has not just created itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from doap.errors import DataError, import_extra
from doap.processes import ChildFault, call_in_child

ATTRIBUTE = "doap"
"""Attribute of a file (its settings) and of a group (its sources), as JSON. hloc ignores it."""

_FAILED_CLOSE = "Can't decrement id ref count"
# Time limit of a child process. Thousands of groups per second are usual, and a group takes more than a kilobyte.
_SECONDS, _BYTES_PER_SECOND = 30.0, 1e6


class Contents(NamedTuple):
    """JSON texts of a file: its settings, None without, and the sources of its groups by name."""

    settings: str | None
    groups: dict[str, str]


def open_file(path: Path, mode: str) -> Any:
    """Open a file with h5py, in the latest layout, as in hloc; it is the only one that detects unclosed files."""
    return import_extra("h5py", "hloc").File(path, mode, libver="latest")


@contextmanager
def write_file(path: Path, mode: str) -> Iterator[Any]:
    """Open a file to write to it; if that fails, only the exception reports it.

    On a full disk, HDF5 fails again whenever Python frees an object of the file, and Python would print each of these
    errors.
    """
    before = sys.unraisablehook

    def report(failed: sys.UnraisableHookArgs) -> None:
        if _FAILED_CLOSE not in str(failed.exc_value):
            before(failed)

    sys.unraisablehook = report
    with open_file(path, mode) as file:
        yield file
    # After a failure the hook stays, because the objects are freed later.
    sys.unraisablehook = before


def read_contents(path: Path) -> Contents | None:
    """Return the JSON texts of a file; None if it is not HDF5 or was not closed properly."""
    found = _call(_read, path)
    return None if found is None else Contents(*found)


def copy_groups(source: Path, out: Path, names: list[str]) -> None:
    """Create a file with the settings and some of the groups of another one."""
    _call(_copy, source, str(out), names)


def _call(function: Any, path: Path, *arguments: Any) -> Any:
    seconds = _SECONDS + path.stat().st_size / _BYTES_PER_SECOND
    try:
        return call_in_child(function, str(path), *arguments, seconds=seconds)
    except ChildFault as fault:
        raise DataError(f"{path}: damaged ({fault}). Remove it or choose another name.") from fault


def _read(path: str) -> Contents | None:
    groups: dict[str, str] = {}

    def visit(name: str, item: Any) -> None:
        if ATTRIBUTE in item.attrs:
            groups[name] = str(item.attrs[ATTRIBUTE])

    try:
        file = open_file(Path(path), "r")
    except OSError:
        return None
    with file:
        file.visititems(visit)
        settings = file.attrs.get(ATTRIBUTE)
        return Contents(None if settings is None else str(settings), groups)


def _copy(path: str, out: str, names: list[str]) -> None:
    with open_file(Path(path), "r") as source, write_file(Path(out), "w") as copy:
        copy.attrs[ATTRIBUTE] = source.attrs[ATTRIBUTE]
        for name in names:
            source.copy(name, copy, name)
