"""Open, check, split and merge patch sets on disk.

    NAME/
    ├── patches.npy      uint8 (N, S, S), memory-mapped
    ├── groups.parquet   one row per group: start, count, scene, source, ignore
    └── meta.json        format, builder, licence ledger, sizes, checksums

A group holds the patches of one physical point: `count` patches from index `start` on. Groups
follow each other without gaps.
"""

from __future__ import annotations

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

from doap._support.errors import ArgumentError, DataError, is_out_of_memory
from doap._support.files import read_json, sha256
from doap._support.settings import validate
from doap.data.sampler import from_tracks
from doap.data.writer import FORMAT, SCHEMA, SetWriter, UnitGroups

GROUPS_AT_ONCE = 4096
_REBUILD = "Copy or build the set again."


@dataclass(frozen=True, eq=False)
class PatchSet:
    """An open patch set of N patches in G groups.

    Patches stay on disk until they are read. Columns that training does not need are read on first
    access.

        patch_set = open_set("my.patches")
        patches = patch_set.gather(patch_set.members(np.array([0, 5])))   # (n, S, S)

    Attributes:
        path: Folder of the set.
        meta: Contents of `meta.json`.
        patches: (N, S, S) uint8, read-only and memory-mapped.
        start: (G,) int64, index of the first patch of each group.
        count: (G,) int64, number of patches of each group.
        scene_ids: (G,) int32, index into `scene_names`.
        scene_names: Names of the scenes.
        extent: Patch side relative to the side of the keypoint's frame.
    """

    path: Path
    meta: dict[str, Any]
    patches: NDArray[np.uint8]
    start: NDArray[np.int64]
    count: NDArray[np.int64]
    scene_ids: NDArray[np.int32]
    scene_names: list[str]
    extent: float

    def __len__(self) -> int:
        return len(self.count)

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process opens the set again, because a pickled memory map contains all patches.
        return open_set, (self.path,)

    @property
    def patch_size(self) -> int:
        """Side S of the patches in pixels."""
        return int(self.patches.shape[1])

    @property
    def source_ids(self) -> NDArray[np.int32]:
        """(G,) index into `source_names`: the model or photo of each group."""
        return self._source[0]

    @property
    def source_names(self) -> list[str]:
        """`tracks` for COLMAP models, or names of photos."""
        return self._source[1]

    def members(self, groups: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Return the indices (n,) of all patches of `groups` (M,), ordered by group."""
        return _ranges(self.start[groups], self.count[groups])

    def gather(self, indices: NDArray[np.integer[Any]]) -> NDArray[np.uint8]:
        """Return a copy (n, S, S) of the patches at `indices` (n,). Only these are read from disk."""
        return np.asarray(self.patches).take(indices, axis=0)

    def ignored(self, groups: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Return the pairs of `groups` that are neither match nor distractor to each other.

        Args:
            groups: (M,) groups of a batch, all different.

        Returns:
            (P, 2) positions in `groups`, smaller first; each pair once, sorted.
        """
        offsets, values = self._ignore
        length = offsets[groups + 1] - offsets[groups]
        first, ignored = np.repeat(np.arange(len(groups)), length), values[_ranges(offsets[groups], length)]
        order = np.argsort(groups)
        # `groups` may not contain an ignored group. Its search then ends at any position and is discarded below.
        second = order[np.searchsorted(groups, ignored, sorter=order) % max(len(groups), 1)]
        wanted = (groups[second] == ignored) & (first < second)
        return np.stack([first[wanted], second[wanted]], axis=1)

    @cached_property
    def _source(self) -> tuple[NDArray[np.int32], list[str]]:
        return _names(_read(self.path, "source")["source"])

    @cached_property
    def _ignore(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(G + 1,) and (I,): group g ignores values[offsets[g] : offsets[g + 1]]."""
        column = _read(self.path, "ignore")["ignore"].combine_chunks()
        offsets, values = np.asarray(column.offsets).astype(np.int64), column.flatten()
        groups = np.asarray(values)
        # A damaged page may hold fewer rows or values than the file declares.
        whole = len(offsets) == len(self) + 1 and offsets[0] == 0 and offsets[-1] == len(values)
        if not whole or (np.diff(offsets) < 0).any() or not ((groups >= 0) & (groups < len(self))).all():
            raise DataError(f"{self.path}: damaged column ignore in groups.parquet. {_REBUILD}")
        return offsets, groups


@dataclass(frozen=True)
class SetSummary:
    """Contents of a patch set: its numbers of patches and groups.

    Attributes:
        patches: Number of patches N.
        groups: Number of groups G.
        groups_per_scene: Number of groups by scene, in the order of the set.
        from_tracks: Number of groups from tracks of a reconstruction.
        from_photos: Number of groups of synthetic views.
    """

    patches: int
    groups: int
    groups_per_scene: dict[str, int]
    from_tracks: int
    from_photos: int


def open_set(path: str | Path) -> PatchSet:
    """Open a patch set of any size in milliseconds; `check_set` also compares its checksums."""
    path = Path(path)
    file = path / "meta.json"
    if not file.is_file():
        raise DataError(f"{path}: not a patch set (no meta.json). Build one with `doap data`.")
    meta = read_json(file)
    if (found := meta.get("format")) != FORMAT:
        raise DataError(f"{file}: expected format {FORMAT}, got {found!r}. Build the set with this version of doap.")
    validate(_Meta, meta, file)
    patches = _map_patches(path / "patches.npy", (meta["patches"], meta["patch_size"], meta["patch_size"]))
    table = _read(path, "count", "scene")
    count = table["count"].to_numpy().astype(np.int64)
    if len(count) != meta["groups"] or (count < 1).any() or count.sum() != len(patches):
        raise DataError(
            f"{path}: expected {meta['groups']} groups of {len(patches)} patches in total and no empty group, got "
            f"{len(count)} groups of {count.sum()} patches. {_REBUILD}"
        )
    return PatchSet(
        path, meta, patches, count.cumsum() - count, count, *_names(table["scene"]), _read_extent(file, meta["builder"])
    )


def check_set(path: str | Path) -> SetSummary:
    """Read a whole patch set, raise `DataError` if a checksum is wrong, and return a summary."""
    patch_set = open_set(path)
    for file in (patch_set.path / "patches.npy", patch_set.path / "groups.parquet"):
        if (found := sha256(file)) != (expected := patch_set.meta["sha256"].get(file.name)):
            raise DataError(f"{file}: expected SHA-256 {expected}, got {found}. {_REBUILD}")
    per_scene = np.bincount(patch_set.scene_ids, minlength=len(patch_set.scene_names))
    tracks = int(from_tracks(patch_set).sum())
    return SetSummary(
        patches=len(patch_set.patches),
        groups=len(patch_set),
        groups_per_scene=dict(zip(patch_set.scene_names, per_scene.tolist(), strict=True)),
        from_tracks=tracks,
        from_photos=len(patch_set) - tracks,
    )


def split_set(path: str | Path, out: str | Path, scenes: Sequence[str]) -> Path:
    """Write the groups of some scenes as a new set.

    The ledger of the new set contains the rows of these scenes and all rows without a scene.

        split_set("my.patches", "castle.patches", ["castle"])

    Args:
        path: Folder of the set.
        out: Folder of the new set. It must not exist.
        scenes: Names of the scenes to copy.
    """
    patch_set = open_set(path)
    unknown = [name for name in scenes if name not in patch_set.scene_names]
    if unknown or not scenes:
        raise ArgumentError(f"scenes: expected some of {patch_set.scene_names}, got {unknown or 'none'}.")
    wanted = [patch_set.scene_names.index(name) for name in scenes]
    groups = np.flatnonzero(np.isin(patch_set.scene_ids, wanted))
    # Photos that do not overlap are scenes of their own, named after the file.
    ledger = [
        row
        for row in patch_set.meta["ledger"]
        if "scene" not in row or row["scene"] in scenes or row.get("file") in scenes
    ]
    return _copy([(patch_set, groups)], out, {"split": sorted(scenes), "of": _origin(patch_set)}, ledger)


def merge_sets(paths: Sequence[str | Path], out: str | Path) -> Path:
    """Concatenate several sets. Scenes of the same name become one scene.

        merge_sets(["castle.patches", "harbour.patches"], "both.patches")

    Args:
        paths: Folders of the sets. Their patches have one size and one extent.
        out: Folder of the new set. It must not exist.
    """
    if not paths:
        raise ArgumentError("paths: expected at least one set, got none.")
    sets = [open_set(path) for path in paths]
    shapes = sorted({(patch_set.patch_size, patch_set.extent) for patch_set in sets})
    if len(shapes) > 1:
        found = ", ".join(f"{size} pixels and extent {extent:g}" for size, extent in shapes)
        raise DataError(
            f"paths: expected sets of one patch size and extent, got {found}. Build them with the same options."
        )
    ledger = join_ledgers(*(patch_set.meta["ledger"] for patch_set in sets))
    parts = [(patch_set, np.arange(len(patch_set))) for patch_set in sets]
    return _copy(parts, out, {"merge": [_origin(patch_set) for patch_set in sets]}, ledger)


def join_ledgers(*ledgers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of several ledgers in order, without duplicates."""
    joined: list[dict[str, Any]] = []
    for row in (row for ledger in ledgers for row in ledger):
        if row not in joined:
            joined.append(row)
    return joined


def _copy(
    parts: list[tuple[PatchSet, NDArray[np.int64]]],
    out: str | Path,
    builder: dict[str, Any],
    ledger: list[dict[str, Any]],
) -> Path:
    """Write some groups of some sets; the groups of a set are a unit."""
    with SetWriter(out, parts[0][0].patch_size, builder, ledger) as writer:
        for index, (patch_set, groups) in list(enumerate(parts))[writer.done :]:
            chunks = (groups[first : first + GROUPS_AT_ONCE] for first in range(0, len(groups), GROUPS_AT_ONCE))
            described = UnitGroups(
                patch_set.count[groups],
                [patch_set.scene_names[scene] for scene in patch_set.scene_ids[groups]],
                [patch_set.source_names[source] for source in patch_set.source_ids[groups]],
                patch_set.ignored(groups),
            )
            writer.add(str(index), (patch_set.gather(patch_set.members(chunk)) for chunk in chunks), described)
        return writer.finish()


def _origin(patch_set: PatchSet) -> dict[str, Any]:
    """Return the entry of a set in the metadata of sets copied from it."""
    return {"builder": patch_set.meta["builder"], "sha256": patch_set.meta["sha256"]}


@dataclass(frozen=True)
class _Meta:
    """Schema of meta.json."""

    builder: dict[str, Any]
    ledger: list[dict[str, Any]]
    patch_size: Annotated[int, Field(ge=1, strict=True)]
    patches: Annotated[int, Field(ge=0, strict=True)]
    groups: Annotated[int, Field(ge=0, strict=True)]
    sha256: dict[str, str]


def _read_extent(file: Path, builder: Any) -> float:
    """Return the extent of a set, or of the first of the sets that it was copied from; the others have the same."""
    try:
        while origin := builder.get("of") or next(iter(builder.get("merge", [])), None):
            builder = origin["builder"]
        if not 0 < (extent := float(builder.get("extent", 1.0))) < np.inf:
            raise ValueError(f"extent: expected a number above 0, got {extent}")
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{file}: damaged section builder ({error!r}). {_REBUILD}") from error
    return extent


def _map_patches(path: Path, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    try:
        patches = np.load(path, mmap_mode="r", allow_pickle=False)
    # numpy parses the header as Python code, whose parser raises many types of errors.
    except Exception as error:
        if is_out_of_memory(error):
            raise
        fault = "truncated or damaged" if path.exists() else "missing"
        raise DataError(f"{path}: the file is {fault}, expected an array {shape}. {_REBUILD}") from error
    if patches.shape != shape or patches.dtype != np.uint8:
        raise DataError(
            f"{path}: expected uint8 {shape} according to meta.json, got {patches.dtype} {patches.shape}. {_REBUILD}"
        )
    return patches  # type: ignore[no-any-return]


def _read(path: Path, *columns: str) -> pa.Table:
    """Return some columns of groups.parquet; the others are not decoded."""
    file = path / "groups.parquet"
    try:
        # Without threads: their pool does not survive the fork of a loader's worker, and 10⁶ rows
        # do not need them.
        with pq.ParquetFile(file, pre_buffer=False) as groups:
            if groups.schema_arrow.remove_metadata() != SCHEMA:
                found = ", ".join(f"{field.name} {field.type}" for field in groups.schema_arrow)
                raise DataError(f"{file}: expected the columns of format {FORMAT}, got {found}. {_REBUILD}")
            table = groups.read(columns=list(columns), use_threads=False)
        # Parquet does not check that texts are UTF-8.
        table.validate(full=True)
    except (OSError, ValueError, pa.ArrowException) as error:
        fault = "not a readable Parquet file" if file.exists() else "no such file"
        raise DataError(f"{file}: {fault}. {_REBUILD}") from error
    for name in columns:
        if table[name].null_count:
            raise DataError(f"{file}: empty values in column {name}. {_REBUILD}")
    return table


def _names(column: pa.ChunkedArray) -> tuple[NDArray[np.int32], list[str]]:
    column = column.combine_chunks()
    return np.asarray(column.indices), column.dictionary.to_pylist()


def _ranges(start: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.int64]:
    """Concatenate the ranges start[i], start[i] + 1, … of length[i] numbers each."""
    before = length.cumsum() - length
    return np.repeat(start - before, length) + np.arange(length.sum())
