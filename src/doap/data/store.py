"""A set of patch groups on disk: open it, check it, split it, merge several.

    NAME/
    ├── patches.npy      uint8 (N, S, S), memory-mapped
    ├── groups.parquet   a row for each group: start, count, sequence, position, source, ignore
    └── meta.json        format, builder, licence ledger, sizes, checksums

A group is the patches of one physical point: `count` of them from `start` on; groups follow each other without gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from doap.data.sampler import from_tracks
from doap.data.writer import FORMAT, SCHEMA, SetWriter, unit_rows
from doap.errors import ArgumentError, DataError
from doap.files import read_json, sha256

GROUPS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class PatchSet:
    """An open set. Patches stay on disk until they are asked for; so do columns that training does not need.

    Attributes:
        path: its folder.
        meta: its `meta.json`.
        patches: (N, S, S) uint8, read-only, memory-mapped.
        start: (G,) int64, the first patch of each group.
        count: (G,) int64, its patches.
        scene_ids: (G,) int32, positions in `scene_names`: the place it is from.
        scene_names: the places.
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

    @property
    def extent(self) -> float:
        """Side of its patches over that of their frames, as built; of the first one's, if it was merged of several."""
        builder = self.meta["builder"]
        while origin := builder.get("of") or next(iter(builder.get("merge", [])), None):
            builder = origin["builder"]
        return float(builder.get("extent", 1.0))

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process opens the set itself: a pickled memory map carries all its patches.
        return open_set, (self.path,)

    @property
    def patch_size(self) -> int:
        """S."""
        return int(self.patches.shape[1])

    @property
    def source_ids(self) -> NDArray[np.int32]:
        """(G,) positions in `source_names`: what made the group."""
        return self._source[0]

    @property
    def source_names(self) -> list[str]:
        """`tracks`, or names of photos."""
        return self._source[1]

    @cached_property
    def position(self) -> NDArray[np.float32]:
        """(G, 3): a point of a model, or (x, y, 0) in a photo."""
        column = _read(self.path, "position")["position"].combine_chunks()
        return np.asarray(column.flatten()).reshape(-1, 3)

    def members(self, groups: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """(n,) indices of all patches of `groups` (M,), group after group."""
        return _ranges(self.start[groups], self.count[groups])

    def gather(self, indices: NDArray[np.integer[Any]]) -> NDArray[np.uint8]:
        """(n, S, S) a copy in memory of the patches `indices` (n,); of the file, only they are read."""
        return np.asarray(self.patches).take(indices, axis=0)

    def ignored(self, groups: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Who of these groups is neither match nor distractor to whom.

        Args:
            groups: (M,) groups of a batch, all different.

        Returns:
            (P, 2) positions in `groups`, smaller first; each pair once, in order.
        """
        first, others = self.ignored_by(groups)
        order = np.argsort(groups)
        second = order[np.searchsorted(groups, others, sorter=order) % max(len(groups), 1)]
        wanted = (groups[second] == others) & (first < second)
        return np.stack([first[wanted], second[wanted]], axis=1)

    def ignored_by(self, groups: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All that these groups ignore: (I,) positions in `groups`, and (I,) the groups of the set ignored by those."""
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
        return np.asarray(column.offsets).astype(np.int64), np.asarray(column.flatten())


@dataclass(frozen=True)
class SetSummary:
    """What is in a set.

    Attributes:
        patches: N.
        groups: G.
        groups_per_scene: in the order of the set.
        groups_per_size: how many groups have 1 patch, 2, …
        from_tracks: groups that are tracks of a reconstruction; `from_photos` are all others.
    """

    patches: int
    groups: int
    groups_per_scene: dict[str, int]
    groups_per_size: dict[int, int]
    from_tracks: int
    from_photos: int


def open_set(path: str | Path) -> PatchSet:
    """Open a set in a moment, however large, and check what can be checked without reading it; see `check_set`."""
    path = Path(path)
    meta = _read_meta(path)
    patches = _map_patches(path / "patches.npy", (meta["patches"], meta["patch_size"], meta["patch_size"]))
    table = _read(path, "count", "sequence")
    if len(table) != meta["groups"]:
        raise DataError(f"{path}: expected {meta['groups']} groups, got {len(table)} in groups.parquet; build it again")
    count = table["count"].to_numpy().astype(np.int64)
    if (count < 1).any() or count.sum() != len(patches):
        found = f"{count.sum()} and {(count < 1).sum()} empty groups"
        raise DataError(f"{path}: expected {len(patches)} patches in groups, none empty, got {found}; build it again")
    return PatchSet(path, meta, patches, count.cumsum() - count, count, *_names(table["sequence"]))


def check_set(path: str | Path) -> SetSummary:
    """Read all of a set, raise `DataError` at the first fault, and tell what is in it."""
    patch_set = open_set(path)
    path = patch_set.path
    for file in (path / "patches.npy", path / "groups.parquet"):
        if (found := sha256(file)) != (expected := patch_set.meta["sha256"].get(file.name)):
            raise DataError(f"{file}: expected sha256 {expected}, got {found}; copy or build the set again")
    if not np.array_equal(_read(path, "start")["start"].to_numpy(), patch_set.start):
        raise DataError(f"{path}: expected each group to start where the one before ends, got others; build it again")
    _check_ignored(patch_set)
    sizes, groups = np.unique(patch_set.count, return_counts=True)
    per_sequence = np.bincount(patch_set.scene_ids, minlength=len(patch_set.scene_names))
    tracks = int(from_tracks(patch_set).sum())
    return SetSummary(
        patches=len(patch_set.patches),
        groups=len(patch_set),
        groups_per_scene=dict(zip(patch_set.scene_names, per_sequence.tolist(), strict=True)),
        groups_per_size=dict(zip(sizes.tolist(), groups.tolist(), strict=True)),
        from_tracks=tracks,
        from_photos=len(patch_set) - tracks,
    )


def split_set(path: str | Path, out: str | Path, sequences: Sequence[str]) -> Path:
    """Write a set of those groups that are from some places; the ledger keeps their rows and those without a place."""
    patch_set = open_set(path)
    unknown = [name for name in sequences if name not in patch_set.scene_names]
    if unknown or not sequences:
        raise ArgumentError(f"sequences: expected some of {patch_set.scene_names}, got {unknown or 'none'}")
    wanted = [patch_set.scene_names.index(name) for name in sequences]
    kept = np.flatnonzero(np.isin(patch_set.scene_ids, wanted))
    ledger = [
        row
        for row in patch_set.meta["ledger"]
        if "place" not in row or not {row["place"], row.get("file")}.isdisjoint(sequences)
    ]
    return _copy([(patch_set, kept)], out, {"split": sorted(sequences), "of": _identity(patch_set)}, ledger)


def merge_sets(paths: Sequence[str | Path], out: str | Path) -> Path:
    """Write one set of all groups of several, set after set. A place is its name: equal names are one place."""
    if not paths:
        raise ArgumentError("paths: expected at least one set, got none")
    sets = [open_set(path) for path in paths]
    sizes = sorted({patch_set.patch_size for patch_set in sets})
    if len(sizes) > 1:
        raise DataError(f"paths: expected patches of one size, got {sizes} pixels; merge those of one size")
    ledger = join_ledgers(*(patch_set.meta["ledger"] for patch_set in sets))
    parts = [(patch_set, np.arange(len(patch_set))) for patch_set in sets]
    return _copy(parts, out, {"merge": [_identity(patch_set) for patch_set in sets]}, ledger)


def join_ledgers(*ledgers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All their rows in order, each once."""
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
    writer = SetWriter(out, parts[0][0].patch_size, builder, ledger)
    units = [(part, first) for part in parts for first in range(0, len(part[1]), GROUPS_AT_ONCE)]
    for index, ((patch_set, kept), first) in enumerate(units[writer.done :], start=writer.done):
        groups = kept[first : first + GROUPS_AT_ONCE]
        by, others = patch_set.ignored_by(groups)
        place = np.searchsorted(kept, others) % len(kept)
        ignore = np.stack([by, place - first], axis=1)[kept[place] == others]
        rows = unit_rows(
            patch_set.count[groups],
            [patch_set.scene_names[name] for name in patch_set.scene_ids[groups]],
            patch_set.position[groups],
            [patch_set.source_names[name] for name in patch_set.source_ids[groups]],
            ignore,
        )
        writer.add_rows(f"{index}", patch_set.gather(patch_set.members(groups)), rows)
    return writer.finish()


def _identity(patch_set: PatchSet) -> dict[str, Any]:
    return {"builder": patch_set.meta["builder"], "sha256": patch_set.meta["sha256"]}


def _read_meta(path: Path) -> dict[str, Any]:
    file = path / "meta.json"
    if not file.is_file():
        raise DataError(f"{path}: expected a set of patches, got no meta.json there; `doap data` builds sets")
    meta = read_json(file)
    if (found := meta.get("format")) != FORMAT:
        raise DataError(f"{file}: expected format {FORMAT}, got {found!r}; build the set with this version of doap")
    needed = ("builder", "ledger", "patch_size", "patches", "groups", "sha256")
    if missing := [key for key in needed if key not in meta]:
        raise DataError(f"{file}: expected the keys {', '.join(needed)}, got no {', '.join(missing)}; build it again")
    return meta


def _map_patches(path: Path, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    try:
        patches = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        what = "a truncated or damaged one" if path.exists() else "nothing there"
        raise DataError(f"{path}: expected the array {shape}, got {what}; copy or build the set again") from error
    if patches.shape != shape or patches.dtype != np.uint8:
        found = f"{patches.dtype} {patches.shape}"
        raise DataError(f"{path}: expected uint8 {shape}, as meta.json says, got {found}; build the set again")
    if (beyond := path.stat().st_size - patches.offset - patches.nbytes) != 0:
        raise DataError(f"{path}: expected the end after the last patch, got {beyond} bytes more; build the set again")
    return patches  # type: ignore[no-any-return]


def _read(path: Path, *columns: str) -> pa.Table:
    """Some columns of groups.parquet, and only they are decoded."""
    file = path / "groups.parquet"
    try:
        # Without threads: the pool would not survive the fork of a loader's worker, and 10⁶ rows gain nothing by it.
        with pq.ParquetFile(file, pre_buffer=False) as groups:
            if groups.schema_arrow.remove_metadata() != SCHEMA:
                found = ", ".join(f"{field.name} {field.type}" for field in groups.schema_arrow)
                raise DataError(f"{file}: expected the columns of format {FORMAT}, got {found}; build the set again")
            table = groups.read(columns=list(columns), use_threads=False)
    except (OSError, pa.ArrowException) as error:
        what = "a damaged one" if file.exists() else "nothing there"
        raise DataError(f"{file}: expected a Parquet file, got {what}; copy or build the set again") from error
    for name in columns:
        if table[name].null_count:
            raise DataError(f"{file}: expected a value in each row, got empty ones in {name}; build the set again")
    return table


def _names(column: pa.ChunkedArray) -> tuple[NDArray[np.int32], list[str]]:
    column = column.combine_chunks()
    return np.asarray(column.indices), column.dictionary.to_pylist()


def _ranges(start: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.int64]:
    """start[0], start[0] + 1, … length[0] of them; then from start[1], and so on."""
    before = length.cumsum() - length
    return np.repeat(start - before, length) + np.arange(length.sum())


def _check_ignored(patch_set: PatchSet) -> None:
    offsets, others = patch_set._ignore
    size, groups = len(patch_set), np.repeat(np.arange(len(patch_set)), np.diff(offsets))
    if len(others) and (others.min() < 0 or others.max() >= size):
        raise DataError(f"{patch_set.path}: expected ignored groups from 0 to {size - 1}, got others; build it again")
    if (groups == others).any():
        raise DataError(f"{patch_set.path}: expected no group to ignore itself, got one that does; build it again")
    if not np.array_equal(np.sort(groups * size + others), np.sort(others * size + groups)):
        raise DataError(f"{patch_set.path}: expected groups to ignore each other, got some one-sided; build it again")
