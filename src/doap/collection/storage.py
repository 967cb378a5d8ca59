"""Folders on this machine and in object stores (`s3://`, `gs://`), behind one small interface.

Object stores are accessed through pyarrow. Credentials come from the environment and the usual configuration files,
never from a URL. A request that fails because of the network or the server is repeated with increasing delays, so that
a restarted server does not end a run.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
import pyarrow.fs

from doap._support.errors import ArgumentError, DataError
from doap._support.files import OutputLock, atomic_write, make_folder
from doap.images.read import walk_files

SCHEMES = ("s3", "gs", "file")
BLOCK = 16 << 20
"""Bytes that `stream` reads at a time."""
DELAYS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds between the attempts of a request to an object store."""

# Parameters of pyarrow's file systems that a URL must not have.
_SECRETS = {"access_key", "secret_key", "session_token", "access_token"}
_LOG = logging.getLogger(__name__)
_Result = TypeVar("_Result")
# Errors that another attempt would repeat.
_PERMANENT = re.compile(
    "ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE_DOES_NOT_MATCH|ExpiredToken|UNAUTHENTICATED|PERMISSION_DENIED"
    "|INVALID_CLIENT_TOKEN|UNRECOGNIZED_CLIENT|NO_SUCH_BUCKET|Bucket .* not found|bucket does not exist"
    "|HTTP status 40[13]|No credentials",
    re.IGNORECASE,
)
_REASONS = {
    "NO_SUCH_BUCKET|bucket does not exist|Bucket .* not found": "there is no such bucket",
    "ExpiredToken": "the credentials have expired. Renew them and run the same command again",
    _PERMANENT.pattern: "access denied. Check the credentials, for example AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "NETWORK_CONNECTION|curlCode": "no connection to the server. Run the same command again when it is available",
}


class StoredFile(NamedTuple):
    """A file of a folder.

    Attributes:
        name: Path inside the folder, with slashes.
        stamp: Size and modification time. A file with the same stamp is assumed to have the same contents. Empty if it
            is not a file, but a device for example.
    """

    name: str
    stamp: str


class Storage(Protocol):
    """A folder of files. Names are relative paths with slashes. Storages can be pickled."""

    @property
    def local(self) -> Path | None:
        """The folder, if it is on this machine."""

    def __str__(self) -> str: ...

    def locate(self, name: str) -> str:
        """Return the path or URL of a file, for messages."""

    def list(self) -> Iterator[StoredFile]:
        """Yield all files of the folder and its subfolders, in any order; none if it does not exist."""

    def exists(self, name: str) -> bool:
        """Return whether there is a file."""

    def read(self, name: str) -> bytes:
        """Read a file."""

    def open(self, name: str) -> Any:
        """Open a file for random access, as a file of pyarrow."""

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield the contents of a file of any size in blocks."""

    def write(self, name: str, content: pa.Buffer | bytes) -> None:
        """Write a file: it appears when it is complete."""

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""

    def lock(self) -> AbstractContextManager[object]:
        """Return the exclusive right to write to the folder, as a context manager."""

    def subfolder(self, name: str) -> Storage:
        """Return a folder inside this one."""


def open_storage(where: str | Path) -> Storage:
    """Open a folder given by a path or a URL.

    >>> str(open_storage("photos/"))
    'photos'
    >>> str(open_storage("file:///archive/photos"))
    '/archive/photos'
    """
    text = str(where)
    scheme, separator, _ = text.partition("://")
    if isinstance(where, Path) or not separator:
        return LocalFolder(Path(where))
    if scheme == "file":
        return LocalFolder(Path(unquote(urlsplit(text).path)))
    if scheme not in SCHEMES:
        raise ArgumentError(f"{_redact(text)}: expected a folder or a URL with s3://, gs:// or file://.")
    if "@" in urlsplit(text).netloc or _SECRETS & dict(parse_qsl(urlsplit(text).query)).keys():
        raise ArgumentError(
            f"{_redact(text)}: expected a URL without credentials. Set them in the environment, for example "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    return ObjectStore(text)


@dataclass(frozen=True)
class LocalFolder:
    """A folder on this machine."""

    folder: Path

    @property
    def local(self) -> Path:
        """The folder."""
        return self.folder

    def __str__(self) -> str:
        return str(self.folder)

    def locate(self, name: str) -> str:
        """Return the path of a file."""
        return str(self.folder / name)

    def list(self) -> Iterator[StoredFile]:
        """Yield all files of the folder and its subfolders; links to folders are followed."""
        for name in walk_files(self.folder):
            yield StoredFile(name, self._stamp(name))

    def exists(self, name: str) -> bool:
        """Return whether there is a file."""
        return (self.folder / name).is_file()

    def _stamp(self, name: str) -> str:
        try:
            found = (self.folder / name).stat()
        # The reason is reported when the file is read, such as a link without a target.
        except OSError:
            return "0-0"
        return f"{found.st_size}-{found.st_mtime_ns}" if stat.S_ISREG(found.st_mode) else ""

    def read(self, name: str) -> bytes:
        """Read a file."""
        path = self.folder / name
        try:
            return path.read_bytes()
        except FileNotFoundError:
            # Not a missing file: a mask may be missing.
            if path.is_symlink():
                raise OSError(f"{path} is a link without a target") from None
            raise

    def open(self, name: str) -> Any:
        """Open a file for random access."""
        return pa.OSFile(str(self.folder / name))

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield the contents of a file in blocks."""
        with (self.folder / name).open("rb") as file:
            while block := file.read(BLOCK):
                yield block

    def write(self, name: str, content: pa.Buffer | bytes) -> None:
        """Write a file atomically."""
        with atomic_write(self.folder / name) as unfinished:
            unfinished.write_bytes(content)

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        (self.folder / name).unlink(missing_ok=True)

    def lock(self) -> AbstractContextManager[object]:
        """Create the folder and lock it."""
        return OutputLock(make_folder(self.folder), inside=True)

    def subfolder(self, name: str) -> LocalFolder:
        """Return a folder inside this one."""
        return LocalFolder(self.folder / name)


class ObjectStore:
    """A folder in an object store.

    Objects appear when they are complete, so writing is atomic. There are no locks. Two runs that write to the same
    folder at the same time do not damage it, but do their work twice.
    """

    local: Path | None = None

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        path, _, query = rest.partition("?")
        self._url = url
        self._shown = f"{scheme}://{path.strip('/')}"
        # The path of the file system starts with the bucket.
        self._root = path.strip("/")
        bucket = PurePosixPath(self._root).parts[:1]
        if not bucket:
            raise ArgumentError(f"{url}: expected a bucket after {scheme}://.")
        settings = dict(parse_qsl(query))
        connect = partial(_open_s3, bucket[0]) if scheme == "s3" else _open_gcs
        self._filesystem = self._connect(partial(connect, **settings))

    def __reduce__(self) -> tuple[type[ObjectStore], tuple[str]]:
        # Another process or machine connects with credentials of its own.
        return ObjectStore, (self._url,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectStore) and self._url == other._url

    def __hash__(self) -> int:
        return hash(self._url)

    def __str__(self) -> str:
        return self._shown

    def locate(self, name: str) -> str:
        """Return the URL of an object, without the parameters of the connection."""
        return f"{self._shown}/{name}"

    def list(self) -> Iterator[StoredFile]:
        """Yield all objects below the folder."""
        selector = pyarrow.fs.FileSelector(self._root, recursive=True, allow_not_found=True)
        for found in self._repeat(self._shown, lambda: self._filesystem.get_file_info(selector)):
            if found.type == pyarrow.fs.FileType.File:
                yield StoredFile(found.path[len(self._root) + 1 :], f"{found.size}-{found.mtime_ns}")

    def exists(self, name: str) -> bool:
        """Return whether there is an object."""
        found = self._repeat(self.locate(name), lambda: self._filesystem.get_file_info(self._path(name)))
        return bool(found.type == pyarrow.fs.FileType.File)

    def read(self, name: str) -> bytes:
        """Read an object."""

        def read() -> bytes:
            with self._filesystem.open_input_file(self._path(name)) as file:
                content: bytes = file.read()
                return content

        return self._repeat(self.locate(name), read)

    def open(self, name: str) -> Any:
        """Open an object for random access."""
        path = self._path(name)
        return self._repeat(self.locate(name), lambda: self._filesystem.open_input_file(path))

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield the contents of an object in blocks; each of them is requested again after an error."""
        with self.open(name) as file:
            for offset in range(0, file.size(), BLOCK):
                yield self._repeat(self.locate(name), partial(file.read_at, BLOCK, offset))

    def write(self, name: str, content: pa.Buffer | bytes) -> None:
        """Write an object."""

        def write() -> None:
            with self._filesystem.open_output_stream(self._path(name)) as file:
                file.write(content)

        self._repeat(self.locate(name), write)

    def delete(self, name: str) -> None:
        """Delete an object, if it exists."""
        with suppress(FileNotFoundError):
            self._repeat(self.locate(name), lambda: self._filesystem.delete_file(self._path(name)))

    def lock(self) -> AbstractContextManager[object]:
        """Return a context manager without effect."""
        return nullcontext()

    def subfolder(self, name: str) -> ObjectStore:
        """Return a folder inside this one, with the same settings of the connection."""
        path, separator, query = self._url.partition("?")
        return ObjectStore(f"{path.rstrip('/')}/{name}{separator}{query}")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _connect(self, connect: Callable[[], pyarrow.fs.FileSystem]) -> pyarrow.fs.FileSystem:
        try:
            return connect()
        except (OSError, ValueError, TypeError, pa.ArrowException) as error:
            raise DataError(f"{self._shown}: cannot be opened: {_explain(error)}") from error

    def _repeat(self, what: str, request: Callable[[], _Result]) -> _Result:
        """Return the result of a request; repeat it after temporary errors."""
        for delay in (*DELAYS, None):
            try:
                return request()
            except FileNotFoundError:
                raise
            except OSError as error:
                if delay is None or _PERMANENT.search(str(error)):
                    raise DataError(f"{what}: cannot be accessed: {_explain(error)}") from error
                _LOG.info("%s: %s Trying again in %g s.", what, _explain(error), delay)
                time.sleep(delay)
        raise AssertionError


def _open_s3(bucket: str, **settings: str) -> pyarrow.fs.FileSystem:
    """Connect to the server of a bucket; settings are region, endpoint_override and scheme."""
    # With the checksums that the AWS library adds by default, many servers that are not Amazon's refuse to write.
    # Parts have checksums of their own.
    os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and "endpoint_override" not in settings:
        found = urlsplit(endpoint)
        settings = {**settings, "endpoint_override": found.netloc, "scheme": found.scheme}
    if "region" not in settings and "endpoint_override" not in settings:
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        settings = {**settings, "region": region or pyarrow.fs.resolve_s3_region(bucket)}
    return pyarrow.fs.S3FileSystem(**settings)


def _open_gcs(**settings: str) -> pyarrow.fs.FileSystem:
    """Connect to Google's object store; settings are endpoint_override, scheme and anonymous (`true` or `false`)."""
    options: dict[str, Any] = dict(settings)
    if "anonymous" in settings:
        options["anonymous"] = settings["anonymous"].lower() == "true"
    # The library would repeat a request for 15 minutes before an `ObjectStore` repeats it.
    return pyarrow.fs.GcsFileSystem(retry_time_limit=timedelta(seconds=10), **options)


def _explain(error: Exception) -> str:
    """Return one line about an error of an object store, without query strings, which may contain signatures."""
    for pattern, reason in _REASONS.items():
        if re.search(pattern, str(error), re.IGNORECASE):
            return f"{reason}."
    line = " ".join(re.sub(r"\?\S*", "", str(error)).split())
    return f"{line[:300].rstrip('.')}."


def _redact(url: str) -> str:
    """Remove credentials and parameters from a URL."""
    return re.sub(r"://[^/@]*@", "://", url.partition("?")[0])
