"""An index on disk: its files, which of them count, and how they change.

    INDEX/
    ├── meta.json               what the index is, and which of the files below count; their sizes and checksums
    ├── trained.faiss           the index without descriptors: what shards are made from
    ├── shard-000001.faiss      descriptors with their ids, as FAISS writes them
    ├── frames-000001.npy       float32 (N, 2, 3), where each of them lies in its image, in the order of ids
    ├── rows-000001.float16     (N, D), the descriptors themselves, if the shard has nothing but codes of them
    └── images-000001.parquet   a row for each image: number, name, checksum, first id, number of descriptors, removed

Files are never changed. A change writes new ones, and happens at the moment when a new `meta.json` gets its name:
killed before, nothing has changed; afterwards, all has. What no `meta.json` names is cleaned away by the next change,
not by the same one, so that whoever has opened the index just before can still read it. One change at a time: a second
one is refused at its end, unless both end in the same moment.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from doap.errors import DataError
from doap.files import atomic_write, read_json, sha256

FORMAT = 2
SCHEMA = pa.schema(
    {
        "number": pa.int32(),
        "name": pa.string(),
        "checksum": pa.string(),
        "first": pa.int64(),
        "count": pa.int32(),
        "removed": pa.bool_(),
    }
)
_KEYS = ("format", "changes", "index", "extractor", "training", "images", "shards", "sources", "files")
_OURS = ("shard-*", "frames-*", "rows-*", "images-*", "*.unfinished")


@dataclass(frozen=True, eq=False)
class ImageTable:
    """The images of an index, by number; those that were removed keep theirs.

    Attributes:
        names, checksums: of the image files.
        count: (I,) int64, descriptors of each.
        removed: (I,) bool.
    """

    names: list[str]
    checksums: list[str]
    count: NDArray[np.int64]
    removed: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """(I,) the id of each image's first descriptor: ids are consecutive, image after image."""
        return self.count.cumsum() - self.count

    @cached_property
    def number_of(self) -> dict[str, int]:
        """Numbers of the images that are there."""
        return {self.names[number]: number for number in np.flatnonzero(~self.removed).tolist()}

    def and_more(
        self, names: Sequence[str], checksums: Sequence[str], count: NDArray[np.int64], without: Sequence[str]
    ) -> ImageTable:
        """With more images at the end, and without some of those before."""
        removed = self.removed.copy()
        removed[[self.number_of[name] for name in without]] = True
        return ImageTable(
            [*self.names, *names],
            [*self.checksums, *checksums],
            np.concatenate([self.count, count]),
            np.concatenate([removed, np.zeros(len(names), np.bool_)]),
        )


NO_IMAGES = ImageTable([], [], np.empty(0, np.int64), np.empty(0, np.bool_))


def write_change(folder: Path, meta: dict[str, Any], images: ImageTable) -> None:
    """Make a change count: `meta` with the files it names is the index from now on."""
    changes = meta["changes"] + 1
    if changes > 1 and read_meta(folder)["changes"] != meta["changes"]:
        raise DataError(f"{folder}: expected no change by others meanwhile, got one; run the command again")
    file = folder / f"images-{changes:06}.parquet"
    table = pa.table(
        {
            "number": pa.array(np.arange(len(images)), pa.int32()),
            "name": pa.array(images.names, pa.string()),
            "checksum": pa.array(images.checksums, pa.string()),
            "first": pa.array(images.first),
            "count": pa.array(images.count, pa.int32()),
            "removed": pa.array(images.removed),
        },
        schema=SCHEMA,
    )
    with atomic_write(file) as unfinished:
        pq.write_table(table, unfinished, compression="zstd")
    roles = ("index", "frames", "rows")
    named = {"trained.faiss", file.name, *(shard[role] for shard in meta["shards"] for role in roles if role in shard)}
    files = {name: meta["files"].get(name) or _identity(folder / name) for name in sorted(named)}
    with atomic_write(folder / "meta.json") as unfinished:
        changed = {**meta, "changes": changes, "images": file.name, "files": files}
        unfinished.write_text(json.dumps(changed, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def clean(folder: Path, meta: dict[str, Any]) -> None:
    """Delete what a change that was killed, or the one before, has left."""
    for path in (path for pattern in _OURS for path in folder.glob(pattern)):
        if path.name not in meta["files"]:
            path.unlink(missing_ok=True)


def read_meta(folder: Path) -> dict[str, Any]:
    """What meta.json says, if it is one of an index and all files that it names have their sizes."""
    path = folder / "meta.json"
    if not path.is_file():
        raise DataError(
            f"{folder}: expected an index, a folder with meta.json, got none; make it with doap index build"
        )
    meta = read_json(path)
    if missing := [key for key in _KEYS if key not in meta]:
        raise DataError(
            f"{path}: expected that of an index, got no {', '.join(missing)}; make it with doap index build"
        )
    if meta["format"] != FORMAT:
        raise DataError(f"{path}: expected format {FORMAT}, got {meta['format']!r}; build the index again")
    for name, identity in meta["files"].items():
        found = (folder / name).stat().st_size if (folder / name).is_file() else None
        if found != identity["bytes"]:
            what = "no file" if found is None else f"{found:,}"
            raise DataError(f"{folder / name}: expected {identity['bytes']:,} bytes, got {what}; copy the index again")
    return meta


def read_images(folder: Path, meta: dict[str, Any]) -> ImageTable:
    """The images of an index."""
    path = folder / meta["images"]
    try:
        table = pq.read_table(path, schema=SCHEMA, use_threads=False)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{path}: expected the images of an index, got a damaged file; copy the index again") from error
    return ImageTable(
        table["name"].to_pylist(),
        table["checksum"].to_pylist(),
        table["count"].to_numpy().astype(np.int64),
        np.array(table["removed"].to_pylist(), np.bool_),
    )


def check_files(folder: Path, meta: dict[str, Any]) -> None:
    """Read all files and compare their checksums."""
    for name, identity in meta["files"].items():
        if (found := sha256(folder / name)) != identity["sha256"]:
            raise DataError(
                f"{folder / name}: expected sha256 {identity['sha256']}, got {found}; copy or build the index again"
            )


def _identity(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}
