"""Files of an index, and how they change.

    INDEX/
    ├── meta.json               parameters, and the current files with their sizes and checksums
    ├── trained.faiss           trained index without descriptors; every segment starts as a copy of it
    ├── segment-000001.faiss    descriptors with their ids, in FAISS's format
    ├── frames-000001.npy       float32 (N, 2, 3), the frames of the descriptors, in the order of ids
    ├── rows-000001.float16     (N, D), the original descriptors, if the segment only holds their codes
    └── images-000001.parquet   one row per image: number, name, checksum, first id, number of descriptors, removed

Files are never modified, and their names are never used again. A change writes new files and takes effect when the new
`meta.json` is renamed into place, so a killed change has no effect. Then it deletes files that `meta.json` no longer
lists, including the files that a killed change left behind. A change that starts while another one runs is refused.

At a URL, the names of files also have a hash of their contents, such as `trained-5d41402abc4b2a76.faiss`; see
`snapshots`.

A reader opens all files that it needs at once, and keeps this state: the system frees a deleted file when the last
reader closes it. A reader that finds a file missing while it opens the index starts again with the next `meta.json`.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field

from doap.errors import ArgumentError, DataError
from doap.files import atomic_write, parse_json, sha256
from doap.scale.extractor import ExtractorInfo
from doap.scale.index.engine import IndexPlan
from doap.scale.storage import Storage
from doap.settings import FORBID_EXTRA, validate

FORMAT = 4
SCHEMA = pa.schema(
    {
        "number": pa.int32(),
        "name": pa.string(),
        "checksum": pa.string(),
        "first_id": pa.int64(),
        "descriptors": pa.int32(),
        "removed": pa.bool_(),
    }
)
META = "meta.json"
FILE_NAME = r"^[a-z]+(-\d{6})?(-[0-9a-f]{16})?\.(faiss|npy|float16|parquet)$"
"""Pattern of the name of a file of an index; never a path to another folder."""
FileName = Annotated[str, Field(pattern=FILE_NAME)]
Count = Annotated[int, Field(ge=0, strict=True)]
_ROLES = ("index", "frames", "rows")
_PATTERNS = ("segment-*", "frames-*", "rows-*", "images-*", "*.unfinished")


@dataclass(frozen=True)
class _Parameters(IndexPlan):
    metric: str


@dataclass(frozen=True)
class _Training:
    sample: Count
    seed: Count
    max_keypoints: Annotated[int, Field(ge=1)] | None


@dataclass(frozen=True)
class _Segment:
    index: FileName
    frames: FileName
    first_id: Count
    count: Count
    rows: FileName | None = None


@dataclass(frozen=True)
class _File:
    bytes: Count
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class _Source:
    checksum: str
    images: Count
    descriptors: Count


@dataclass(frozen=True)
class _Meta:
    """Schema of meta.json."""

    __pydantic_config__ = FORBID_EXTRA

    format: int
    revision: Count
    index: _Parameters
    extractor: ExtractorInfo
    training: _Training
    images: FileName
    segments: list[_Segment]
    next_segment: Annotated[int, Field(ge=1)]
    sources: list[_Source]
    files: dict[FileName, _File]

    def __post_init__(self) -> None:
        listed = {trained_file(self.files), self.images}
        for segment in self.segments:
            listed |= {segment.index, segment.frames} | ({segment.rows} if segment.rows else set())
        if absent := sorted(listed - self.files.keys()):
            raise ArgumentError(f"files: expected {absent[0]} among them.")
        plan = self.index
        if min(plan.lists, plan.probes, plan.sample) < 0 or plan.probes > plan.lists:
            raise ArgumentError(f"index: expected probes of 0 to {plan.lists} lists, got {plan.probes}.")
        next_id = 0
        for segment in self.segments:
            if segment.first_id != next_id:
                raise ArgumentError(f"segments: expected consecutive ids, got {segment.first_id} instead of {next_id}.")
            next_id += segment.count
        if plan.kind == "ivf-pq" and any(segment.rows is None for segment in self.segments):
            raise ArgumentError("segments: expected rows in every segment of an ivf-pq index.")


@dataclass(frozen=True, eq=False)
class ImageTable:
    """Images of an index by number; removed images keep their numbers.

    Attributes:
        names: Names of the images.
        checksums: SHA-256 of their files.
        counts: (I,) int64, number of descriptors per image.
        removed: (I,) bool.
    """

    names: list[str]
    checksums: list[str]
    counts: NDArray[np.int64]
    removed: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def first_ids(self) -> NDArray[np.int64]:
        """(I,) id of the first descriptor of each image; ids are consecutive, image after image."""
        return self.counts.cumsum() - self.counts

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Numbers of the images that are not removed, by name."""
        return {self.names[number]: number for number in np.flatnonzero(~self.removed).tolist()}

    def extend(
        self, names: Sequence[str], checksums: Sequence[str], counts: NDArray[np.int64], remove: Sequence[str]
    ) -> ImageTable:
        """Return a table with more images at the end and some of the current images removed."""
        removed = self.removed.copy()
        removed[[self.numbers[name] for name in remove]] = True
        return ImageTable(
            [*self.names, *names],
            [*self.checksums, *checksums],
            np.concatenate([self.counts, counts]),
            np.concatenate([removed, np.zeros(len(names), np.bool_)]),
        )

    def compact(self) -> ImageTable:
        """Return a table in which removed images have no descriptors, and earlier versions of an image no row.

        Names of removed images stay, because these images cannot be added again.
        """
        last = {name: number for number, name in enumerate(self.names)}
        kept = np.array(sorted((last | self.numbers).values()), np.int64)
        return ImageTable(
            [self.names[number] for number in kept.tolist()],
            [self.checksums[number] for number in kept.tolist()],
            np.where(self.removed[kept], 0, self.counts[kept]),
            self.removed[kept],
        )


def concatenate(tables: Sequence[ImageTable]) -> ImageTable:
    """Return one table of the images of several indexes; the ids of the second follow those of the first."""
    return ImageTable(
        [name for table in tables for name in table.names],
        [checksum for table in tables for checksum in table.checksums],
        np.concatenate([NO_IMAGES.counts, *(table.counts for table in tables)]),
        np.concatenate([NO_IMAGES.removed, *(table.removed for table in tables)]),
    )


NO_IMAGES = ImageTable([], [], np.empty(0, np.int64), np.empty(0, np.bool_))


def write_change(folder: Path, meta: dict[str, Any], images: ImageTable) -> dict[str, Any]:
    """Make a change take effect: write the images and a `meta.json` that lists the current files; delete old files.

    Returns:
        Contents of the new `meta.json`.
    """
    revision = meta["revision"] + 1
    file = folder / f"images-{revision:06}.parquet"
    table = pa.table(
        {
            "number": pa.array(np.arange(len(images)), pa.int32()),
            "name": pa.array(images.names, pa.string()),
            "checksum": pa.array(images.checksums, pa.string()),
            "first_id": pa.array(images.first_ids),
            "descriptors": pa.array(images.counts, pa.int32()),
            "removed": pa.array(images.removed),
        },
        schema=SCHEMA,
    )
    # An open file, because Arrow takes a path with a colon for a URL.
    with atomic_write(file) as unfinished, unfinished.open("wb") as stream:
        pq.write_table(table, stream, compression="zstd")
    current = sorted({trained_file(meta["files"]), file.name, *list_segment_files(meta)})
    files = {name: meta["files"].get(name) or _identify(folder / name) for name in current}
    changed = {**meta, "revision": revision, "images": file.name, "files": files}
    with atomic_write(folder / META) as unfinished:
        unfinished.write_bytes(format_meta(changed))
    _clean(folder, changed)
    return changed


def format_meta(meta: dict[str, Any]) -> bytes:
    """Return the contents of a `meta.json`."""
    return (json.dumps(meta, indent=1, sort_keys=True) + "\n").encode()


def trained_file(files: Iterable[str]) -> str:
    """Return the name of the trained index, given the files of an index, which may be none yet."""
    return next((name for name in files if name.startswith("trained")), "trained.faiss")


def list_segment_files(meta: dict[str, Any]) -> list[str]:
    """Return the names of the files of all segments."""
    return [segment[role] for segment in meta["segments"] for role in _ROLES if role in segment]


def rename_files(meta: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the contents of `meta.json` after some files got new names."""
    segments = [
        {key: names.get(value, value) if key in _ROLES else value for key, value in segment.items()}
        for segment in meta["segments"]
    ]
    files = {names.get(name, name): identity for name, identity in meta["files"].items()}
    return {**meta, "images": names.get(meta["images"], meta["images"]), "segments": segments, "files": files}


def _clean(folder: Path, meta: dict[str, Any]) -> None:
    """Delete files that are no longer current, or that a killed change left behind."""
    for path in (path for pattern in _PATTERNS for path in folder.glob(pattern)):
        if path.name not in meta["files"]:
            # Windows does not delete a file that a reader has open. A later change does.
            with suppress(OSError):
                path.unlink(missing_ok=True)


def read_meta(storage: Storage) -> dict[str, Any]:
    """Read meta.json and check its keys."""
    path = storage.locate(META)
    try:
        content = storage.read(META)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(f"{storage}: not an index (no {META}). Build one with doap index build.") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}.") from error
    meta = parse_json(content, path, "the metadata of an index")
    if (found := meta.get("format")) != FORMAT:
        raise DataError(f"{path}: not an index: expected format {FORMAT}, got {found!r}. Build the index again.")
    validate(_Meta, meta, f"{path}: not an index")
    return meta


def check_sizes(folder: Path, meta: dict[str, Any]) -> None:
    """Compare the sizes of all files."""
    for name, identity in meta["files"].items():
        try:
            size: int | None = (folder / name).stat().st_size
        except OSError:
            size = None
        if size != identity["bytes"]:
            state = "no file" if size is None else f"{size:,}"
            raise DataError(
                f"{folder / name}: expected {identity['bytes']:,} bytes, got {state}. Copy the index again."
            )


def read_images(folder: Path, meta: dict[str, Any]) -> ImageTable:
    """Read the images of an index."""
    path = folder / meta["images"]
    try:
        with path.open("rb") as stream:
            table = pq.read_table(stream, schema=SCHEMA, use_threads=False)
        table.validate(full=True)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{path}: damaged. Copy the index again.") from error
    counts = table["descriptors"].to_numpy()
    # A column with nulls becomes floats.
    if any(column.null_count for column in table.columns) or (len(counts) and counts.min() < 0):
        raise DataError(f"{path}: damaged. Copy the index again.")
    # Readers allocate memory by these numbers.
    if (found := counts.sum()) != (expected := sum(segment["count"] for segment in meta["segments"])):
        raise DataError(
            f"{path}: expected images with {expected:,} descriptors, as in the segments, got {found:,}. "
            "Copy or build the index again."
        )
    return ImageTable(
        table["name"].to_pylist(),
        table["checksum"].to_pylist(),
        counts.astype(np.int64),
        np.array(table["removed"].to_pylist(), np.bool_),
    )


def map_frames(folder: Path, segment: dict[str, Any]) -> NDArray[np.float32]:
    """Map the frames (N, 2, 3) of a segment into memory."""
    path = folder / segment["frames"]
    try:
        frames: NDArray[np.float32] = np.load(path, mmap_mode="r" if segment["count"] else None, allow_pickle=False)
    # numpy parses the header as Python code, whose parser raises many types of errors.
    except Exception as error:
        raise DataError(f"{path}: damaged. Copy or build the index again.") from error
    if frames.shape != (expected := (segment["count"], 2, 3)) or frames.dtype != np.float32:
        raise DataError(
            f"{path}: expected float32 {expected}, got {frames.dtype} {frames.shape}. Copy or build the index again."
        )
    return frames


def map_rows(folder: Path, segment: dict[str, Any], dim: int, *, sequential: bool = True) -> NDArray[np.float16] | None:
    """Map the original descriptors (N, D) of a segment into memory; None if it has none.

    Args:
        folder: Folder of the index.
        segment: Entry of the segment in meta.json.
        dim: Dimension D.
        sequential: Whether the rows are read in order. Otherwise, read-ahead is turned off: it would read up to
            megabytes around every row.
    """
    if segment.get("rows") is None or not segment["count"]:
        return None
    path = folder / segment["rows"]
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if not sequential and hasattr(mmap, "MADV_RANDOM"):
            mapped.madvise(mmap.MADV_RANDOM)
        return np.frombuffer(mapped, np.float16, segment["count"] * dim).reshape(-1, dim)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: damaged. Copy or build the index again.") from error


def check_files(folder: Path, meta: dict[str, Any]) -> None:
    """Compare the checksums of all files."""
    for name, identity in meta["files"].items():
        if (found := sha256(folder / name)) != identity["sha256"]:
            raise DataError(
                f"{folder / name}: expected SHA-256 {identity['sha256']}, got {found}. Copy or build the index again."
            )


def _identify(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}
