"""Feature sets: a folder of Parquet files with one row per image.

    FEATURES/
    ├── _meta.json            format and extractor (`ExtractorInfo`)
    └── part-000001.parquet   rows with the columns of `SCHEMA`; written atomically and never modified

Other programs open the folder as a Parquet dataset; they skip names that start with an underscore. The schema metadata
of each part has a copy of the contents of _meta.json, under the key `doap`.

Parts are numbered in the order of writing. If an image has several rows, the newest one counts, so a changed image gets
a row in a new part. Rows with another fingerprint than the one in _meta.json do not count. An image that could not be
read has a row with the reason and no features. An image that was removed from the folder has a row that marks it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from doap.checks import check_finite
from doap.errors import ArgumentError, DataError
from doap.files import LOCK, atomic_write, make_folder, read_json, sha256
from doap.scale.extractor import ExtractorInfo, decode, encode
from doap.settings import validate
from doap.types import Features, Kind

FORMAT = 3
SCHEMA = pa.schema(
    {
        "name": pa.string(),  # path inside the folder of images
        "checksum": pa.string(),  # SHA-256 of the file, or of image and mask; "" if unreadable
        "height": pa.int32(),
        "width": pa.int32(),
        "frames": pa.list_(pa.float32()),  # (N, 2, 3) in row-major order, in the pixels of the file
        "responses": pa.list_(pa.float32()),  # (N,)
        "descriptors": pa.binary(),  # (N, D) floats or uint8, or (N, D/8) bits, in row-major order
        "fingerprint": pa.string(),  # of the extractor
        "error": pa.string(),  # null on success
        "part": pa.int32(),  # number of the part; the largest one counts if an image has several rows
    }
)
# The writer adds the number of the part.
_ROWS = SCHEMA.remove(SCHEMA.get_field_index("part"))
META = "_meta.json"
REMOVED = "removed from the folder"
# A row group is read as a whole. It is small, so that reading a single image is fast.
_ROW_GROUP_BYTES, _ROW_GROUP_ROWS = 5 << 20, 8
# A part is written when it reaches this size or age: few files, and little work lost in a power cut.
_PART_BYTES, _PART_SECONDS = 64 << 20, 120


@dataclass(frozen=True)
class StoredImage:
    """An image with its features; `name` is its path inside the folder, `checksum` that of `ImageFolder`."""

    name: str
    checksum: str
    features: Features


@dataclass(frozen=True)
class FailedImage:
    """An image without features, and the reason; the checksum is "" if the file could not be read."""

    name: str
    checksum: str
    reason: str


class DamagedPart(DataError):  # noqa: N818 - the name of the condition
    """A part is damaged; its images can be extracted again after it is deleted."""

    def __init__(self, part: Path, cause: Exception) -> None:
        self.part = part
        super().__init__(f"{part}: damaged ({cause}). Delete it and run doap extract again to restore its images.")


class _Location(NamedTuple):
    """Position of an image's row."""

    part: Path
    row: int
    checksum: str
    error: str | None


class FeatureSet:
    """A folder of features, in its state at the time of opening.

    Opening reads names and checksums only, about 300 bytes per image. Features are read one row group at a time.

    Args:
        folder: Folder written by `doap.extract_folder`.

    Attributes:
        extractor: Identity and settings of the extractor.
        names: Names of all images with features, sorted.
        failed: Images without features, and the reasons.
        checksums: Checksum of every image file and its mask, with or without features.
        superseded: Parts without any current row.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.extractor = _read_meta(self.folder)
        self._parts = list_parts(self.folder)
        rows = {name: location for part in self._parts for name, location in self._read_locations(part)}
        self._locations = {name: location for name, location in rows.items() if location.error is None}
        current = {location.part for location in rows.values()}
        self.superseded = [part for part in self._parts if part not in current]
        self.names: list[str] = sorted(self._locations)
        self.failed = {name: row.error for name, row in rows.items() if row.error and row.error != REMOVED}
        self.checksums = {name: row.checksum for name, row in rows.items() if row.error != REMOVED}

    @property
    def kind(self) -> Kind:
        """`real` or `binary`."""
        return self.extractor.kind

    @property
    def dim(self) -> int:
        """D, the number of dimensions or bits."""
        return self.extractor.dim

    def __len__(self) -> int:
        return len(self.names)

    def stream(self, names: Collection[str] | None = None) -> Iterator[StoredImage]:
        """Yield all images, or the named ones, in storage order with a few images in memory at a time."""
        rows: dict[Path, list[int]] = {part: [] for part in self._parts}
        for name in self.names if names is None else names:
            location = self._locate(name)
            rows[location.part].append(location.row)
        for part, chosen in rows.items():
            yield from self._read_rows(part, sorted(chosen))

    def read(self, name: str) -> StoredImage:
        """Read one image."""
        location = self._locate(name)
        return next(self._read_rows(location.part, [location.row]))

    def checksum(self) -> str:
        """Return a checksum of _meta.json and all parts; it changes whenever something is written."""
        digest = hashlib.sha256((self.folder / META).read_bytes())
        for part in self._parts:
            digest.update(f"{part.name} {sha256(part)}".encode())
        return digest.hexdigest()

    def _locate(self, name: str) -> _Location:
        if name not in self._locations:
            reason = self.failed.get(name, "the set has no image of this name")
            raise DataError(f"{self.folder}: no features of {name}: {reason}")
        return self._locations[name]

    def _read_locations(self, part: Path) -> Iterator[tuple[str, _Location]]:
        """Yield the rows of a part that the current extractor wrote."""
        with _open_part(part) as file:
            columns = file.read(["name", "checksum", "fingerprint", "error"]).to_pydict()
        for row, (name, checksum, fingerprint, error) in enumerate(zip(*columns.values(), strict=True)):
            if name is None or checksum is None:
                raise DamagedPart(part, ValueError(f"row {row} has no name or no checksum"))
            if fingerprint == self.extractor.fingerprint:
                yield name, _Location(part, row, checksum, error)

    def _read_rows(self, part: Path, rows: Sequence[int]) -> Iterator[StoredImage]:
        """Yield rows of a part, given in increasing order, reading one row group at a time."""
        if not rows:
            return
        with _open_part(part) as file:
            ends = np.cumsum([file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)])
            groups = np.searchsorted(ends, rows, side="right")
            for group in np.unique(groups):
                table = file.read_row_group(int(group))
                first = int(ends[group]) - len(table)
                for row in np.asarray(rows)[groups == group]:
                    yield self._convert(part, table.slice(int(row) - first, 1))

    def _convert(self, part: Path, row: pa.Table) -> StoredImage:
        """Convert a table of one row to an image."""
        frames, responses = (np.array(row[column][0].values, np.float32) for column in ("frames", "responses"))
        name = row["name"][0].as_py()
        try:
            descriptors = decode(row["descriptors"][0].as_py(), self.dim, self.extractor.stored)
            check_finite(torch.from_numpy(frames), name="frames")
            check_finite(descriptors, name="descriptors")
            size = (row["height"][0].as_py(), row["width"][0].as_py())
            fingerprint = self.extractor.descriptor_fingerprint
            features = Features(frames.reshape(-1, 2, 3), responses, descriptors, size, fingerprint)
        except (ValueError, TypeError) as error:
            raise DamagedPart(part, ValueError(f"{name}: {error}")) from error
        return StoredImage(name, row["checksum"][0].as_py(), features)


def as_feature_set(features: str | Path | FeatureSet) -> FeatureSet:
    """Open a feature set given by its folder; return an open one unchanged."""
    return features if isinstance(features, FeatureSet) else FeatureSet(features)


def make_table(images: Sequence[StoredImage | FailedImage], extractor: ExtractorInfo) -> pa.Table:
    """Convert images to rows for `PartWriter`; an image whose descriptors cannot be stored becomes a failed one."""
    return pa.Table.from_pylist([_make_row(image, extractor) for image in images], _ROWS)


def _make_row(image: StoredImage | FailedImage, extractor: ExtractorInfo) -> dict[str, Any]:
    row: dict[str, Any] = {"name": image.name, "checksum": image.checksum, "fingerprint": extractor.fingerprint}
    if isinstance(image, FailedImage):
        empty = {"height": 0, "width": 0, "frames": [], "responses": [], "descriptors": b""}
        return row | empty | {"error": image.reason}
    features = image.features
    try:
        row["descriptors"] = encode(features.descriptors, extractor.stored)
    except ArgumentError as error:
        return _make_row(FailedImage(image.name, image.checksum, f"{image.name}: {error}"), extractor)
    row["height"], row["width"] = features.image_size
    return row | {"frames": features.frames.ravel(), "responses": features.responses}


class PartWriter:
    """Context manager that appends rows to a feature set. It writes the last ones on exit, also after an error.

    The caller holds the `OutputLock` of the folder.
    """

    def __init__(self, folder: Path, extractor: ExtractorInfo) -> None:
        """Create or continue a set. If another extractor wrote it, its rows no longer count."""
        self._folder = make_folder(folder)
        if not (folder / META).exists() and set(folder.iterdir()) - {folder / LOCK}:
            _refuse_old_set(folder)
            raise DataError(
                f"{folder}: expected a feature set or an empty folder, got other files. Choose another one."
            )
        last = max(list_parts(folder), default=None, key=_part_number)
        self._next = _part_number(last) + 1 if last else 1
        self._waiting: list[pa.Table] = []
        self._since = 0.0
        self._meta = {"format": FORMAT, "extractor": dataclasses.asdict(extractor)}
        with atomic_write(folder / META) as unfinished:
            unfinished.write_text(json.dumps(self._meta, indent=1, sort_keys=True) + "\n")

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._write()

    def add(self, rows: pa.Table) -> None:
        """Add rows; they reach the disk when the part is full, after two minutes, or on exit."""
        self._since = self._since if self._waiting else time.monotonic()
        self._waiting.append(rows)
        size = sum(table.nbytes for table in self._waiting)
        if size >= _PART_BYTES or time.monotonic() - self._since >= _PART_SECONDS:
            self._write()

    def _write(self) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting)
        rows = rows.append_column(SCHEMA.field("part"), pa.array(np.full(len(rows), self._next, np.int32)))
        rows = rows.replace_schema_metadata({"doap": json.dumps(self._meta, sort_keys=True)})
        bytes_per_row = max(1, rows.nbytes // len(rows))
        with atomic_write(self._folder / f"part-{self._next:06}.parquet") as unfinished:
            # Descriptors do not compress. Page checksums detect a damaged part.
            pq.write_table(
                rows,
                unfinished,
                row_group_size=max(1, min(_ROW_GROUP_ROWS, _ROW_GROUP_BYTES // bytes_per_row)),
                compression="none",
                use_dictionary=["fingerprint"],
                write_page_checksum=True,
            )
        self._next, self._waiting = self._next + 1, []


def list_parts(folder: Path) -> list[Path]:
    """Return the parts of a set, oldest first."""
    return sorted(folder.glob("part-*.parquet"), key=_part_number)


def _part_number(part: Path) -> int:
    text = part.stem.removeprefix("part-")
    if not text.isdecimal():
        raise DataError(f"{part}: expected a number after part-. Move the file out of the feature set.")
    return int(text)


def _read_meta(folder: Path) -> ExtractorInfo:
    path = folder / META
    if not path.is_file():
        _refuse_old_set(folder)
        raise DataError(f"{folder}: not a feature set (no {META}). Create one with doap extract.")
    meta = read_json(path, "the metadata of a feature set")
    if (version := meta.get("format")) == FORMAT:
        return validate(ExtractorInfo, meta.get("extractor"), f"{path}: not the metadata of a feature set")
    raise DataError(f"{path}: expected format {FORMAT}, got {version!r}. Extract the features again with doap extract.")


def _refuse_old_set(folder: Path) -> None:
    """Raise an error if an earlier version, which called its metadata meta.json, wrote the set."""
    if (folder / "meta.json").is_file() and list_parts(folder):
        raise DataError(
            f"{folder}: a feature set of an earlier version (meta.json instead of {META}). Delete the folder, or "
            "choose another one, and extract the features again with doap extract."
        )


@contextmanager
def _open_part(part: Path) -> Iterator[pq.ParquetFile]:
    """Open a part for reading; name it in every error."""
    try:
        with pq.ParquetFile(part, page_checksum_verification=True) as file:
            if not file.schema_arrow.equals(SCHEMA):
                raise DataError(f"{part}: not a part of a feature set (other columns). Move the file away.")
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        # Arrow reports damage as an OSError without a number.
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"{part}: cannot be read: {error.strerror}.") from error
        raise DamagedPart(part, error) from error
