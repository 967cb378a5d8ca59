"""Write a patch set unit by unit, atomically and resumably.

    NAME.unfinished/
    ├── plan.json              settings, and checksums of the input files
    ├── journal/000123.arrow   the groups of each committed unit
    └── set/                   renamed to NAME at the end
        └── patches.npy        grows with every unit; its header is written last, when the number of patches is known

The patches of a unit are synced to disk before its journal file gets its name. The journal therefore always determines
the valid part of `patches.npy`. Nothing depends on time or on where a run stopped: a resumed build has the same bytes
as an uninterrupted one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from doap._support.checks import MAX_PATCH_SIZE, check_shape
from doap._support.errors import ArgumentError, DataError
from doap._support.files import OutputLock, atomic_write, beside, make_folder, read_json, sha256

FORMAT = 1
SCHEMA = pa.schema(
    {
        "start": pa.int64(),
        "count": pa.int32(),
        "scene": pa.dictionary(pa.int32(), pa.string()),
        "source": pa.dictionary(pa.int32(), pa.string()),
        "ignore": pa.list_(pa.int64()),
    }
)
UNIT_SCHEMA = SCHEMA.remove(0)
HEADER = 128


@dataclass(frozen=True)
class UnitGroups:
    """The groups of one unit, in the order of its patches.

    >>> nothing_ignored = np.empty((0, 2), np.int64)
    >>> groups = UnitGroups(np.array([2, 3]), "castle", "a.jpg", nothing_ignored)
    >>> groups.rows()["source"].to_pylist()
    ['a.jpg', 'a.jpg']

    Attributes:
        count: (G,) number of patches of each group, at least 1. A group of one is a distractor to all others.
        scene: Name of the scene, by which sets are split; one for all groups or one for each.
        source: Origin of the groups, one for all or one for each: `tracks`, `tracks 2`, … for a model, or the name of
            a photo.
        ignore: (P, 2) groups of this unit that are neither match nor distractor to each other; each pair once.
    """

    count: NDArray[np.integer[Any]]
    scene: str | Sequence[str]
    source: str | Sequence[str]
    ignore: NDArray[np.integer[Any]]

    def __post_init__(self) -> None:
        groups = check_shape(self.count, "G", name="count")["G"]
        check_shape(self.ignore, "P 2", name="ignore")
        for name, given in (("scene", self.scene), ("source", self.source)):
            if not isinstance(given, str) and len(given) != groups:
                raise ArgumentError(
                    f"{name}: expected one name for all or one for each of {groups} groups, got {len(given)}."
                )
        if groups and self.count.min() < 1:
            raise ArgumentError(f"count: expected at least 1 patch in a group, got {self.count.min()}.")
        if self.ignore.size and (self.ignore.min() < 0 or self.ignore.max() >= groups):
            found = f"{self.ignore.min()} to {self.ignore.max()}"
            raise ArgumentError(f"ignore: expected groups 0 to {groups - 1} of the unit, got {found}.")
        if (self.ignore[:, 0] == self.ignore[:, 1]).any():
            raise ArgumentError("ignore: expected pairs of different groups, got a group with itself.")

    def rows(self) -> pa.Table:
        """Return a row per group, with groups to ignore in both directions, counted from the first of the unit."""
        ignore = np.unique(np.concatenate([self.ignore, self.ignore[:, ::-1]]), axis=0)
        offsets = np.concatenate([[0], np.bincount(ignore[:, 0], minlength=len(self.count)).cumsum()])
        columns = {
            "count": pa.array(self.count, pa.int32()),
            "scene": self._names(self.scene),
            "source": self._names(self.source),
            "ignore": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(ignore[:, 1], pa.int64())),
        }
        return pa.table(columns, schema=UNIT_SCHEMA)

    def _names(self, given: str | Sequence[str]) -> pa.DictionaryArray:
        names = [given] * len(self.count) if isinstance(given, str) else given
        return pa.array(names, pa.string()).dictionary_encode()


class SetWriter:
    """Write a patch set from units in a fixed order, such as photos or scenes.

        with SetWriter(out, 32, builder, ledger) as writer:
            for name in writer.remaining(names):
                writer.add(name, *patches_and_groups(name))
            writer.finish()

    A second writer of the same set is refused until the first one is closed or its process ends.

    Args:
        out: Folder of the new set. It must not exist. `<out>.unfinished` is resumed if it exists.
        patch_size: Side S of the patches in pixels.
        builder: All settings that determine the set, as JSON. A build with other settings cannot be resumed.
        ledger: Licence ledger, one dictionary per photo or other source.
        inputs: Files that the patches are made from, by name. If one of them changes before the end, the build is
            refused, because its patches would be of both versions.
    """

    def __init__(
        self,
        out: str | Path,
        patch_size: int,
        builder: dict[str, Any],
        ledger: list[dict[str, Any]],
        inputs: Mapping[str, Path] | None = None,
    ) -> None:
        if not 1 <= patch_size <= MAX_PATCH_SIZE:
            raise ArgumentError(f"patch_size: expected 1 to {MAX_PATCH_SIZE:,} pixels, got {patch_size}.")
        self.out, self.patch_size, self.builder, self.ledger = Path(out), patch_size, builder, ledger
        self.folder = beside(self.out, "{}.unfinished")
        self._way_out = f"Remove {self.folder} or choose another --out."
        self._journal, self._set = self.folder / "journal", self.folder / "set"
        self._patches = self._set / "patches.npy"
        self._inputs = inputs or {}
        self._units: dict[str, pa.Table] = {}
        self._count = 0
        self._lock = OutputLock(make_folder(self.out.parent) / self.out.name)
        try:
            self._start()
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> SetWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.__exit__(kind, error, trace)

    @property
    def done(self) -> int:
        """Number of units committed by this run and earlier ones."""
        return len(self._units)

    def remaining(self, names: Sequence[str]) -> Sequence[str]:
        """Return the names that are not committed yet. The committed units must come first in `names`."""
        for index, name in enumerate(self._units):
            if [name] != list(names[index : index + 1]):
                raise DataError(f"{self.folder}: unit {index} was {name!r} and has changed. {self._way_out}")
        return names[self.done :]

    def add(self, name: str, patches: NDArray[np.uint8] | Iterable[NDArray[np.uint8]], groups: UnitGroups) -> None:
        """Commit the next unit: patches (N, S, S), ordered by group, or several such arrays. N may be 0."""
        if name in self._units:
            raise ArgumentError(f"name: unit {name!r} is already committed. Skip the first {self.done} units.")
        rows, written = groups.rows(), 0
        with self._patches.open("r+b") as file:
            file.seek(self._end)
            for part in [patches] if isinstance(patches, np.ndarray) else patches:
                written += check_shape(part, f"N {self.patch_size} {self.patch_size}", name="patches")["N"]
                if part.dtype != np.uint8:
                    raise ArgumentError(f"patches: expected uint8, got {part.dtype}.")
                file.write(np.ascontiguousarray(part).data)
            if (grouped := rows["count"].to_numpy().sum()) != written:
                raise ArgumentError(f"patches: expected {grouped}, the sum of counts, got {written}.")
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        rows = rows.replace_schema_metadata({"unit": name})
        # An open file, because Arrow takes a path with a colon for a URL.
        with (
            atomic_write(self._journal / f"{self.done:06d}.arrow") as unfinished,
            unfinished.open("wb") as sink,
            pa.ipc.new_file(sink, rows.schema) as journal,
        ):
            journal.write_table(rows)
        self._commit(name, rows)

    def finish(self) -> Path:
        """Complete the set and rename it to `out`. An interrupted call can be repeated."""
        self._check_plan()
        groups = self._groups()
        if not len(groups):
            raise DataError(f"{self.folder}: expected at least one group, got none in {self.done} units.")
        with (self._set / "groups.parquet").open("wb") as sink:
            pq.write_table(groups, sink, compression="zstd")
        with self._patches.open("r+b") as file:
            file.write(npy_header(self._count, self.patch_size))
            file.truncate(self._end)
        meta = {
            "format": FORMAT,
            "builder": self.builder,
            "ledger": self.ledger,
            "patch_size": self.patch_size,
            "patches": self._count,
            "groups": len(groups),
            "sha256": {name: sha256(self._set / name) for name in ("patches.npy", "groups.parquet")},
        }
        (self._set / "meta.json").write_text(_json(meta), encoding="utf-8")
        for path in sorted(self._set.iterdir()):
            with path.open("r+b") as file:
                os.fsync(file.fileno())
        self._set.replace(self.out)
        shutil.rmtree(self.folder)
        self._lock.release()
        return self.out

    @property
    def _end(self) -> int:
        """Size of the valid part of `patches.npy`."""
        return HEADER + self._count * self.patch_size**2

    def _start(self) -> None:
        """Begin a set, or continue it after the last complete unit."""
        if not self._set.exists():
            # What a run left that was killed after it had renamed the set.
            shutil.rmtree(self.folder, ignore_errors=True)
        if self.out.exists():
            raise DataError(f"{self.out}: already exists. Remove it or choose another --out.")
        for folder in (self._journal, self._set):
            make_folder(folder)
        self._check_plan()
        self._patches.touch()
        size = self._patches.stat().st_size
        for path in sorted(self._journal.glob("*.arrow")):
            try:
                rows = pa.ipc.open_file(path.read_bytes()).read_all()
            except pa.ArrowException:
                break
            self._commit(rows.schema.metadata[b"unit"].decode(), rows)
            if self._end > size:
                raise DataError(f"{self._patches}: a part is missing. {self._way_out}")

    def _check_plan(self) -> None:
        """Store what determines the set, or compare it with what an earlier run stored."""
        inputs = {name: sha256(path) for name, path in self._inputs.items()}
        # Through JSON and back like the stored plan, which turns tuples into lists.
        plan = json.loads(_json({"patch_size": self.patch_size, **self.builder, **inputs}))
        path = self.folder / "plan.json"
        if not path.exists():
            with atomic_write(path) as unfinished:
                unfinished.write_text(_json(plan), encoding="utf-8")
        begun = read_json(path)
        if differ := [key for key in sorted(begun.keys() | plan.keys()) if begun.get(key) != plan.get(key)]:
            names = ", ".join(differ[:5]) + (", …" if len(differ) > 5 else "")
            raise DataError(f"{self.folder}: changed since the build began: {names}. {self._way_out}")

    def _commit(self, name: str, rows: pa.Table) -> None:
        self._units[name] = rows
        self._count += int(rows["count"].to_numpy().sum())

    def _groups(self) -> pa.Table:
        """Return the rows (G,) of the whole set, with indices counted from the first group of the set."""
        units = [rows.replace_schema_metadata() for rows in self._units.values()]
        sizes = np.array([len(unit) for unit in units], dtype=np.int64)
        rows = pa.concat_tables([UNIT_SCHEMA.empty_table(), *units])
        count = rows["count"].to_numpy().astype(np.int64)
        ignore = rows["ignore"].combine_chunks()
        first_of_unit = np.repeat(sizes.cumsum() - sizes, sizes)
        shift = np.repeat(first_of_unit, np.diff(ignore.offsets.to_numpy()))
        shifted = pa.ListArray.from_arrays(ignore.offsets, pa.array(ignore.flatten().to_numpy() + shift))
        rows = rows.set_column(UNIT_SCHEMA.get_field_index("ignore"), SCHEMA.field("ignore"), shifted)
        return rows.add_column(0, SCHEMA.field("start"), pa.array(count.cumsum() - count)).combine_chunks()


def npy_header(patches: int, side: int) -> bytes:
    """Return the header of an .npy file of (patches, side, side) uint8, always 128 bytes long."""
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({patches}, {side}, {side}), }}".encode()
    return np.lib.format.magic(1, 0) + (HEADER - 10).to_bytes(2, "little") + text.ljust(HEADER - 11) + b"\n"


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
