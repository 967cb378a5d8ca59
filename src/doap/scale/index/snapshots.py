"""Open, create and change an index in a folder or at a URL.

FAISS reads local files. An index at a URL is opened through copies in a cache on this machine, and a change is made in
a temporary folder there and then published.

The folder at the URL has the format of a local index. The names of published files end with a hash of their contents.
So no writer overwrites a file of another one, and a copy with the name and the size of a file has its contents. New
files are uploaded first and `meta.json` last, so readers see the old or the new state. Then the files that are no
longer listed are deleted. A reader that finds a file missing starts again with the next `meta.json`.

Object stores have no locks. A writer compares `meta.json` with the one it started from, immediately before and after it
writes a new one, and fails if another process has changed it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from doap.errors import DataError
from doap.files import OutputLock, atomic_write, beside, make_folder, parse_json, read_json
from doap.scale.index.folder import FILE_NAME, META, check_sizes, format_meta, read_meta, rename_files
from doap.scale.storage import Storage

ALL = ("",)
# An unlisted file that is this much older than meta.json belongs to a process that was killed.
_STALE_NANOSECONDS = 24 * 3600 * 10**9
_LOG = logging.getLogger(__name__)
T = TypeVar("T")


def open_snapshot(
    storage: Storage, open_files: Callable[[Path, dict[str, Any]], T], *, needed: tuple[str, ...] = ALL
) -> T:
    """Return the result of `open_files` for the folder and the metadata of the current state of an index.

    It is called again if a file is missing because a change has taken effect in the meantime. For an index at a URL, it
    gets the folder of the copies, and metadata with their names.

    Args:
        storage: Folder of the index.
        open_files: Opens the files.
        needed: How the names of the files start that it opens. Only these are downloaded from a URL.
    """
    while True:
        meta = read_meta(storage)
        try:
            if storage.local is None:
                return open_files(*_copy_to_cache(storage, meta, needed))
            check_sizes(storage.local, meta)
            return open_files(storage.local, meta)
        except DataError:
            if read_meta(storage) == meta:
                raise


@contextmanager
def change_index(storage: Storage, *, needed: tuple[str, ...] = ALL) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield a folder and the metadata of an index to change. For a URL, publish the change after the block.

    Args:
        storage: Folder of the index.
        needed: As for `open_snapshot`.
    """
    meta = read_meta(storage)
    if storage.local is None:
        with working_folder(storage, meta) as folder:
            for name, identity in meta["files"].items():
                if name.startswith(needed):
                    _link(_download(storage, name, identity), folder / name)
            # The block modifies its metadata; the original is compared with the one at the URL later.
            yield folder, deepcopy(meta)
        return
    with OutputLock(storage.local, inside=True):
        meta = read_meta(storage)
        check_sizes(storage.local, meta)
        yield storage.local, meta


@contextmanager
def working_folder(storage: Storage, before: dict[str, Any] | None) -> Iterator[Path]:
    """Yield an empty folder on this machine. If it gets a `meta.json`, publish the index at the URL of the storage.

    Args:
        storage: Where to publish.
        before: Contents of the `meta.json` that the new one replaces; None if there must not be one.
    """
    _check_current(storage, before)
    cache = _cache_folder(storage)
    with OutputLock(cache):
        folder = beside(cache, "{}.unfinished")
        shutil.rmtree(folder, ignore_errors=True)
        try:
            yield make_folder(folder)
            if (folder / META).exists():
                _publish(storage, folder, before)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def check_objects(storage: Storage) -> None:
    """Read all files of an index and compare them with their checksums."""
    for name, identity in read_meta(storage)["files"].items():
        for _ in _read_checked(storage, name, identity):
            pass


def _publish(storage: Storage, folder: Path, before: dict[str, Any] | None) -> None:
    meta = read_json(folder / META)
    old = before["files"] if before else {}
    names = {name: _content_name(name, meta["files"][name]) for name in meta["files"].keys() - old.keys()}
    published = rename_files(meta, names)
    for name, new in sorted(names.items()):
        _LOG.info("uploading %s", storage.locate(new))
        storage.write(new, pa.memory_map(str(folder / name)).read_buffer())
    _check_current(storage, before)
    storage.write(META, format_meta(published))
    _check_current(storage, published)
    for name, new in names.items():
        (folder / name).replace(_cache_folder(storage) / new)
    try:
        _delete_unlisted(storage, published["files"], old)
    except DataError as error:
        _LOG.warning("%s: the change has taken effect, but old files cannot be deleted: %s", storage, error)


def _check_current(storage: Storage, expected: dict[str, Any] | None) -> None:
    """Raise an error if `meta.json` at a URL is not the expected one."""
    try:
        found = parse_json(storage.read(META), storage.locate(META), "the metadata of an index")
    except FileNotFoundError:
        found = None
    if found == expected:
        return
    if expected is None:
        raise DataError(f"{storage}: already exists. Choose another folder, or add to it with doap index add.")
    raise DataError(f"{storage}: another process has changed the index. Run the same command again.")


def _delete_unlisted(storage: Storage, listed: dict[str, Any], old: dict[str, Any]) -> None:
    """Delete the files of the previous state, and old files that a killed change left behind."""
    written = {file.name: int(file.stamp.rpartition("-")[2]) for file in storage.list()}
    for name in written.keys() - listed.keys():
        # The time of some objects is unknown: pyarrow lists it as 0 for some objects of rclone.
        stale = re.fullmatch(FILE_NAME, name) and 0 < written[name] < written[META] - _STALE_NANOSECONDS
        if name in old or stale:
            storage.delete(name)


def _copy_to_cache(storage: Storage, meta: dict[str, Any], needed: tuple[str, ...]) -> tuple[Path, dict[str, Any]]:
    """Download the needed files that are not in the cache, and delete copies of files that the index no longer has.

    Returns:
        Folder of the copies, and metadata with their names.
    """
    for name, identity in meta["files"].items():
        if name.startswith(needed):
            _download(storage, name, identity)
    names = {name: _content_name(name, identity) for name, identity in meta["files"].items()}
    cache, copied = _cache_folder(storage), rename_files(meta, names)
    for path in cache.iterdir():
        if re.fullmatch(FILE_NAME, path.name) and path.name not in copied["files"]:
            # Windows does not delete a file that a reader has open. A later call does.
            with suppress(OSError):
                path.unlink()
    return cache, copied


def _download(storage: Storage, name: str, identity: dict[str, Any]) -> Path:
    """Return the path of the copy of a file; download it if there is none of this size."""
    path = _cache_folder(storage) / _content_name(name, identity)
    if path.is_file() and path.stat().st_size == identity["bytes"]:
        return path
    _LOG.info("downloading %s", storage.locate(name))
    with atomic_write(path) as unfinished, unfinished.open("wb") as file:
        file.writelines(_read_checked(storage, name, identity))
    return path


def _read_checked(storage: Storage, name: str, identity: dict[str, Any]) -> Iterator[bytes]:
    """Yield the contents of a file; raise an error at the end if its size or checksum is wrong."""
    digest, size, remedy = hashlib.sha256(), 0, "Copy or build the index again."
    try:
        for block in storage.stream(name):
            digest.update(block)
            size += len(block)
            yield block
    except FileNotFoundError as error:
        raise DataError(f"{storage.locate(name)}: missing. {remedy}") from error
    if size != identity["bytes"]:
        raise DataError(f"{storage.locate(name)}: expected {identity['bytes']:,} bytes, got {size:,}. {remedy}")
    if (found := digest.hexdigest()) != identity["sha256"]:
        raise DataError(f"{storage.locate(name)}: expected SHA-256 {identity['sha256']}, got {found}. {remedy}")


def _link(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it where the file system has no hard links."""
    try:
        os.link(source, target)
    except FileNotFoundError as error:
        # A reader on this machine has opened a newer state and deleted the copy.
        raise DataError(f"{source}: another process has changed the index. Run the same command again.") from error
    except OSError:
        shutil.copyfile(source, target)


def _content_name(name: str, identity: dict[str, Any]) -> str:
    """Return the name of a file with a hash of its contents, such as `trained-5d41402abc4b2a76.faiss`."""
    stem, _, suffix = name.partition(".")
    digest = identity["sha256"][:16]
    return name if stem.endswith(f"-{digest}") else f"{stem}-{digest}.{suffix}"


def _cache_folder(storage: Storage) -> Path:
    """Create and return the folder for the copies of the files of an index."""
    root = os.environ.get("DOAP_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "doap"
    url = str(storage)
    digest = hashlib.sha256(url.encode()).hexdigest()[:16]
    return make_folder(Path(root) / "indexes" / f"{url.rpartition('/')[2]}-{digest}")
