"""Folders on this machine and in object stores with the S3 protocol (`s3://`), with the same methods.

Object stores are accessed through pyarrow, which repeats requests that fail because of the network or the server.
Credentials come from the environment and the usual configuration files, never from a URL.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
import pyarrow.fs

from doap._support.errors import ArgumentError, DataError
from doap._support.files import OutputLock, atomic_write, make_folder
from doap.images.read import walk_files

ATTEMPTS = 9
"""Attempts of a request to S3, with increasing delays: about a minute, in which a server may restart."""
# Parameters of pyarrow's file systems that a URL must not have.
_SECRETS = {"access_key", "secret_key", "session_token", "access_token"}


class StoredFile(NamedTuple):
    """A file of a folder.

    Attributes:
        name: Path inside the folder, with slashes.
        stamp: Size and modification time. A file with the same stamp is assumed to have the same contents. Empty if it
            is not a file, but a device for example.
    """

    name: str
    stamp: str


@dataclass(frozen=True)
class LocalFolder:
    """A folder on this machine. Names of its files are relative paths with slashes."""

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
        """Yield all files of the folder and its subfolders, in any order; links to folders are followed."""
        for name in walk_files(self.folder):
            try:
                found = (self.folder / name).stat()
            # The reason is reported when the file is read, such as a link without a target.
            except OSError:
                yield StoredFile(name, "0-0")
            else:
                yield StoredFile(name, f"{found.st_size}-{found.st_mtime_ns}" if stat.S_ISREG(found.st_mode) else "")

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
        """Open a file for random access, as a file of pyarrow."""
        return pa.OSFile(str(self.folder / name))

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


class ObjectStore:
    """A folder in an object store, with the methods of `LocalFolder`. It can be pickled.

    Objects appear when they are complete, so writing is atomic. There are no locks. Two runs that write to the same
    folder at the same time do not damage it, but do their work twice.
    """

    local: Path | None = None

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        path, _, query = rest.partition("?")
        # The path of the file system starts with the bucket.
        self._url, self._root = url, path.strip("/")
        self._shown = f"{scheme}://{self._root}"
        if not self._root:
            raise ArgumentError(f"{url}: expected a bucket after {scheme}://.")
        settings: dict[str, Any] = dict(parse_qsl(query))
        try:
            with self._request(self._shown):
                self._filesystem = _open_s3(self._root, settings)
        except (TypeError, ValueError) as error:
            raise DataError(f"{self._shown}: cannot be opened: {error}. Check the parameters of the URL.") from error

    def __reduce__(self) -> tuple[type[ObjectStore], tuple[str]]:
        # Another process or machine connects with credentials of its own.
        return ObjectStore, (self._url,)

    def __str__(self) -> str:
        return self._shown

    def locate(self, name: str) -> str:
        """Return the URL of an object, without the parameters of the connection."""
        return f"{self._shown}/{name}"

    def list(self) -> Iterator[StoredFile]:
        """Yield all objects below the folder; none if it does not exist."""
        selector = pyarrow.fs.FileSelector(self._root, recursive=True, allow_not_found=True)
        with self._request(self._shown):
            listed = self._filesystem.get_file_info(selector)
        for found in listed:
            if found.type == pyarrow.fs.FileType.File:
                yield StoredFile(found.path[len(self._root) + 1 :], f"{found.size}-{found.mtime_ns}")

    def read(self, name: str) -> bytes:
        """Read an object."""
        with self._request(self.locate(name)), self.open(name) as file:
            content: bytes = file.read()
            return content

    def open(self, name: str) -> Any:
        """Open an object for random access, as a file of pyarrow."""
        with self._request(self.locate(name)):
            return self._filesystem.open_input_file(f"{self._root}/{name}")

    def write(self, name: str, content: pa.Buffer | bytes) -> None:
        """Write an object."""
        with (
            self._request(self.locate(name)),
            self._filesystem.open_output_stream(f"{self._root}/{name}") as file,
        ):
            file.write(content)

    def delete(self, name: str) -> None:
        """Delete an object, if it exists."""
        path = f"{self._root}/{name}"
        with self._request(self.locate(name)):
            try:
                self._filesystem.delete_file(path)
            except OSError:
                # Some servers refuse the object for the folder that pyarrow creates after the deletion.
                if self._filesystem.get_file_info(path).type != pyarrow.fs.FileType.NotFound:
                    raise

    def lock(self) -> AbstractContextManager[object]:
        """Return a context manager without effect."""
        return nullcontext()

    @contextmanager
    def _request(self, what: str) -> Iterator[None]:
        """Report the errors of an object store in one line."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            # Query strings may contain signatures.
            reason = " ".join(re.sub(r"\?\S*", "", str(error)).split())[:300].rstrip(".")
            remedy = "Check the URL, the credentials and the connection, and run the same command again."
            raise DataError(f"{what}: cannot be accessed: {reason}. {remedy}") from error


Storage = LocalFolder | ObjectStore


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
    shown = re.sub(r"://[^/@]*@", "://", text.partition("?")[0])
    if scheme != "s3":
        raise ArgumentError(f"{shown}: expected a folder or a URL with s3:// or file://.")
    if "@" in urlsplit(text).netloc or _SECRETS & dict(parse_qsl(urlsplit(text).query)).keys():
        raise ArgumentError(
            f"{shown}: expected a URL without credentials. Set them in the environment, for example "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    return ObjectStore(text)


def _open_s3(path: str, settings: dict[str, Any]) -> pyarrow.fs.FileSystem:
    """Connect to the server of a bucket; settings are region, endpoint_override and scheme."""
    # With the checksums that the AWS library adds by default, many servers that are not Amazon's refuse to write.
    # Parts have checksums of their own.
    os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and "endpoint_override" not in settings:
        found = urlsplit(endpoint)
        settings |= {"endpoint_override": found.netloc, "scheme": found.scheme}
    if not settings.keys() & {"region", "endpoint_override"} and not os.environ.get("AWS_REGION"):
        settings["region"] = pyarrow.fs.resolve_s3_region(path.partition("/")[0])
    repeat = pyarrow.fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS)
    return pyarrow.fs.S3FileSystem(retry_strategy=repeat, **settings)
