"""Open, check, split and merge patch sets on disk.

    NAME/
    ├── patches.npy      uint8 (N, S, S), memory-mapped
    ├── groups.parquet   one row per group: start, count, scene, position, source, ignore
    └── meta.json        format, builder, licence ledger, sizes, checksums

A group holds the patches of one physical point: `count` patches from index `start` on. Groups
follow each other without gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
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
from doap.data.writer import FORMAT, SCHEMA, SetWriter, unit_rows

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
    """

    path: Path
    meta: dict[str, Any]
    patches: NDArray[np.uint8]
    start: NDArray[np.int64]
    count: NDArray[np.int64]
    scene_ids: NDArray[np.int32]
    scene_names: list[str]

    def __len__(self) -> int:
        return len(self.count)

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process opens the set again, because a pickled memory map contains all patches.
        return open_set, (self.path,)

    @property
    def extent(self) -> float:
        """Patch side relative to the side of the keypoint's frame. The parts of a merged set share one."""
        builder = self.meta["builder"]
        while origin := builder.get("of") or next(iter(builder.get("merge", [])), None):
            builder = origin["builder"]
        return float(builder.get("extent", 1.0))

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

    @cached_property
    def position(self) -> NDArray[np.float32]:
        """(G, 3): a point of a model, or (x, y, 0) in a photo."""
        column = _read(self.path, "position")["position"].combine_chunks()
        return np.asarray(column.flatten()).reshape(-1, 3)

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
        first, ignored = self.ignored_by(groups)
        order = np.argsort(groups)
        # `groups` may not contain an ignored group. Its search then ends at any position and is
        # discarded below.
        second = order[np.searchsorted(groups, ignored, sorter=order) % max(len(groups), 1)]
        wanted = (groups[second] == ignored) & (first < second)
        return np.stack([first[wanted], second[wanted]], axis=1)

    def ignored_by(self, groups: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return positions (I,) in `groups`, and the groups (I,) of the set that they ignore."""
        offsets, values = self._ignore
        length = offsets[groups + 1] - offsets[groups]
        return np.repeat(np.arange(len(groups)), length), values[_ranges(offsets[groups], length)]

    @cached_property
    def _source(self) -> tuple[NDArray[np.int32], list[str]]:
        return _names(_read(self.path, "source")["source"])

    @cached_property
    def _ignore(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(G + 1,) and (I,): group g ignores values[offsets[g] : offsets[g + 1]]."""
        column = _read(self.path, "ignore")["ignore"].combine_chunks()
        offsets, values = np.asarray(column.offsets).astype(np.int64), column.flatten()
        # A damaged page may hold fewer rows or values than the file declares.
        if len(offsets) != len(self) + 1 or offsets[0] or (np.diff(offsets) < 0).any() or offsets[-1] != len(values):
            raise DataError(f"{self.path}: damaged column ignore in groups.parquet. {_REBUILD}")
        groups = np.asarray(values)
        if len(groups) and (values.null_count or groups.min() < 0 or groups.max() >= len(self)):
            raise DataError(
                f"{self.path}: expected ignored groups from 0 to {len(self) - 1}, "
                f"got {groups.min()} to {groups.max()}. {_REBUILD}"
            )
        return offsets, groups


@dataclass(frozen=True)
class SetSummary:
    """Contents of a patch set.

    Attributes:
        patches: Number of patches N.
        groups: Number of groups G.
        groups_per_scene: Number of groups by scene, in the order of the set.
        groups_per_size: Number of groups by number of patches.
        from_tracks: Number of groups from tracks of a reconstruction.
        from_photos: Number of all other groups.
        unregistered: Photos that COLMAP could not register, by unit of the build. They contribute synthetic views only.
    """

    patches: int
    groups: int
    groups_per_scene: dict[str, int]
    groups_per_size: dict[int, int]
    from_tracks: int
    from_photos: int
    unregistered: dict[str, list[str]]


def open_set(path: str | Path) -> PatchSet:
    """Open a patch set of any size in milliseconds; `check_set` also reads and checks the patches."""
    path = Path(path)
    meta = _read_meta(path)
    patches = _map_patches(path / "patches.npy", (meta["patches"], meta["patch_size"], meta["patch_size"]))
    table = _read(path, "count", "scene")
    if len(table) != meta["groups"]:
        raise DataError(f"{path}: expected {meta['groups']} groups, got {len(table)} in groups.parquet. {_REBUILD}")
    count = table["count"].to_numpy().astype(np.int64)
    if (empty := int((count < 1).sum())) or count.sum() != len(patches):
        raise DataError(
            f"{path}: expected groups of {len(patches)} patches in total and no empty group, "
            f"got {count.sum()} patches and {empty} empty groups. {_REBUILD}"
        )
    return PatchSet(path, meta, patches, count.cumsum() - count, count, *_names(table["scene"]))


def check_set(path: str | Path) -> SetSummary:
    """Read a whole patch set, raise `DataError` at the first fault, and return a summary."""
    patch_set = open_set(path)
    path = patch_set.path
    for file in (path / "patches.npy", path / "groups.parquet"):
        if (found := sha256(file)) != (expected := patch_set.meta["sha256"].get(file.name)):
            raise DataError(f"{file}: expected SHA-256 {expected}, got {found}. {_REBUILD}")
    if not np.array_equal(_read(path, "start")["start"].to_numpy(), patch_set.start):
        raise DataError(f"{path}: a group does not start where the previous one ends. {_REBUILD}")
    _check_ignored(patch_set)
    sizes, groups = np.unique(patch_set.count, return_counts=True)
    per_scene = np.bincount(patch_set.scene_ids, minlength=len(patch_set.scene_names))
    tracks = int(from_tracks(patch_set).sum())
    return SetSummary(
        patches=len(patch_set.patches),
        groups=len(patch_set),
        groups_per_scene=dict(zip(patch_set.scene_names, per_scene.tolist(), strict=True)),
        groups_per_size=dict(zip(sizes.tolist(), groups.tolist(), strict=True)),
        from_tracks=tracks,
        from_photos=len(patch_set) - tracks,
        unregistered=patch_set.meta.get("unregistered", {}),
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
    sizes = sorted({patch_set.patch_size for patch_set in sets})
    if len(sizes) > 1:
        raise DataError(
            f"paths: expected sets of one patch size, got {sizes} pixels. Build them with the same --patch-size."
        )
    extents = sorted({patch_set.extent for patch_set in sets})
    if len(extents) > 1:
        raise DataError(f"paths: expected sets of one extent, got {extents}. Build them with the same --extent.")
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
    """Write some groups of some sets, in units of `GROUPS_AT_ONCE` groups."""
    units = [(part, first) for part in parts for first in range(0, len(part[1]), GROUPS_AT_ONCE)]
    with SetWriter(out, parts[0][0].patch_size, builder, ledger) as writer:
        todo = () if writer.complete else units[writer.done :]
        for index, ((patch_set, copied), first) in enumerate(todo, start=writer.done):
            groups = copied[first : first + GROUPS_AT_ONCE]
            row, ignored = patch_set.ignored_by(groups)
            position = np.searchsorted(copied, ignored) % len(copied)
            is_copied = copied[position] == ignored
            rows = unit_rows(
                patch_set.count[groups],
                [patch_set.scene_names[scene] for scene in patch_set.scene_ids[groups]],
                patch_set.position[groups],
                [patch_set.source_names[source] for source in patch_set.source_ids[groups]],
                np.stack([row, position - first], axis=1)[is_copied],
            )
            writer.add_rows(f"{index}", patch_set.gather(patch_set.members(groups)), rows)
        return writer.finish()


def _origin(patch_set: PatchSet) -> dict[str, Any]:
    """Return the entry of a set in the metadata of sets copied from it."""
    return {"builder": patch_set.meta["builder"], "sha256": patch_set.meta["sha256"]}


def _read_meta(path: Path) -> dict[str, Any]:
    file = path / "meta.json"
    if not file.is_file():
        raise DataError(f"{path}: not a patch set (no meta.json). Build one with `doap data`.")
    meta = read_json(file)
    if (found := meta.get("format")) != FORMAT:
        raise DataError(f"{file}: expected format {FORMAT}, got {found!r}. Build the set with this version of doap.")
    validate(_Meta, meta, file)
    _check_builder(file, meta["builder"])
    return meta


@dataclass(frozen=True)
class _Meta:
    """Schema of meta.json."""

    builder: dict[str, Any]
    ledger: list[dict[str, Any]]
    patch_size: Annotated[int, Field(ge=1, strict=True)]
    patches: Annotated[int, Field(ge=0, strict=True)]
    groups: Annotated[int, Field(ge=0, strict=True)]
    sha256: dict[str, str]
    unregistered: dict[str, list[str]] = field(default_factory=dict)


def _check_builder(file: Path, builder: Any) -> None:
    """Check what `PatchSet.extent` reads: the builders of the sets that a set was copied from."""
    extent = builder.get("extent", 1.0) if isinstance(builder, dict) else None
    if isinstance(extent, bool) or not isinstance(extent, int | float) or not 0 < extent < np.inf:
        raise DataError(f"{file}: builder: expected a section with an extent above 0, got {builder!r:.100}. {_REBUILD}")
    origins = [builder["of"]] if builder.get("of") else builder.get("merge", [])
    if not isinstance(origins, list) or not all(isinstance(origin, dict) for origin in origins):
        raise DataError(f"{file}: builder: expected the sets it was copied from, got {origins!r:.100}. {_REBUILD}")
    for origin in origins:
        _check_builder(file, origin.get("builder"))


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
    if (extra := path.stat().st_size - patches.offset - patches.nbytes) != 0:
        raise DataError(f"{path}: {extra} bytes after the last patch. {_REBUILD}")
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


def _check_ignored(patch_set: PatchSet) -> None:
    offsets, ignored = patch_set._ignore
    size, groups = len(patch_set), np.repeat(np.arange(len(patch_set)), np.diff(offsets))
    if (groups == ignored).any():
        raise DataError(f"{patch_set.path}: a group ignores itself. {_REBUILD}")
    if not np.array_equal(np.sort(groups * size + ignored), np.sort(ignored * size + groups)):
        raise DataError(f"{patch_set.path}: a group ignores another one that does not ignore it. {_REBUILD}")
