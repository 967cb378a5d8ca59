"""Read HDF5 files of unknown origin in a child process, because damaged ones can make HDF5 hang or crash.

Only this module opens files that doap has not just created itself.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from doap.errors import DataError, import_extra
from doap.processes import ChildFault, call_in_child

ATTRIBUTE = "doap"
"""Attribute of a file (its settings) and of a group (its sources), as JSON. hloc ignores it."""

_SIGNATURE = b"\x89"
# Time limit of a child process. Thousands of groups per second are usual, and a group takes more than a kilobyte.
_SECONDS, _BYTES_PER_SECOND = 30.0, 1e6


class Contents(NamedTuple):
    """JSON texts of a file: its settings, None without, and the sources of its groups by name."""

    settings: str | None
    groups: dict[str, str]


@contextmanager
def write_file(path: Path, mode: str) -> Iterator[tuple[Any, Callable[[], None]]]:
    """Create a file (mode `w`) or open one to add to it (`r+`).

    Yields:
        The open file, and a function that raises the first error of the disk. Call it from time to time, because the
        file keeps in memory what does not fit on the disk. It is also called when the file is closed.
    """
    with _Disk(path, mode) as disk:
        with _open(disk, mode) as file:
            yield file, disk.check
        disk.check()


class _Disk(io.RawIOBase):
    """A file that hides a full disk from HDF5: it keeps in memory what the disk does not take.

    HDF5 does not recover from a failed write. It fails again whenever Python frees an object of the file, prints
    tracebacks and may crash.

    While the file is open, the first byte of its signature is missing on the disk. So no program accepts a file that
    was not closed, or not completely written.
    """

    def __init__(self, path: Path, mode: str) -> None:
        self._file = path.open("w+b" if mode == "w" else "r+b", buffering=0)
        self._size, self._position = path.stat().st_size, 0
        self._error: OSError | None = None
        self._kept: list[tuple[int, bytes]] = []
        if self._size:
            self._file.write(b"\0")

    def check(self) -> None:
        """Raise the first error of the disk."""
        if self._error is not None:
            raise self._error

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        start, view = self._position, memoryview(buffer).cast("B")
        self._file.seek(start)
        self._file.readinto(view)
        for offset, data in self._kept:
            first, last = max(start, offset), min(start + len(view), offset + len(data))
            if first < last:
                view[first - start : last - start] = data[first - offset : last - offset]
        if start == 0 and len(view):
            view[0] = _SIGNATURE[0]
        count = max(0, min(len(view), self._size - start))
        self._position += count
        return count

    def write(self, data: Any) -> int:
        content = bytes(data)
        if self._position == 0:
            content = b"\0" + content[1:]
        try:
            self.check()
            self._file.seek(self._position)
            written = 0
            while written < len(content):
                written += self._file.write(content[written:])
        except OSError as error:
            self._error = self._error or error
            self._kept.append((self._position, content))
        self._position += len(content)
        self._size = max(self._size, self._position)
        return len(content)

    def truncate(self, size: int | None = None) -> int:
        self._size = self._position if size is None else size
        try:
            self.check()
            self._file.truncate(self._size)
        except OSError as error:
            self._error = self._error or error
        return self._size

    def close(self) -> None:
        if not self._file.closed:
            with self._file:
                if self._size and self._error is None:
                    self._file.seek(0)
                    self._file.write(_SIGNATURE)
        super().close()


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
        file = _open(path)
    except OSError:
        return None
    with file:
        file.visititems(visit)
        settings = file.attrs.get(ATTRIBUTE)
        return Contents(None if settings is None else str(settings), groups)


def _copy(path: str, out: str, names: list[str]) -> None:
    with _open(path) as source, write_file(Path(out), "w") as (copy, check):
        copy.attrs[ATTRIBUTE] = source.attrs[ATTRIBUTE]
        for name in names:
            source.copy(name, copy, name)
            check()


def _open(file: str | io.RawIOBase, mode: str = "r") -> Any:
    """Open a file with h5py, in the latest layout, as in hloc."""
    return import_extra("h5py", "hloc").File(file, mode, libver="latest")
