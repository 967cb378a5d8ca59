"""Atomic files, locks of outputs, folders, checksums and JSON."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import logging
import math
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from types import TracebackType
from typing import Any

from doap._support.errors import DataError, DoapError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK = "_doap.lock"
"""Name of the lock file inside a folder that a process is writing to. Parquet readers skip names with `_`."""

_logger = logging.getLogger(__name__)
# A temporary file that is this much older than the finished one belongs to a process that was killed.
_STALE_SECONDS = 24 * 3600
_DISK_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ENOTDIR}
)
_PROBE_BYTES = 1 << 16
# Windows locks bytes against reading too: lock one far behind the text.
_LOCKED_BYTE = 1 << 20


def beside(path: Path, name: str) -> Path:
    """Return a path in the folder of a file or folder; `{}` in the name is replaced by the name of that file or folder.

    >>> beside(Path("features.h5"), "{}.unfinished").name
    'features.h5.unfinished'

    Raises:
        DataError: If the path is the root of a file system, which is in no folder.
    """
    named = path if path.name not in ("", "..") else path.resolve()
    if not named.name:
        raise DataError(f"{path}: expected a file or folder to write, got the root of a file system. Choose another.")
    return named.with_name(name.format(named.name))


def check_inside(name: str, source: object) -> None:
    """Refuse the name of an image, read from the file `source`, that leads out of the folder of images.

    >>> check_inside("a/b.jpg", "pairs.txt")
    >>> check_inside("../b.jpg", "pairs.txt")
    Traceback (most recent call last):
        ...
    doap._support.errors.DataError: pairs.txt: expected names of images inside their folder, got '../b.jpg'. Remove it.
    """
    path = PurePath(name)
    if path.anchor or ".." in path.parts:
        raise DataError(f"{source}: expected names of images inside their folder, got {name!r}. Remove it.")


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path; fsync and rename it to `path` on success.

    If the block raises or the process is killed, an existing file at `path` stays as it was. The temporary name is
    unique, so two processes that write the same file do not mix their contents.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_write(Path(folder) / "a.txt") as unfinished:
    ...         _ = unfinished.write_text("complete")
    ...     (Path(folder) / "a.txt").read_text()
    'complete'
    """
    # Renaming would replace a device such as /dev/null by a file, if the user may do that.
    if path.exists() and not path.is_file():
        raise DataError(f"{path}: expected a file to write, got a folder or a device. Choose another output.")
    # The underscore hides it from programs that read a folder of Parquet files.
    unfinished = beside(path, f"_{{}}.{os.getpid()}-{secrets.token_hex(4)}.unfinished")
    try:
        yield unfinished
        # Without fsync, a power failure after the renaming may leave an empty file.
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
        # The time of the file system, which is the same for all machines that share it.
        _remove_temporary(path.parent, path.name, older_than=path.stat().st_mtime - _STALE_SECONDS)
    except BaseException as error:
        # A full disk is no longer full once the temporary file is removed.
        fault = _write_fault(path, error)
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        if fault:
            raise fault from error
        raise


def _write_fault(path: Path, error: BaseException) -> DataError | None:
    """Return a clear error if writing an output failed because of the disk; None if there is another cause.

    Libraries report a full disk in many ways, such as a RuntimeError of C++. A small file shows whether it was the
    cause.
    """
    if isinstance(error, DoapError) or not isinstance(error, Exception):
        return None
    reason = None
    if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
        elsewhere = error.filename is not None and path.parent not in Path(os.fsdecode(error.filename)).parents
        reason = None if elsewhere else os.strerror(error.errno)
    if reason is None:
        reason = _probe(path.parent)
    remedy = "Free some space, check the permissions, or choose another output."
    return DataError(f"{path}: cannot be written: {reason}. {remedy}") if reason else None


def _probe(folder: Path) -> str | None:
    """Write a small file and remove it again; return the reason if that fails."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.strerror
    return None


def _remove_temporary(folder: Path, name: str | None = None, older_than: float = math.inf) -> None:
    """Remove temporary files of `atomic_write`, of one file or of all files of a folder."""
    for path in folder.glob(f"{'*' if name is None else '_' + glob.escape(name)}.*-*.unfinished"):
        with suppress(OSError):
            if path.stat().st_mtime < older_than:
                path.unlink()


class OutputLock:
    """Exclusive right to write an output, for all processes and threads: at most one holds it at a time.

    The system releases the lock when its process ends, even if it is killed. A lock file that was left behind does not
    block anything. The owner of the lock removes temporary files that killed processes left behind.

        with OutputLock(out):
            ...

    Args:
        path: File or folder to write. Its parent folder must exist.
        inside: Put the lock file into the existing folder `path` instead of beside it, because only the folder itself
            may be writable.
        wait: Wait until another process releases the lock.

    Raises:
        DataError: If another process or thread holds the lock, without `wait`, or if the block fails because the disk
            is full or the folder read-only.
    """

    def __init__(self, path: Path, *, inside: bool = False, wait: bool = False) -> None:
        self.path, self._wait, real = path, wait, path.resolve()
        self._file = real / LOCK if inside else beside(real, "{}.lock")
        self._descriptor: int | None = None
        while self._descriptor is None:
            self._descriptor = self._acquire()
        _remove_temporary(self._file.parent, None if inside else real.name)

    def release(self) -> None:
        """Remove the lock file and release the lock; a second call has no effect."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        _held.discard(descriptor)
        # Windows does not remove an open file. The next owner uses it again.
        with suppress(OSError):
            self._file.unlink()
        os.close(descriptor)

    def __enter__(self) -> OutputLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fault = error and _write_fault(self.path, error)
        self.release()
        if fault:
            raise fault from error

    def __del__(self) -> None:
        if getattr(self, "_descriptor", None) is not None:
            self.release()

    def _acquire(self) -> int | None:
        """Lock the file; return None if its owner has removed it in the meantime."""
        try:
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be written: {error.strerror}. Choose another output.") from error
        try:
            self._lock(descriptor)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), self._file.stat()):
                    os.ftruncate(descriptor, 0)
                    os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
                    _held.add(descriptor)
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None

    def _lock(self, descriptor: int) -> None:
        try:
            if sys.platform == "win32":
                os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
                msvcrt.locking(descriptor, msvcrt.LK_LOCK if self._wait else msvcrt.LK_NBLCK, 1)
                os.lseek(descriptor, 0, os.SEEK_SET)
            else:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if self._wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
                # Some network file systems have no locks.
                _logger.warning("%s: cannot be locked: %s. Start one process at a time.", self.path, error.strerror)
                return
            owner = os.read(descriptor, 200).decode(errors="replace").strip()
            raise DataError(
                f"{self.path}: {owner or 'another process'} is writing to it. Wait for it, or choose another output."
            ) from error


_held: set[int] = set()


def _forget_locks() -> None:
    """Close inherited locks in a forked process, which would otherwise hold them after its parent is killed."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_locks)


def make_folder(path: Path) -> Path:
    """Create a folder if it does not exist. Call this before the work whose results it will hold."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path}: expected a folder to write to, got {error.strerror}. Choose another.") from error
    return path


@contextmanager
def new_folder(out: Path, remedy: str) -> Iterator[Path]:
    """Lock `out`, which must not exist, and yield a temporary folder; rename it to `out` on success.

    >>> with tempfile.TemporaryDirectory() as parent:
    ...     with new_folder(Path(parent) / "new", "Choose another one.") as unfinished:
    ...         _ = (unfinished / "a.txt").write_text("complete")
    ...     (Path(parent) / "new" / "a.txt").read_text()
    'complete'

    Args:
        out: Folder to create.
        remedy: End of the message if it exists.
    """
    with OutputLock(make_folder(out.parent) / out.name):
        if out.exists():
            raise DataError(f"{out}: already exists. {remedy}")
        unfinished = beside(out, "{}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            yield make_folder(unfinished)
        except Exception:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        unfinished.rename(out)


def sha256(path: Path) -> str:
    """Return the SHA-256 checksum of a file of any size."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def read_json(path: Path, what: str = "a JSON object") -> dict[str, Any]:
    """Read the object in a JSON file; `what` is its content, for messages."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}.") from error
    return parse_json(content, str(path), what)


def parse_json(content: bytes, path: str, what: str) -> dict[str, Any]:
    """Return the object in the contents of a JSON file; `path` and `what` are its name and content, for messages."""
    try:
        parsed = json.loads(content.decode("utf-8"))
    # Deeply nested lists exceed the recursion limit of Python.
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: expected {what}, got a damaged file ({error}). Copy or create it again.") from error
    if not isinstance(parsed, dict):
        raise DataError(f"{path}: expected {what}, got a {type(parsed).__name__}.")
    return parsed
