"""Features of many images: a folder of Parquet files, one row for each image.

    FEATURES/
    ├── meta.json             what made them: `Extractor`
    └── part-000001.parquet   rows, as `SCHEMA` has them; a part is whole or not there, and is never changed

Parts are numbered as they are written, and of two rows of one image the newest counts, so that an image that changed
is a row in a new part. Rows of another extractor than meta's do not count. An image that could not be read is a row
with its reason and without features; one that was removed from the folder is a row that says so.
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

from doap.errors import ArgumentError, DataError
from doap.files import atomic_write, make_folder, sha256
from doap.scale.extractor import Extractor, decode, encode
from doap.types import Features, Kind

FORMAT = 1
SCHEMA = pa.schema(
    {
        "name": pa.string(),  # path inside the folder of images
        "checksum": pa.string(),  # SHA-256 of the file; "" if it could not be read
        "height": pa.int32(),
        "width": pa.int32(),
        "keypoints": pa.list_(pa.float32()),  # frames (N, 2, 3), row by row
        "responses": pa.list_(pa.float32()),  # (N,)
        "descriptors": pa.binary(),  # (N, D) float16 or uint8, or (N, D/8) bits, row by row
        "extractor": pa.string(),  # its fingerprint
        "error": pa.string(),  # null if all is well
    }
)
REMOVED = "removed from the folder"
# Rows that are read together: 5 MB with 2,048 keypoints and 128 numbers, so that a single image is found quickly.
_ROWS_AT_ONCE = 8
# A part is written when its rows have so many bytes, or have waited for so long: few files for many images, and little
# lost by a power cut.
_BYTES_OF_A_PART, _SECONDS_OF_A_PART = 64 << 20, 120


@dataclass(frozen=True)
class StoredImage:
    """An image with its features; name is its path inside the folder, checksum the SHA-256 of its file."""

    name: str
    checksum: str
    features: Features


@dataclass(frozen=True)
class FailedImage:
    """An image without features, and why; checksum is "" if not even its bytes were read."""

    name: str
    checksum: str
    reason: str


class _Place(NamedTuple):
    """Where an image's row is."""

    part: Path
    row: int
    checksum: str
    error: str | None


class FeatureSet:
    """A folder of features, as it is when it is opened.

    Only names and checksums are read then, about 300 bytes for each image; features come one row group at a time.

    Args:
        folder: that `doap.scale.extract_folder` wrote.

    Attributes:
        meta: what meta.json holds.
        extractor: what made the features.
        names: of all images that have features, sorted.
        failed: names of those that have none, and why.
        checksums: of the files of both.
        superseded: parts of which no row counts any more.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.meta: dict[str, Any] = _read_meta(self.folder)
        self.extractor = Extractor(**self.meta["extractor"])
        self._parts = parts_of(self.folder)
        places = {name: place for part in self._parts for name, place in self._rows_of(part)}
        self._places = {name: place for name, place in places.items() if place.error is None}
        counting = {place.part for place in places.values()}
        self.superseded = [part for part in self._parts if part not in counting]
        self.names: list[str] = sorted(self._places)
        self.failed = {name: place.error for name, place in places.items() if place.error and place.error != REMOVED}
        self.checksums = {name: place.checksum for name, place in places.items() if place.error != REMOVED}

    @property
    def kind(self) -> Kind:
        """`real` or `binary`."""
        return self.extractor.kind

    @property
    def dim(self) -> int:
        """D, numbers or bits."""
        return self.extractor.dim

    def __len__(self) -> int:
        return len(self.names)

    def stream(self, names: Collection[str] | None = None) -> Iterator[StoredImage]:
        """All images, or those of these names, in the order of the parts, a few in memory at a time."""
        wanted = self.names if names is None else names
        rows: dict[Path, list[int]] = {part: [] for part in self._parts}
        for name in wanted:
            place = self._place(name)
            rows[place.part].append(place.row)
        for part, chosen in rows.items():
            yield from self._read_rows(part, sorted(chosen))

    def read(self, name: str) -> StoredImage:
        """One image."""
        place = self._place(name)
        return next(self._read_rows(place.part, [place.row]))

    def checksum(self) -> str:
        """Of meta.json and all parts: equal if and only if nothing was written since."""
        whole = hashlib.sha256((self.folder / "meta.json").read_bytes())
        for part in self._parts:
            whole.update(f"{part.name} {sha256(part)}".encode())
        return whole.hexdigest()

    def _place(self, name: str) -> _Place:
        if name not in self._places:
            reason = self.failed.get(name, "it is not one of the images")
            raise DataError(f"{self.folder}: expected features of {name}, got none: {reason}")
        return self._places[name]

    def _rows_of(self, part: Path) -> Iterator[tuple[str, _Place]]:
        """Rows of a part that this extractor made."""
        with _opened(part) as file:
            columns = file.read(["name", "checksum", "extractor", "error"]).to_pydict()
        for row, (name, checksum, maker, error) in enumerate(zip(*columns.values(), strict=True)):
            if maker == self.extractor.fingerprint:
                yield name, _Place(part, row, checksum, error)

    def _read_rows(self, part: Path, rows: Sequence[int]) -> Iterator[StoredImage]:
        """Rows of a part, increasing, one row group after the other."""
        if not rows:
            return
        with _opened(part) as file:
            ends = np.cumsum([file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)])
            groups = np.searchsorted(ends, rows, side="right")
            for group in np.unique(groups):
                table = file.read_row_group(int(group))
                first = int(ends[group]) - len(table)
                for row in np.asarray(rows)[groups == group]:
                    yield self._image(table.slice(int(row) - first, 1))

    def _image(self, row: pa.Table) -> StoredImage:
        """The image of a table of one row."""
        frames, responses = (np.array(row[column][0].values, np.float32) for column in ("keypoints", "responses"))
        descriptors = decode(row["descriptors"][0].as_py(), self.dim, self.extractor.stored)
        size = (row["height"][0].as_py(), row["width"][0].as_py())
        features = Features(frames.reshape(-1, 2, 3), responses, descriptors, size)
        return StoredImage(row["name"][0].as_py(), row["checksum"][0].as_py(), features)


def rows_table(images: Sequence[StoredImage | FailedImage], extractor: Extractor) -> pa.Table:
    """Rows of images, to be written by a `PartWriter`; one whose descriptors cannot be stored has failed."""
    return pa.Table.from_pylist([_row(image, extractor) for image in images], SCHEMA)


def _row(image: StoredImage | FailedImage, extractor: Extractor) -> dict[str, Any]:
    row: dict[str, Any] = {"name": image.name, "checksum": image.checksum, "extractor": extractor.fingerprint}
    if isinstance(image, FailedImage):
        empty = {"height": 0, "width": 0, "keypoints": [], "responses": [], "descriptors": b""}
        return row | empty | {"error": image.reason}
    features = image.features
    try:
        row["descriptors"] = encode(features.descriptors, extractor.stored)
    except ArgumentError as error:
        return _row(FailedImage(image.name, image.checksum, f"{image.name}: {error}"), extractor)
    row["height"], row["width"] = features.image_size
    return row | {"keypoints": features.frames.ravel(), "responses": features.responses}


class PartWriter:
    """Adds rows to a set. One writer to a set at a time; a second one is not noticed.

    As a context it writes what is left at its end, also if that is an error or an interrupt: rows that are made count.
    """

    def __init__(self, folder: Path, extractor: Extractor) -> None:
        """Begin a set, or go on with one; if another extractor made it, its rows do not count from now on."""
        self._folder = make_folder(folder)
        if not (folder / "meta.json").exists() and any(path.suffix != ".unfinished" for path in folder.iterdir()):
            raise DataError(f"{folder}: expected features or an empty folder, got one with other files; choose another")
        last = max(parts_of(folder), default=None, key=_number)
        self._next = _number(last) + 1 if last else 1
        self._waiting: list[pa.Table] = []
        self._since = 0.0
        meta = {"format": FORMAT, "extractor": dataclasses.asdict(extractor)}
        with atomic_write(folder / "meta.json") as unfinished:
            unfinished.write_text(json.dumps(meta, indent=1, sort_keys=True) + "\n")

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._write()

    def add(self, rows: pa.Table) -> None:
        """Add rows; they are on the disk when there are enough for a part, when two minutes are over, or at the end."""
        self._since = self._since if self._waiting else time.monotonic()
        self._waiting.append(rows)
        size = sum(table.nbytes for table in self._waiting)
        if size >= _BYTES_OF_A_PART or time.monotonic() - self._since >= _SECONDS_OF_A_PART:
            self._write()

    def _write(self) -> None:
        if not self._waiting:
            return
        with atomic_write(self._folder / f"part-{self._next:06}.parquet") as unfinished:
            # Descriptors are as good as noise to a compressor; checksums tell a damaged part.
            pq.write_table(
                pa.concat_tables(self._waiting),
                unfinished,
                row_group_size=_ROWS_AT_ONCE,
                compression="none",
                use_dictionary=["extractor"],
                write_page_checksum=True,
            )
        self._next, self._waiting = self._next + 1, []


def parts_of(folder: Path) -> list[Path]:
    """The parts of a set, oldest first."""
    return sorted(folder.glob("part-*.parquet"), key=_number)


def _number(part: Path) -> int:
    text = part.stem.removeprefix("part-")
    if not text.isdecimal():
        raise DataError(f"{part}: expected a part with a number, got another file; move it away")
    return int(text)


def _read_meta(folder: Path) -> dict[str, Any]:
    path = folder / "meta.json"
    if not path.is_file():
        raise DataError(f"{folder}: expected features, a folder with meta.json, got none; make them with doap extract")
    try:
        meta: dict[str, Any] = json.loads(path.read_text())
        made = meta["format"]
        Extractor(**meta["extractor"])
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path}: expected what made the features, got another or a damaged file ({error})") from error
    if made != FORMAT:
        raise DataError(f"{path}: expected format {FORMAT}, got {made}; make the features again with doap extract")
    return meta


@contextmanager
def _opened(part: Path) -> Iterator[pq.ParquetFile]:
    """A part to read from; what is wrong with it is told with its name."""
    try:
        with pq.ParquetFile(part, page_checksum_verification=True) as file:
            if not file.schema_arrow.equals(SCHEMA):
                raise DataError(f"{part}: expected the columns of features, got others; move it away")
            yield file
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{part}: expected a whole part, got a damaged one ({error}); "
            "delete it and run doap extract again, which makes only what is missing"
        ) from error
