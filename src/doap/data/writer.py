"""Write a patch set unit by unit, atomically and resumably.

    NAME.unfinished/
    ├── plan.json            patch size and builder
    ├── units/000123.arrow   journal: the groups of each committed unit
    └── set/                 renamed to NAME at the end
        └── patches.npy      grows with every unit; its header is written last, when the number of patches is known

The patches of a unit are synced to disk before its journal file gets its name. The journal
therefore always determines the valid part of `patches.npy`, and the rest is truncated. Nothing
depends on time or on where a run stopped: a resumed build has the same bytes as an uninterrupted
one.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

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
        "position": pa.list_(pa.float32(), 3),
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
    >>> groups = UnitGroups(np.array([2, 3]), "castle", np.zeros((2, 3), np.float32), "a.jpg", nothing_ignored)
    >>> groups.sources
    ['a.jpg', 'a.jpg']

    Attributes:
        count: (G,) number of patches of each group, at least 1. A group of one is a distractor to
            all others.
        scene: Name of the scene, by which sets are split.
        position: (G, 3) float32, a point of a model, or (x, y, 0) in a photo.
        source: Origin of the groups, one for all or one for each: `tracks`, `tracks 2`, … for a
            model, or the name of a photo.
        ignore: (P, 2) groups of this unit that are neither match nor distractor to each other; each
            pair once.
        unregistered: Photos of the scene that its reconstruction does not contain.
        inputs: SHA-256 of the files that the unit was made from, by name; see `SetWriter.check_inputs`.
    """

    count: NDArray[np.integer[Any]]
    scene: str
    position: NDArray[np.float32]
    source: str | Sequence[str]
    ignore: NDArray[np.integer[Any]]
    unregistered: Sequence[str] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        groups = check_shape(self.count, "G", name="count")["G"]
        check_shape(self.position, f"{groups} 3", name="position")
        check_shape(self.ignore, "P 2", name="ignore")
        if len(self.sources) != groups:
            raise ArgumentError(
                f"source: expected one name for all or one for each of {groups} groups, got {len(self.sources)}."
            )
        if groups and self.count.min() < 1:
            raise ArgumentError(f"count: expected at least 1 patch in a group, got {self.count.min()}.")
        if self.ignore.size and (self.ignore.min() < 0 or self.ignore.max() >= groups):
            found = f"{self.ignore.min()} to {self.ignore.max()}"
            raise ArgumentError(f"ignore: expected groups 0 to {groups - 1} of the unit, got {found}.")
        if (self.ignore[:, 0] == self.ignore[:, 1]).any():
            raise ArgumentError("ignore: expected pairs of different groups, got a group with itself.")

    def rows(self) -> pa.Table:
        """Return the groups as a table of `unit_rows`."""
        both_directions = np.unique(np.concatenate([self.ignore, self.ignore[:, ::-1]]), axis=0)
        return unit_rows(self.count, [self.scene] * len(self.count), self.position, self.sources, both_directions)

    @property
    def sources(self) -> list[str]:
        """Origin of each group."""
        return [self.source] * len(self.count) if isinstance(self.source, str) else list(self.source)


def unit_rows(
    count: NDArray[Any], scene: Sequence[str], position: NDArray[Any], source: Sequence[str], ignore: NDArray[Any]
) -> pa.Table:
    """Return the rows of a journal file: the columns of a set except `start`, which depends on earlier units.

    Args:
        count: (G,) number of patches of each group.
        scene: G names.
        position: (G, 3).
        source: G names.
        ignore: (P, 2) a group and a group that it ignores, in both directions and sorted. Both are
            counted from the first group of the unit, and the second may belong to another unit.
    """
    offsets = np.concatenate([[0], np.bincount(ignore[:, 0], minlength=len(count)).cumsum()])
    columns = {
        "count": pa.array(count, pa.int32()),
        "scene": pa.array(scene, pa.string()).dictionary_encode(),
        "position": pa.FixedSizeListArray.from_arrays(pa.array(np.ravel(position), pa.float32()), 3),
        "source": pa.array(source, pa.string()).dictionary_encode(),
        "ignore": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(ignore[:, 1], pa.int64())),
    }
    return pa.table(columns, schema=UNIT_SCHEMA)


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
        builder: All settings that determine the set, as JSON. A build with other settings cannot be
            resumed.
        ledger: Licence ledger, one dictionary per photo or other source.

    Attributes:
        complete: Whether an interrupted build had written the whole set; only `finish` is left to do.
    """

    def __init__(self, out: str | Path, patch_size: int, builder: dict[str, Any], ledger: list[dict[str, Any]]) -> None:
        if not 1 <= patch_size <= MAX_PATCH_SIZE:
            raise ArgumentError(f"patch_size: expected 1 to {MAX_PATCH_SIZE:,} pixels, got {patch_size}.")
        self.out, self.patch_size, self.builder, self.ledger = Path(out), patch_size, builder, ledger
        self.folder = beside(self.out, "{}.unfinished")
        self._way_out = f"Remove {self.folder} or choose another --out."
        self._units, self._set = self.folder / "units", self.folder / "set"
        self._patches = self._set / "patches.npy"
        self._names: dict[str, list[str]] = {}  # committed units, and their photos that were not registered
        self._inputs: dict[str, str] = {}
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
        return len(self._names)

    def remaining(self, names: Sequence[str]) -> Sequence[str]:
        """Return the names that are not committed yet. The committed units must come first in `names`."""
        if self.complete:
            return ()
        for index, (old, new) in enumerate(zip_longest(self._names, names[: self.done])):
            if old != new:
                raise DataError(f"{self.folder}: unit {index} was {old!r} and is now {new!r}. {self._way_out}")
        return names[self.done :]

    def add(self, name: str, patches: NDArray[np.uint8], groups: UnitGroups) -> None:
        """Commit the next unit: patches (N, S, S), ordered by group. N may be 0."""
        self.add_rows(name, patches, groups.rows(), groups.unregistered, groups.inputs)

    def check_inputs(self, paths: Mapping[str, Path]) -> None:
        """Refuse to resume if a file that a committed unit was made from has changed since."""
        for name, checksum in self._inputs.items():
            if name not in paths or sha256(paths[name]) != checksum:
                self._refuse_input(name)

    def _refuse_input(self, name: str) -> None:
        raise DataError(f"{self.folder}: {name} has changed since the build began. {self._way_out}")

    def add_rows(
        self,
        name: str,
        patches: NDArray[np.uint8],
        rows: pa.Table,
        unregistered: Sequence[str] = (),
        inputs: Mapping[str, str] | None = None,
    ) -> None:
        """Commit the next unit from a table of `unit_rows`: groups of several scenes or sources."""
        inputs = inputs or {}
        for file_name, checksum in inputs.items():
            if self._inputs.get(file_name, checksum) != checksum:
                self._refuse_input(file_name)
        count = check_shape(patches, f"N {self.patch_size} {self.patch_size}", name="patches")["N"]
        if (grouped := rows["count"].to_numpy().sum()) != count or patches.dtype != np.uint8:
            raise ArgumentError(
                f"patches: expected {grouped} (the sum of counts) of uint8, got {count} of {patches.dtype}."
            )
        if name in self._names:
            raise ArgumentError(f"name: unit {name!r} is already committed. Skip the first {self.done} units.")
        pixels = np.ascontiguousarray(patches).reshape(-1)
        with self._patches.open("r+b") as file:
            file.seek(self._end)
            file.write(pixels.data)
            file.truncate()
            _sync(file)
        notes = {"unit": name, "first": str(self._count), "patches": str(count), "crc32": str(zlib.crc32(pixels.data))}
        notes["unregistered"], notes["inputs"] = json.dumps(list(unregistered)), json.dumps(dict(inputs))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema.with_metadata(notes)) as journal:
            journal.write_table(rows)
        _publish(self._unit(self.done), sink.getvalue())
        self._names[name] = list(unregistered)
        self._inputs.update(inputs)
        self._count += count

    def finish(self) -> Path:
        """Complete the set and rename it to `out`. An interrupted call can be repeated."""
        if not self.complete:
            self._complete()
        shutil.rmtree(self.folder)
        self._lock.release()
        return self.out

    def _complete(self) -> None:
        groups = self._groups()
        if not len(groups):
            raise DataError(f"{self.folder}: expected at least one group, got none in {self.done} units.")
        # An open file, because Arrow takes a path with a colon for a URL.
        with (self._set / "groups.parquet").open("wb") as file:
            pq.write_table(groups, file, compression="zstd")
        with self._patches.open("r+b") as file:
            file.write(npy_header(self._count, self.patch_size))
        meta = {
            "format": FORMAT,
            "builder": self.builder,
            "ledger": self.ledger,
            "patch_size": self.patch_size,
            "patches": self._count,
            "groups": len(groups),
            "sha256": {name: sha256(self._set / name) for name in ("patches.npy", "groups.parquet")},
            "unregistered": {unit: photos for unit, photos in self._names.items() if photos},
        }
        (self._set / "meta.json").write_text(_json(meta), encoding="utf-8")
        for path in sorted(self._set.iterdir()):
            with path.open("r+b") as file:
                _sync(file)
        self._set.replace(self.out)

    @property
    def _end(self) -> int:
        return HEADER + self._count * self.patch_size**2

    def _unit(self, index: int) -> Path:
        return self._units / f"{index:06d}.arrow"

    def _start(self) -> None:
        """Begin a set, or continue it after the last complete unit."""
        self.complete = self._was_completed()
        if self.complete:
            return
        if self.out.exists():
            raise DataError(f"{self.out}: already exists. Remove it or choose another --out.")
        for folder in (self._units, self._set):
            folder.mkdir(parents=True, exist_ok=True)
        self._keep_plan()
        self._resume()

    def _was_completed(self) -> bool:
        """Return whether this build was killed after the set got its name and before the journal was removed."""
        if not self.folder.is_dir() or self._set.exists() or not finished(self.out):
            return False
        meta = read_json(self.out / "meta.json")
        return (meta.get("patch_size"), meta.get("builder")) == (self.patch_size, json.loads(_json(self.builder)))

    def _keep_plan(self) -> None:
        path = self.folder / "plan.json"
        plan = {"format": FORMAT, "patch_size": self.patch_size}
        plan |= {f"builder.{key}": value for key, value in self.builder.items()}
        # Through JSON and back like the stored plan, which turns tuples into lists.
        plan = json.loads(_json(plan))
        if not path.exists():
            _publish(path, _json(plan).encode())
        old = read_json(path)
        if differ := [key for key in sorted(old.keys() | plan.keys()) if old.get(key) != plan.get(key)]:
            changes = ", ".join(f"{key} was {old.get(key)!r} and is now {plan.get(key)!r}" for key in differ)
            raise DataError(f"{self.folder}: begun with other settings: {changes}. {self._way_out}")

    def _resume(self) -> None:
        """Accept the units up to the first missing or damaged one and remove the rest."""
        with self._patches.open("a+b") as file:
            file.truncate(max(self._patches.stat().st_size, HEADER))
            while (notes := _read_notes(self._unit(self.done))) is not None:
                file.seek(self._end)
                length = int(notes["patches"]) * self.patch_size**2
                if int(notes["first"]) != self._count or zlib.crc32(file.read(length)) != int(notes["crc32"]):
                    break
                self._names[notes["unit"]] = json.loads(notes.get("unregistered", "[]"))
                self._inputs.update(json.loads(notes.get("inputs", "{}")))
                self._count += int(notes["patches"])
            file.truncate(self._end)
        for path in set(self._units.iterdir()) - {self._unit(index) for index in range(self.done)}:
            path.unlink()

    def _groups(self) -> pa.Table:
        """Return the rows (G,) of the whole set, with indices counted from the first group of the set."""
        units = [pa.ipc.open_file(self._unit(index).read_bytes()).read_all() for index in range(self.done)]
        sizes = np.array([len(unit) for unit in units], dtype=np.int64)
        rows = pa.concat_tables([UNIT_SCHEMA.empty_table(), *units]).replace_schema_metadata()
        count = rows["count"].to_numpy().astype(np.int64)
        ignore = rows["ignore"].combine_chunks()
        first_of_unit = np.repeat(sizes.cumsum() - sizes, sizes)
        shift = np.repeat(first_of_unit, np.diff(ignore.offsets.to_numpy()))
        shifted = pa.ListArray.from_arrays(ignore.offsets, pa.array(ignore.flatten().to_numpy() + shift))
        rows = rows.set_column(4, SCHEMA.field("ignore"), shifted)
        return rows.add_column(0, SCHEMA.field("start"), pa.array(count.cumsum() - count)).combine_chunks()


def finished(out: str | Path) -> bool:
    """Return whether a set is complete. An unfinished set has another name."""
    return (Path(out) / "meta.json").is_file()


def npy_header(patches: int, side: int) -> bytes:
    """Return the header of an .npy file of (patches, side, side) uint8, always 128 bytes long."""
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({patches}, {side}, {side}), }}".encode()
    return np.lib.format.magic(1, 0) + (HEADER - 10).to_bytes(2, "little") + text.ljust(HEADER - 11) + b"\n"


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _publish(path: Path, content: Any) -> None:
    with atomic_write(path) as unfinished:
        unfinished.write_bytes(content)


def _read_notes(path: Path) -> dict[str, str] | None:
    """Return the metadata of a journal file, or None if it is missing or incomplete."""
    try:
        with pa.ipc.open_file(path.read_bytes()) as journal:
            journal.read_all()
            return {key.decode(): value.decode() for key, value in journal.schema.metadata.items()}
    except (OSError, pa.ArrowException):
        return None
