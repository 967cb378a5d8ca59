"""Feature sets: a folder of Parquet files with one row per image, on this machine or in an object store.

    FEATURES/
    ├── _meta.json                            format and extractor (`ExtractorInfo`)
    └── part-000001-5d41402abc4b2a76.parquet  rows with the columns of `SCHEMA`; written atomically, never modified

Other programs open the folder as a Parquet dataset; they skip names that start with an underscore. The schema metadata
of each part has a copy of the contents of _meta.json, under the key `doap`.

A part is named after the run that wrote it, and a hash of the names and checksums of its images. A task that is
repeated writes the same file again. If an image has several rows, the one of the newest run counts, so a changed image
gets a row in a new part. Rows with another fingerprint than the one in _meta.json do not count. An image that could not
be read has a row with the reason and no features. An image that was removed from the folder has a row that marks it.

Opening a set reads the names and checksums of all parts: 3 ms for the 110 images of a part of default size. There is no
other file to keep in step with them, so a killed run loses nothing that it has written.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import time
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from doap._support.checks import check_finite
from doap._support.errors import ArgumentError, DataError
from doap._support.files import LOCK, make_folder, parse_json
from doap._support.settings import validate
from doap.collection.extractor import ExtractorInfo, decode, encode
from doap.collection.storage import Storage, open_storage
from doap.types import Features, Kind

FORMAT = 1
SCHEMA = pa.schema(
    {
        "name": pa.string(),  # path inside the folder of images
        "checksum": pa.string(),  # SHA-256 of the file, or of image and mask; "" if unreadable
        "stamp": pa.string(),  # size and modification time of the file, and of its mask
        "height": pa.int32(),
        "width": pa.int32(),
        "frames": pa.list_(pa.float32()),  # (N, 2, 3) in row-major order, in the pixels of the file
        "responses": pa.list_(pa.float32()),  # (N,)
        "descriptors": pa.binary(),  # (N, D) floats or uint8, or (N, D/8) bits, in row-major order
        "fingerprint": pa.string(),  # of the extractor
        "error": pa.string(),  # null on success
        "run": pa.int32(),  # number of the run; the largest one counts if an image has several rows
    }
)
# The writer adds the number of the run.
_ROWS = SCHEMA.remove(SCHEMA.get_field_index("run"))
_KEYS = ["name", "checksum", "stamp", "height", "width", "error", "run"]
_MANIFEST = pa.schema([*(SCHEMA.field(key) for key in _KEYS), ("part", pa.string()), ("row", pa.int64())])
META = "_meta.json"
REMOVED = "removed from the folder"
"""The reason in the row of an image that was removed; all others start with a path."""
# A row group is read as a whole. It is small, so that reading a single image is fast.
_ROW_GROUP_BYTES, _ROW_GROUP_ROWS = 5 << 20, 8
# A part is written when it reaches this size or age: few files, and little work lost in a power cut.
_PART_BYTES, _PART_SECONDS = 64 << 20, 120
_PART = re.compile(r"part-\d{6,}-[0-9a-f]{16}\.parquet")


@dataclass(frozen=True)
class StoredImage:
    """An image with its features; `name` is its path inside the folder, `checksum` and `stamp` those of its file."""

    name: str
    checksum: str
    features: Features
    stamp: str = ""


@dataclass(frozen=True)
class FailedImage:
    """An image without features, and the reason; without a checksum, the next run tries it again."""

    name: str
    checksum: str
    reason: str
    stamp: str = ""


ImageRow = StoredImage | FailedImage


class DamagedPart(DataError):  # noqa: N818 - the name of the condition
    """A part is damaged; its images can be extracted again after it is deleted."""

    def __init__(self, storage: Storage, part: str, cause: Exception) -> None:
        self._storage, self._part = storage, part
        path = storage.locate(part)
        super().__init__(f"{path}: damaged ({cause}). Delete it and run doap extract again to restore its images.")

    def delete(self) -> None:
        """Delete the part."""
        self._storage.delete(self._part)


class FeatureSet:
    """A folder of features, in its state at the time of opening.

    Opening reads names and checksums only, about 300 bytes per image. Features are read one row group at a time.

    Args:
        folder: Folder or URL written by `doap.extract_folder`.

    Attributes:
        folder: The folder or URL.
        extractor: Identity and settings of the extractor.
        manifest: Newest row of every image, sorted by name: name, checksum, stamp, height, width, error, run, part and
            row in the part.
        superseded: Parts without any current row.
    """

    def __init__(self, folder: str | Path | Storage) -> None:
        self._storage = open_storage(folder) if isinstance(folder, str | Path) else folder
        self.folder: Path | str = self._storage.local or str(self._storage)
        files = {file.name for file in self._storage.list()}
        if META not in files:
            raise DataError(f"{self.folder}: not a feature set (no {META}). Create one with doap extract.")
        self._meta = self._storage.read(META)
        self.extractor: ExtractorInfo = _parse_meta(self._meta, self._storage.locate(META))
        self._parts = list_parts(files, str(self.folder))
        with ThreadPoolExecutor(16) as pool:
            self.manifest = _newest(list(pool.map(self._read_positions, self._parts)))
        current = set(pc.unique(self.manifest["part"]).to_pylist())
        self.superseded = [part for part in self._parts if part not in current]

    @cached_property
    def names(self) -> list[str]:
        """Names of all images with features, sorted."""
        names: list[str] = self._stored["name"].to_pylist()
        return names

    @cached_property
    def failed(self) -> dict[str, str]:
        """Images without features, and the reasons."""
        rows = self.manifest.filter(pc.is_valid(self.manifest["error"]))
        errors = zip(rows["name"].to_pylist(), rows["error"].to_pylist(), strict=True)
        return {name: error for name, error in errors if error != REMOVED}

    @cached_property
    def checksums(self) -> dict[str, str]:
        """Checksum of every image file and its mask, with or without features."""
        rows = self.known
        return dict(zip(rows["name"].to_pylist(), rows["checksum"].to_pylist(), strict=True))

    @property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """(height, width) of every image with features."""
        sizes = zip(self._stored["height"].to_pylist(), self._stored["width"].to_pylist(), strict=True)
        return dict(zip(self.names, sizes, strict=True))

    @property
    def known(self) -> pa.Table:
        """Rows of `manifest` of all images that were not removed, with or without features."""
        return self.manifest.filter(pc.fill_null(pc.not_equal(self.manifest["error"], REMOVED), True))

    @cached_property
    def _stored(self) -> pa.Table:
        """Rows with features, sorted by name."""
        return self.manifest.filter(pc.is_null(self.manifest["error"])).combine_chunks()

    @property
    def kind(self) -> Kind:
        """`real` or `binary`."""
        return self.extractor.kind

    @property
    def dim(self) -> int:
        """D, the number of dimensions or bits."""
        return self.extractor.dim

    def __len__(self) -> int:
        return int(self.manifest["error"].null_count)

    def __contains__(self, name: str) -> bool:
        position = bisect_left(self.names, name)
        return self.names[position : position + 1] == [name]

    def stream(self, names: Collection[str] | None = None) -> Iterator[StoredImage]:
        """Yield all images, or the named ones, in storage order with a few images in memory at a time."""
        chosen = (
            self._stored
            if names is None
            else self._stored.take(np.array([self._find(name) for name in names], np.int64))
        )
        parts = np.array(chosen["part"].to_pylist(), str)
        rows = chosen["row"].to_numpy()
        for part, group in groupby(np.lexsort([rows, parts]).tolist(), key=lambda index: str(parts[index])):
            yield from self._read_rows(part, rows[list(group)])

    def read(self, name: str) -> StoredImage:
        """Read one image."""
        position = self._find(name)
        part, row = self._stored["part"][position].as_py(), self._stored["row"][position].as_py()
        return next(self._read_rows(part, np.array([row])))

    def checksum(self) -> str:
        """Return a checksum of _meta.json and the names of all parts; it changes whenever something is written."""
        return hashlib.sha256(self._meta + "\n".join(self._parts).encode()).hexdigest()

    def _find(self, name: str) -> int:
        """Return the position of an image among those with features."""
        if name not in self:
            reason = self.failed.get(name, "the set has no image of this name")
            raise DataError(f"{self.folder}: no features of {name}: {reason}")
        return bisect_left(self.names, name)

    def _read_positions(self, part: str) -> pa.Table:
        """Return the rows of a part with the columns of the manifest."""
        with _open_part(self._storage, part) as file:
            table = file.read([*_KEYS, "fingerprint"])
        if table["name"].null_count or table["checksum"].null_count:
            raise DamagedPart(self._storage, part, ValueError("a row has no name or no checksum"))
        rows = table.select(_KEYS).append_column("part", pa.array([part] * len(table), pa.string()))
        rows = rows.append_column("row", pa.array(np.arange(len(table))))
        return rows.filter(pc.equal(table["fingerprint"], self.extractor.fingerprint))

    def _read_rows(self, part: str, rows: NDArray[np.int64]) -> Iterator[StoredImage]:
        """Yield the rows of a part, given in increasing order, reading one row group at a time."""
        with _open_part(self._storage, part) as file:
            ends = np.cumsum([file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)])
            groups = np.searchsorted(ends, rows, side="right")
            for group in np.unique(groups):
                table = file.read_row_group(int(group))
                first = int(ends[group]) - len(table)
                for row in rows[groups == group].tolist():
                    yield self._convert(part, table.slice(row - first, 1))

    def _convert(self, part: str, row: pa.Table) -> StoredImage:
        """Convert a table of one row to an image."""
        frames, responses = (np.array(row[column][0].values, np.float32) for column in ("frames", "responses"))
        name, checksum, stamp = (row[column][0].as_py() for column in ("name", "checksum", "stamp"))
        try:
            descriptors = decode(row["descriptors"][0].as_py(), self.dim, self.extractor.stored)
            check_finite(torch.from_numpy(frames), name="frames")
            check_finite(descriptors, name="descriptors")
            size = (row["height"][0].as_py(), row["width"][0].as_py())
            fingerprint = self.extractor.descriptor_fingerprint
            features = Features(frames.reshape(-1, 2, 3), responses, descriptors, size, fingerprint)
        except (ValueError, TypeError) as error:
            raise DamagedPart(self._storage, part, ValueError(f"{name}: {error}")) from error
        return StoredImage(name, checksum, features, stamp or "")


def as_feature_set(features: str | Path | FeatureSet) -> FeatureSet:
    """Open a feature set given by its folder; return an open one unchanged."""
    return features if isinstance(features, FeatureSet) else FeatureSet(features)


def make_table(images: Sequence[ImageRow], extractor: ExtractorInfo) -> pa.Table:
    """Convert images to rows for `PartWriter`; an image whose descriptors cannot be stored becomes a failed one."""
    return pa.Table.from_pylist([_make_row(image, extractor) for image in images], _ROWS)


def _make_row(image: ImageRow, extractor: ExtractorInfo) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": image.name,
        "checksum": image.checksum,
        "stamp": image.stamp,
        "fingerprint": extractor.fingerprint,
    }
    if isinstance(image, FailedImage):
        empty = {"height": 0, "width": 0, "frames": [], "responses": [], "descriptors": b""}
        return row | empty | {"error": image.reason}
    features = image.features
    try:
        row["descriptors"] = encode(features.descriptors, extractor.stored)
    except ArgumentError as error:
        return _make_row(FailedImage(image.name, image.checksum, f"{image.name}: {error}", image.stamp), extractor)
    row["height"], row["width"] = features.image_size
    return row | {"frames": features.frames.ravel(), "responses": features.responses}


@dataclass(frozen=True)
class PartTarget:
    """Where the parts of a run are written. It can be pickled, so that workers on other machines write their own parts.

    Attributes:
        storage: Folder of the feature set.
        run: Number of the run.
        meta: Contents of _meta.json.
    """

    storage: Storage
    run: int
    meta: str

    def write(self, rows: pa.Table) -> pa.Table:
        """Write a part with rows of `make_table`; return their names and errors."""
        keys = zip(rows["checksum"].to_pylist(), rows["name"].to_pylist(), strict=True)
        images = "\n".join(f"{checksum} {name}" for checksum, name in keys)
        identity = hashlib.sha256(f"{self.meta}\n{self.run}\n{images}".encode()).hexdigest()[:16]
        part = f"part-{self.run:06}-{identity}.parquet"
        rows = rows.append_column(SCHEMA.field("run"), pa.array(np.full(len(rows), self.run, np.int32)))
        self.storage.write(part, _encode_part(rows.replace_schema_metadata({"doap": self.meta})))
        return rows.select(["name", "error"])


class PartWriter:
    """Context manager that appends rows to a feature set. On exit, also after an error, it writes the last part.

    The caller holds the lock of the folder.

    Attributes:
        target: Where workers write their parts.
        before: The set before this run, without the rows of other extractors.
    """

    def __init__(self, folder: str | Path | Storage, extractor: ExtractorInfo) -> None:
        """Create or continue a set. If another extractor wrote it, its rows no longer count."""
        storage = open_storage(folder) if isinstance(folder, str | Path) else folder
        if storage.local:
            make_folder(storage.local)
        files = {file.name for file in storage.list()}
        if META not in files and files - {LOCK}:
            raise DataError(
                f"{storage}: expected a feature set or an empty folder, got other files. Choose another one."
            )
        runs = [int(part.split("-")[1]) for part in list_parts(files, str(storage))]
        meta = {"format": FORMAT, "extractor": dataclasses.asdict(extractor)}
        content = json.dumps(meta, indent=1, sort_keys=True) + "\n"
        if META not in files or storage.read(META).decode(errors="replace") != content:
            storage.write(META, content.encode())
        self.target = PartTarget(storage, max(runs, default=0) + 1, json.dumps(meta, sort_keys=True))
        self.before = FeatureSet(storage)
        self._waiting: list[pa.Table] = []
        self._size, self._since = 0, 0.0

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write()

    def add(self, rows: pa.Table) -> None:
        """Add rows; they reach the disk when the part is full, after two minutes, or on exit."""
        if not self._size:
            self._since = time.monotonic()
        self._waiting.append(rows)
        self._size += rows.nbytes
        if self._size >= _PART_BYTES or time.monotonic() - self._since >= _PART_SECONDS:
            self._write()

    def _write(self) -> None:
        if self._size:
            self.target.write(pa.concat_tables(self._waiting))
            self._waiting, self._size = [], 0


def _newest(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the row of the newest run for each image, sorted by name."""
    rows = pa.concat_tables([_MANIFEST.empty_table(), *tables])
    rows = rows.sort_by([(key, "ascending") for key in ("name", "run", "part", "row")])
    names = rows["name"].combine_chunks()
    last = np.append(pc.not_equal(names[:-1], names[1:]).to_numpy(zero_copy_only=False), True)
    return rows.filter(pa.array(last[: len(rows)], pa.bool_())).combine_chunks()


def list_parts(files: Collection[str], folder: str) -> list[str]:
    """Return the names of the parts among the files of a set, oldest run first."""
    parts = [name for name in files if name.startswith("part-") and name.endswith(".parquet")]
    for part in parts:
        if not _PART.fullmatch(part):
            raise DataError(f"{folder}/{part}: not the name of a part. Move the file out of the feature set.")
    return sorted(parts)


def _encode_part(rows: pa.Table) -> pa.Buffer:
    """Return the contents of a Parquet file."""
    bytes_per_row = max(1, rows.nbytes // len(rows))
    out = pa.BufferOutputStream()
    # Descriptors do not compress. Page checksums detect a damaged part.
    pq.write_table(
        rows,
        out,
        row_group_size=max(1, min(_ROW_GROUP_ROWS, _ROW_GROUP_BYTES // bytes_per_row)),
        compression="none",
        use_dictionary=["fingerprint"],
        write_page_checksum=True,
    )
    return out.getvalue()


def _parse_meta(content: bytes, path: str) -> ExtractorInfo:
    meta = parse_json(content, path, "the metadata of a feature set")
    if (version := meta.get("format")) == FORMAT:
        return validate(ExtractorInfo, meta.get("extractor"), f"{path}: not the metadata of a feature set")
    raise DataError(f"{path}: expected format {FORMAT}, got {version!r}. Extract the features again with doap extract.")


@contextmanager
def _open_part(storage: Storage, part: str) -> Iterator[pq.ParquetFile]:
    """Open a part for reading; name it in every error."""
    try:
        with storage.open(part) as source, pq.ParquetFile(source, page_checksum_verification=True) as file:
            if not file.schema_arrow.equals(SCHEMA):
                raise DataError(f"{storage.locate(part)}: not a part of a feature set (other columns). Move it away.")
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        # Arrow reports damage as an OSError without a number.
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"{storage.locate(part)}: cannot be read: {error.strerror}.") from error
        raise DamagedPart(storage, part, error) from error
