"""Files of an index, and how they change.

    INDEX/
    ├── meta.json               parameters, and the current files with their sizes and checksums
    ├── trained.faiss           trained index without descriptors; every shard starts as a copy of it
    ├── shard-000001.faiss      descriptors with their ids, in FAISS's format
    ├── frames-000001.npy       float32 (N, 2, 3), the frames of the descriptors, in the order of ids
    ├── rows-000001.float16     (N, D), the original descriptors, if the shard only holds their codes
    └── images-000001.parquet   one row per image: number, name, checksum, first id, number of descriptors, removed

Files are never modified. A change writes new files and takes effect when the new `meta.json` is renamed into place, so
a killed change has no effect. The next change deletes files that `meta.json` no longer lists. The same change does not,
so that a program that has just opened the index can still read them. A change that starts while another one runs is
refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
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
from doap.files import atomic_write, read_json, sha256
from doap.scale.extractor import ExtractorInfo
from doap.scale.index.engine import IndexPlan
from doap.settings import FORBID_EXTRA, validate

FORMAT = 3
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
FileName = Annotated[str, Field(pattern=r"^[a-z]+(-\d{6})?\.(faiss|npy|float16|parquet)$")]
"""Name of a file of an index; never a path to another folder."""
Count = Annotated[int, Field(ge=0, strict=True)]
_PATTERNS = ("shard-*", "frames-*", "rows-*", "images-*", "*.unfinished")


@dataclass(frozen=True)
class _Parameters(IndexPlan):
    metric: str


@dataclass(frozen=True)
class _Training:
    sample: Count
    seed: Count
    max_keypoints: Annotated[int, Field(ge=1)] | None


@dataclass(frozen=True)
class _Shard:
    index: FileName
    frames: FileName
    first_id: Count
    count: Count
    rows: FileName | None = None


@dataclass(frozen=True)
class _File:
    bytes: Count
    sha256: str


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
    shards: Annotated[list[_Shard], Field(min_length=1)]
    sources: list[_Source]
    files: dict[FileName, _File]

    def __post_init__(self) -> None:
        listed = {self.images, *(shard.index for shard in self.shards), *(shard.frames for shard in self.shards)}
        if absent := sorted(listed - self.files.keys()):
            raise ArgumentError(f"files: expected {absent[0]} among them.")
        plan = self.index
        if min(plan.lists, plan.probes, plan.sample) < 0 or plan.probes > plan.lists:
            raise ArgumentError(f"index: expected probes of 0 to {plan.lists} lists, got {plan.probes}.")
        if plan.kind == "ivf-pq" and any(shard.rows is None for shard in self.shards):
            raise ArgumentError("shards: expected rows in every shard of an ivf-pq index.")


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


NO_IMAGES = ImageTable([], [], np.empty(0, np.int64), np.empty(0, np.bool_))


def write_change(folder: Path, meta: dict[str, Any], images: ImageTable) -> None:
    """Make a change take effect: write the images and a `meta.json` that lists the current files."""
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
    with atomic_write(file) as unfinished:
        pq.write_table(table, unfinished, compression="zstd")
    roles = ("index", "frames", "rows")
    shard_files = (shard[role] for shard in meta["shards"] for role in roles if role in shard)
    current = sorted({"trained.faiss", file.name, *shard_files})
    files = {name: meta["files"].get(name) or _identify(folder / name) for name in current}
    with atomic_write(folder / "meta.json") as unfinished:
        changed = {**meta, "revision": revision, "images": file.name, "files": files}
        unfinished.write_text(json.dumps(changed, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def clean(folder: Path, meta: dict[str, Any]) -> None:
    """Delete files that are no longer current, or that a killed change left behind."""
    for path in (path for pattern in _PATTERNS for path in folder.glob(pattern)):
        if path.name not in meta["files"]:
            path.unlink(missing_ok=True)


def read_meta(folder: Path) -> dict[str, Any]:
    """Read meta.json, and check its keys and the sizes of the files it lists."""
    path = folder / "meta.json"
    if not path.is_file():
        raise DataError(f"{folder}: not an index (no meta.json). Build one with doap index build.")
    meta = read_json(path, "the metadata of an index")
    if (found := meta.get("format")) != FORMAT:
        raise DataError(f"{path}: not an index: expected format {FORMAT}, got {found!r}. Build the index again.")
    validate(_Meta, meta, f"{path}: not an index")
    for name, identity in meta["files"].items():
        size = (folder / name).stat().st_size if (folder / name).is_file() else None
        if size != identity["bytes"]:
            state = "no file" if size is None else f"{size:,}"
            raise DataError(
                f"{folder / name}: expected {identity['bytes']:,} bytes, got {state}. Copy the index again."
            )
    return meta


def read_images(folder: Path, meta: dict[str, Any]) -> ImageTable:
    """Read the images of an index."""
    path = folder / meta["images"]
    try:
        table = pq.read_table(path, schema=SCHEMA, use_threads=False)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{path}: damaged. Copy the index again.") from error
    counts = table["descriptors"].to_numpy()
    # A column with nulls becomes floats.
    if any(column.null_count for column in table.columns) or (len(counts) and counts.min() < 0):
        raise DataError(f"{path}: damaged. Copy the index again.")
    return ImageTable(
        table["name"].to_pylist(),
        table["checksum"].to_pylist(),
        counts.astype(np.int64),
        np.array(table["removed"].to_pylist(), np.bool_),
    )


def check_files(folder: Path, meta: dict[str, Any]) -> None:
    """Compare the checksums of all files."""
    for name, identity in meta["files"].items():
        if (found := sha256(folder / name)) != identity["sha256"]:
            raise DataError(
                f"{folder / name}: expected SHA-256 {identity['sha256']}, got {found}. Copy or build the index again."
            )


def _identify(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}
