"""Read and write HDF5 files in a child process, because damaged files and full disks can make HDF5 hang or crash.

HDF5 refuses a file that was not closed after writing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import DataError, import_extra
from doap._support.processes import ChildFault, call_in_child

ATTRIBUTE = "doap"
"""Attribute of a file (its settings) and of a group (its sources), as JSON. hloc ignores it."""

_PROBE_BYTES = 1 << 16


class Group(NamedTuple):
    """Arrays of a group, with the checksums (for a pair also the names) of its images as `sources`."""

    name: str
    arrays: dict[str, NDArray[Any]]
    sources: list[str]


class Contents(NamedTuple):
    """JSON texts of a file: its settings, None without, and the sources of its groups by name."""

    settings: str | None
    groups: dict[str, str]


def read_contents(path: Path) -> Contents | None:
    """Return the JSON texts of a file; None if it is not HDF5 or was not closed properly."""
    try:
        found = call_in_child(read_texts, str(path), size=path.stat().st_size)
    except ChildFault as fault:
        raise DataError(f"{path}: damaged ({fault}). Remove it or choose another name.") from fault
    return None if found is None else Contents(*found)


def copy_groups(source: Path, path: Path, names: list[str]) -> None:
    """Create a file with the settings and some of the groups of another one."""
    _write(path, copy, str(source), names, size=source.stat().st_size)


def add_groups(path: Path, groups: Iterable[Group], settings: dict[str, Any] | None = None) -> None:
    """Add groups to a file, a new one if its settings are given. After each group, the file is complete."""
    _write(path, add, settings, list(groups), size=1 << 30)


def _write(path: Path, function: Any, *arguments: Any, **options: Any) -> None:
    try:
        call_in_child(function, str(path), *arguments, **options)
    except ChildFault as fault:
        # If the disk is full, it has no space for more either.
        with path.open("ab") as file:
            file.write(bytes(_PROBE_BYTES))
        raise DataError(f"{path}: HDF5 cannot write it ({fault}). Remove it or choose another name.") from fault


# The functions below run in a child process.


def read_texts(path: str) -> Contents | None:
    """Read the JSON texts of a file."""
    groups: dict[str, str] = {}

    def visit(name: str, item: Any) -> None:
        if ATTRIBUTE in item.attrs:
            groups[name] = str(item.attrs[ATTRIBUTE])

    try:
        file = _open(path)
    except OSError:
        return None
    with file:
        file.visititems(visit)
        settings = file.attrs.get(ATTRIBUTE)
        return Contents(None if settings is None else str(settings), groups)


def copy(path: str, source: str, names: list[str]) -> None:
    """Create a file with groups of another one."""
    with _open(source) as original, _open(path, "w") as file:
        file.attrs[ATTRIBUTE] = original.attrs[ATTRIBUTE]
        for name in names:
            original.copy(name, file, name)


def add(path: str, settings: dict[str, Any] | None, groups: Iterator[Group]) -> None:
    """Add groups; each is linked last, so that a group with a name is complete."""
    if settings is not None:
        with _open(path, "w") as file:
            file.attrs[ATTRIBUTE] = json.dumps(settings, sort_keys=True)
    for name, arrays, sources in groups:
        with _open(path, "r+") as file:
            group = file.create_group(None)
            for key, values in arrays.items():
                group.create_dataset(key, data=np.ascontiguousarray(values))
            group.attrs[ATTRIBUTE] = json.dumps(sources)
            file[name] = group


def _open(file: str, mode: str = "r") -> Any:
    """Open a file with h5py, in the latest layout, as in hloc."""
    return import_extra("h5py", "hloc").File(file, mode, libver="latest")
