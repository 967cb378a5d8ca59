"""Files of a FAISS index, and how they change.

    INDEX/
    ├── meta.json                  parameters, and the current files with their sizes and checksums
    ├── descriptors-000001.faiss   descriptors with their ids, in FAISS's format
    ├── frames-000001.npy          float32 (N, 2, 3), the frames of the descriptors, image after image
    ├── rows-000001.npy            float16 (N, D), the original descriptors, if the index only holds their codes
    └── images-000001.parquet      one row per image: name, checksum, first id, number of descriptors, removed

Files are never modified, and their names are never used again. A change writes new files and takes effect when the new
`meta.json` is renamed into place, so a killed change has no effect. Then it deletes files that `meta.json` no longer
lists, including files that a killed change left behind. A change that starts while another one runs is refused.

A reader opens all files that it needs at once, and keeps this state: the system frees a deleted file when the last
reader closes it. A reader that finds a file missing while it opens the index starts again with the next `meta.json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field

from doap._support.errors import ArgumentError, DataError
from doap._support.files import OutputLock, atomic_write, read_json, sha256
from doap._support.settings import FORBID_EXTRA, validate
from doap.collection.extractor import ExtractorInfo
from doap.collection.index.plan import IndexPlan

FORMAT = 1
META = "meta.json"
SCHEMA = pa.schema(
    {
        "name": pa.string(),
        "checksum": pa.string(),
        "first_id": pa.int64(),
        "descriptors": pa.int32(),
        "removed": pa.bool_(),
    }
)
Role = Literal["descriptors", "frames", "rows", "images"]
_SUFFIXES: dict[Role, str] = {"descriptors": "faiss", "frames": "npy", "rows": "npy", "images": "parquet"}
_REMEDY = "Copy or build the index again."
Count = Annotated[int, Field(ge=0, strict=True)]
Append = Callable[[NDArray[np.float32], NDArray[Any]], None]
"""Appends the frames (N, 2, 3) of descriptors (N, D) to the files of an index; codes also need the descriptors."""


@dataclass(frozen=True)
class _File:
    # Never a path to another folder.
    name: Annotated[str, Field(pattern=r"^[a-z]+-\d{6,}\.(faiss|npy|parquet)$")]
    bytes: Count
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class _Meta:
    """Schema of meta.json."""

    __pydantic_config__ = FORBID_EXTRA

    format: int
    revision: Count
    index: IndexPlan
    extractor: ExtractorInfo
    seed: Count
    max_keypoints: Annotated[int, Field(ge=1)] | None
    stored: Count  # number of descriptors in the files, with those of removed images
    sources: list[str]  # checksums of the feature sets
    files: dict[Role, _File]

    def __post_init__(self) -> None:
        plan = self.index
        if min(plan.lists, plan.probes, plan.sample) < 0 or plan.probes > plan.lists:
            raise ArgumentError(f"index: expected probes of 0 to {plan.lists} lists, got {plan.probes}.")
        needed = set(_SUFFIXES) - (set() if plan.kind == "ivf-pq" else {"rows"})
        if absent := sorted(needed - self.files.keys()):
            raise ArgumentError(f"files: expected {absent[0]} among them.")


@dataclass(frozen=True, eq=False)
class ImageTable:
    """Images of an index by number, in the order of their descriptors in the files.

    Attributes:
        names: Names of the images.
        checksums: SHA-256 of their files.
        first_ids: (I,) id of the first descriptor of each image; the others follow.
        counts: (I,) int64, number of descriptors per image in the files.
        removed: (I,) bool. The name of a removed image stays, because the image cannot be added again.
    """

    names: list[str]
    checksums: list[str]
    first_ids: NDArray[np.int64]
    counts: NDArray[np.int64]
    removed: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Numbers of the images that are not removed, by name."""
        return {self.names[number]: number for number in np.flatnonzero(~self.removed).tolist()}

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """(I,) position of the first descriptor of each image in the files."""
        return self.counts.cumsum() - self.counts

    @property
    def next_id(self) -> int:
        """Id of the first descriptor of the next image."""
        return int(self.first_ids[-1] + self.counts[-1]) if len(self) else 0

    def image_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the images of descriptor ids of any shape; −1 for −1."""
        # An image without descriptors has the same first id as the next image; the last of them has the descriptor.
        return np.where(ids < 0, -1, np.searchsorted(self.first_ids, ids, side="right") - 1)

    def position_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of descriptors in the files; ids are 0 or more."""
        numbers = self.image_of(ids)
        return np.asarray(ids - self.first_ids[numbers] + self.positions[numbers])

    def ids_of(self, number: int) -> NDArray[np.int64]:
        """Return the ids (N,) of the descriptors of an image."""
        return np.asarray(self.first_ids[number] + np.arange(self.counts[number]))

    def extend(
        self, names: Sequence[str], checksums: Sequence[str], counts: NDArray[np.int64], remove: Sequence[str] = ()
    ) -> ImageTable:
        """Return a table with more images at the end and some of the current images removed."""
        removed = self.removed.copy()
        removed[[self.numbers[name] for name in remove]] = True
        return ImageTable(
            [*self.names, *names],
            [*self.checksums, *checksums],
            np.concatenate([self.first_ids, self.next_id + counts.cumsum() - counts]),
            np.concatenate([self.counts, counts]),
            np.concatenate([removed, np.zeros(len(names), np.bool_)]),
        )

    def compact(self) -> ImageTable:
        """Return a table in which removed images have no descriptors, and earlier versions of an image no row."""
        last = {name: number for number, name in enumerate(self.names)}
        kept = np.array(sorted((last | self.numbers).values()), np.int64)
        return ImageTable(
            [self.names[number] for number in kept.tolist()],
            [self.checksums[number] for number in kept.tolist()],
            self.first_ids[kept],
            np.where(self.removed[kept], 0, self.counts[kept]),
            self.removed[kept],
        )


NO_IMAGES = ImageTable([], [], np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_))


def local_folder(index: str | Path) -> Path:
    """Return the folder of an index, which must be on this machine."""
    scheme, separator, _ = str(index).partition("://")
    if isinstance(index, str) and separator:
        raise ArgumentError(
            f"index: expected a folder on this machine, got a URL ({scheme}://). Copy it, or use --engine milvus."
        )
    return Path(index)


@contextmanager
def change_folder(folder: Path) -> Iterator[dict[str, Any]]:
    """Lock the folder of an index, and yield the contents of `meta.json`."""
    read_meta(folder)
    with OutputLock(folder, inside=True):
        meta = read_meta(folder)
        check_sizes(folder, meta)
        _clean(folder, meta)
        yield meta


def new_file(folder: Path, meta: dict[str, Any], role: Role) -> Path:
    """Return the path of a file that the next `commit` will list, if it exists."""
    return folder / f"{role}-{meta['revision'] + 1:06}.{_SUFFIXES[role]}"


def current_file(folder: Path, meta: dict[str, Any], role: Role) -> Path:
    """Return the path of a current file."""
    return folder / str(meta["files"][role]["name"])


def commit(folder: Path, meta: dict[str, Any], images: ImageTable) -> dict[str, Any]:
    """Make a change take effect: write the images and a `meta.json` that lists the new files; delete old files.

    Returns:
        Contents of the new `meta.json`.
    """
    table = pa.table(
        {
            "name": pa.array(images.names, pa.string()),
            "checksum": pa.array(images.checksums, pa.string()),
            "first_id": pa.array(images.first_ids),
            "descriptors": pa.array(images.counts, pa.int32()),
            "removed": pa.array(images.removed),
        },
        schema=SCHEMA,
    )
    # An open file, because Arrow takes a path with a colon for a URL.
    with atomic_write(new_file(folder, meta, "images")) as unfinished, unfinished.open("wb") as stream:
        pq.write_table(table, stream, compression="zstd")
    new = {role: path for role in _SUFFIXES if (path := new_file(folder, meta, role)).exists()}
    identities = {
        role: {"name": path.name, "bytes": path.stat().st_size, "sha256": sha256(path)} for role, path in new.items()
    }
    changed = {
        **meta,
        "revision": meta["revision"] + 1,
        "stored": int(images.counts.sum()),
        "files": {**meta["files"], **identities},
    }
    with atomic_write(folder / META) as unfinished:
        unfinished.write_text(json.dumps(changed, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    _clean(folder, changed)
    return changed


def _clean(folder: Path, meta: dict[str, Any]) -> None:
    """Delete files that are no longer current, or that a killed change left behind."""
    current = {file["name"] for file in meta["files"].values()}
    for path in (path for role in _SUFFIXES for path in folder.glob(f"{role}-*")):
        if path.name not in current:
            # Windows does not delete a file that a reader has open. A later change does.
            with suppress(OSError):
                path.unlink(missing_ok=True)


def read_meta(folder: Path) -> dict[str, Any]:
    """Read meta.json and check its keys."""
    path = folder / META
    if not path.exists():
        raise DataError(f"{folder}: not an index (no {META}). Build one with doap index build.")
    meta = read_json(path, "the metadata of an index")
    if (found := meta.get("format")) != FORMAT:
        raise DataError(f"{path}: not an index: expected format {FORMAT}, got {found!r}. Build the index again.")
    validate(_Meta, meta, f"{path}: not an index")
    return meta


def check_sizes(folder: Path, meta: dict[str, Any]) -> None:
    """Compare the sizes of all files."""
    for file in meta["files"].values():
        path = folder / file["name"]
        found = f"{path.stat().st_size:,}" if path.is_file() else "no file"
        if found != (expected := f"{file['bytes']:,}"):
            raise DataError(f"{path}: expected {expected} bytes, got {found}. Copy the index again.")


def check_files(folder: Path, meta: dict[str, Any]) -> None:
    """Compare the checksums of all files."""
    for file in meta["files"].values():
        if (found := sha256(folder / file["name"])) != file["sha256"]:
            raise DataError(f"{folder / file['name']}: expected SHA-256 {file['sha256']}, got {found}. {_REMEDY}")


def read_images(folder: Path, meta: dict[str, Any]) -> ImageTable:
    """Read the images of an index."""
    path = current_file(folder, meta, "images")
    try:
        with path.open("rb") as stream:
            table = pq.read_table(stream, schema=SCHEMA, use_threads=False)
        table.validate(full=True)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{path}: damaged. {_REMEDY}") from error
    first_ids, counts = table["first_id"].to_numpy(), table["descriptors"].to_numpy()
    # A column with nulls becomes floats.
    if (
        any(column.null_count for column in table.columns)
        or (counts < 0).any()
        or (len(counts) and first_ids[0] < 0)
        or (np.diff(first_ids) < counts[:-1]).any()
    ):
        raise DataError(f"{path}: damaged. {_REMEDY}")
    # Readers allocate memory by these numbers.
    if (found := counts.sum(dtype=np.int64)) != meta["stored"]:
        raise DataError(f"{path}: expected images with {meta['stored']:,} descriptors, got {found:,}. {_REMEDY}")
    return ImageTable(
        table["name"].to_pylist(),
        table["checksum"].to_pylist(),
        first_ids,
        counts.astype(np.int64),
        np.array(table["removed"].to_pylist(), np.bool_),
    )


@contextmanager
def array_files(folder: Path, meta: dict[str, Any], count: int) -> Iterator[Append]:
    """Create the files of the frames and, for codes, of the original descriptors; yield a function that appends."""
    with ExitStack() as stack:

        def create(role: Role, shape: tuple[int, ...], dtype: str) -> Any:
            unfinished = stack.enter_context(atomic_write(new_file(folder, meta, role)))
            file = stack.enter_context(unfinished.open("wb"))
            header = {"descr": dtype, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            return file

        frames = create("frames", (count, 2, 3), "<f4")
        rows = create("rows", (count, meta["extractor"]["dim"]), "<f2") if meta["index"]["kind"] == "ivf-pq" else None

        def append(some_frames: NDArray[np.float32], descriptors: NDArray[Any]) -> None:
            frames.write(some_frames.astype("<f4", copy=False).tobytes())
            if rows:
                rows.write(descriptors.astype("<f2", copy=False).tobytes())

        yield append


def map_frames(folder: Path, meta: dict[str, Any]) -> NDArray[np.float32]:
    """Map the frames (N, 2, 3) into memory."""
    return _map(current_file(folder, meta, "frames"), (meta["stored"], 2, 3), np.float32)


def map_rows(folder: Path, meta: dict[str, Any]) -> NDArray[np.float16] | None:
    """Map the original descriptors (N, D) into memory; None if there are none."""
    if "rows" not in meta["files"]:
        return None
    return _map(current_file(folder, meta, "rows"), (meta["stored"], meta["extractor"]["dim"]), np.float16)


def _map(path: Path, shape: tuple[int, ...], dtype: type) -> NDArray[Any]:
    try:
        found: NDArray[Any] = np.load(path, mmap_mode="r" if shape[0] else None, allow_pickle=False)
    # numpy parses the header as Python code, whose parser raises many types of errors.
    except Exception as error:
        raise DataError(f"{path}: damaged. {_REMEDY}") from error
    if found.shape != shape or found.dtype != dtype:
        raise DataError(f"{path}: expected {np.dtype(dtype)} {shape}, got {found.dtype} {found.shape}. {_REMEDY}")
    return found
