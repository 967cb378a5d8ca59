"""Write a set of patch groups: unit by unit, whole or not at all, and resumed where it was killed.

    NAME.unfinished/
    ├── plan.json            what is being built: patch size and builder
    ├── units/000123.arrow   one for each committed unit: its groups; these files are the journal
    └── set/                 becomes NAME by one rename, at the end
        └── patches.npy      grows at its end; its header is room kept free until the number of patches is known

A unit's patches are on the disk before its journal file gets its name. So whatever happens, the journal tells how much
of `patches.npy` counts, and what lies beyond is cut off. Nothing depends on time or on where a run stopped: a build
that was killed and resumed has the same bytes as one that was not.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from doap.checks import check_shape
from doap.errors import ArgumentError, DataError
from doap.files import atomic_write, read_json, sha256

FORMAT = 1
SCHEMA = pa.schema(
    {
        "start": pa.int64(),
        "count": pa.int32(),
        "sequence": pa.dictionary(pa.int32(), pa.string()),
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

    Attributes:
        count: (G,) patches of each group, at least 1; a group of one is a distractor to all.
        sequence: the place they are from; splits go by it.
        position: (G, 3) float32, a point of a model, or (x, y, 0) in a photo.
        source: what made them: `tracks` (more of them: `tracks 2`, …) for a model, or the photo's name; one for all, or
            one for each.
        ignore: (P, 2) groups of this unit that are neither match nor distractor to each other; each pair once.
    """

    count: NDArray[np.integer[Any]]
    sequence: str
    position: NDArray[np.float32]
    source: str | Sequence[str]
    ignore: NDArray[np.integer[Any]]

    def __post_init__(self) -> None:
        groups = check_shape(self.count, "G", name="count")["G"]
        check_shape(self.position, f"{groups} 3", name="position")
        check_shape(self.ignore, "P 2", name="ignore")
        if len(self.sources) != groups:
            raise ArgumentError(
                f"source: expected one for all or one for each of {groups} groups, got {len(self.sources)}"
            )
        if groups and self.count.min() < 1:
            raise ArgumentError(f"count: expected at least 1 patch in a group, got {self.count.min()}")
        if self.ignore.size and (self.ignore.min() < 0 or self.ignore.max() >= groups):
            raise ArgumentError(f"ignore: expected groups of the unit, 0 to {groups - 1}, got others")
        if (self.ignore[:, 0] == self.ignore[:, 1]).any():
            raise ArgumentError("ignore: expected pairs of different groups, got a group with itself")

    def rows(self) -> pa.Table:
        """The groups as `unit_rows`."""
        size, both = len(self.count), np.unique(np.concatenate([self.ignore, self.ignore[:, ::-1]]), axis=0)
        return unit_rows(self.count, [self.sequence] * size, self.position, self.sources, both)

    @property
    def sources(self) -> list[str]:
        """What made each group."""
        return [self.source] * len(self.count) if isinstance(self.source, str) else list(self.source)


def unit_rows(
    count: NDArray[Any], sequence: Sequence[str], position: NDArray[Any], source: Sequence[str], ignore: NDArray[Any]
) -> pa.Table:
    """Rows of a journal file: the columns of the set but `start`, which is not known before all units are.

    Count is (G,), position (G, 3), and of the names there are G each. Ignore is (P, 2), in both directions and in
    order: a group, and the one that it ignores, both counted from the unit's first. The latter may lie in another unit.
    """
    offsets = np.concatenate([[0], np.bincount(ignore[:, 0], minlength=len(count)).cumsum()])
    columns = {
        "count": pa.array(count, pa.int32()),
        "sequence": pa.array(sequence, pa.string()).dictionary_encode(),
        "position": pa.FixedSizeListArray.from_arrays(pa.array(np.ravel(position), pa.float32()), 3),
        "source": pa.array(source, pa.string()).dictionary_encode(),
        "ignore": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(ignore[:, 1], pa.int64())),
    }
    return pa.table(columns, schema=UNIT_SCHEMA)


class SetWriter:
    """Build the set `out` from units that come in a fixed order, such as photos or places.

        writer = SetWriter(out, 32, builder, ledger)
        for name in writer.remaining(names):
            writer.add(name, *patches_and_groups(name))
        writer.finish()

    One writer to a set at a time; a second one on the same `out` is not noticed.

    Args:
        out: the folder to make; it must not exist. `<out>.unfinished` beside it is resumed if it is there.
        patch_size: S.
        builder: all that decides what is built, as JSON can hold it; another one does not resume the work of this one.
        ledger: the licence ledger, a dict for each piece of the material.
    """

    def __init__(self, out: str | Path, patch_size: int, builder: dict[str, Any], ledger: list[dict[str, Any]]) -> None:
        self.out, self.patch_size, self.builder, self.ledger = Path(out), patch_size, builder, ledger
        if self.out.exists():
            raise DataError(f"{self.out}: exists; remove it or choose another --out")
        self.folder = self.out.with_name(self.out.name + ".unfinished")
        self._way_out = f"remove {self.folder} or choose another --out"
        self._units, self._set = self.folder / "units", self.folder / "set"
        self._patches = self._set / "patches.npy"
        for folder in (self._units, self._set):
            folder.mkdir(parents=True, exist_ok=True)
        self._keep_plan()
        self._names: dict[str, None] = {}  # its keys: kept in order and found at once
        self._count = 0
        self._resume()

    @property
    def done(self) -> int:
        """Units committed so far, by this run and those before it."""
        return len(self._names)

    def remaining(self, names: Sequence[str]) -> Sequence[str]:
        """Those of the whole list of units that are still to be added; the ones before must be those committed."""
        for index, (old, new) in enumerate(zip_longest(self._names, names[: self.done])):
            if old != new:
                raise DataError(f"{self.folder}: unit {index} was {old!r}, now is {new!r}; {self._way_out}")
        return names[self.done :]

    def add(self, name: str, patches: NDArray[np.uint8], groups: UnitGroups) -> None:
        """Commit the next unit, (N, S, S) patches group after group; N may be 0. once this returns, they stay."""
        self.add_rows(name, patches, groups.rows())

    def add_rows(self, name: str, patches: NDArray[np.uint8], rows: pa.Table) -> None:
        """Commit the next unit from rows that `unit_rows` made: for groups of several places or sources."""
        count = check_shape(patches, f"N {self.patch_size} {self.patch_size}", name="patches")["N"]
        if (grouped := rows["count"].to_numpy().sum()) != count or patches.dtype != np.uint8:
            raise ArgumentError(f"patches: expected {grouped} uint8, the sum of counts, got {count} {patches.dtype}")
        if name in self._names:
            raise ArgumentError(f"name: expected a new unit, got {name!r} again; skip the first {self.done} units")
        pixels = np.ascontiguousarray(patches).reshape(-1)
        with self._patches.open("r+b") as file:
            file.seek(self._end)
            file.write(pixels.data)
            file.truncate()
            _sync(file)
        notes = {"unit": name, "first": str(self._count), "patches": str(count), "crc32": str(zlib.crc32(pixels.data))}
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema.with_metadata(notes)) as journal:
            journal.write_table(rows)
        _publish(self._unit(self.done), sink.getvalue())
        self._names[name] = None
        self._count += count

    def finish(self) -> Path:
        """Put the set together and give it its name. Killed in here, it begins here again."""
        groups = self._groups()
        if not len(groups):
            raise DataError(f"{self.folder}: expected at least 1 group, got none in {self.done} units")
        pq.write_table(groups, self._set / "groups.parquet", compression="zstd")
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
        }
        (self._set / "meta.json").write_text(_json(meta), encoding="utf-8")
        for path in sorted(self._set.iterdir()):
            with path.open("r+b") as file:
                _sync(file)
        self._set.replace(self.out)
        shutil.rmtree(self.folder)
        return self.out

    @property
    def _end(self) -> int:
        return HEADER + self._count * self.patch_size**2

    def _unit(self, index: int) -> Path:
        return self._units / f"{index:06d}.arrow"

    def _keep_plan(self) -> None:
        path = self.folder / "plan.json"
        plan = {"format": FORMAT, "patch_size": self.patch_size}
        plan |= {f"builder.{key}": value for key, value in self.builder.items()}
        # Through JSON and back, as the old one went: it turns tuples into lists.
        plan = json.loads(_json(plan))
        if not path.exists():
            _publish(path, _json(plan).encode())
        old = read_json(path)
        if differ := [key for key in sorted(old.keys() | plan.keys()) if old.get(key) != plan.get(key)]:
            changes = ", ".join(f"{key} was {old.get(key)!r}, now is {plan.get(key)!r}" for key in differ)
            raise DataError(f"{self.folder}: begun otherwise: {changes}; {self._way_out}")

    def _resume(self) -> None:
        """Take the units up to the first that is missing or damaged; cut off all the rest."""
        with self._patches.open("a+b") as file:
            file.truncate(max(file.tell(), HEADER))
            while (notes := _read_notes(self._unit(self.done))) is not None:
                file.seek(self._end)
                length = int(notes["patches"]) * self.patch_size**2
                if int(notes["first"]) != self._count or zlib.crc32(file.read(length)) != int(notes["crc32"]):
                    break
                self._names[notes["unit"]] = None
                self._count += int(notes["patches"])
            file.truncate(self._end)
        for path in set(self._units.iterdir()) - {self._unit(index) for index in range(self.done)}:
            path.unlink()

    def _groups(self) -> pa.Table:
        """(G,) rows of the whole set; what a unit counts from its first patch and group is counted from the set's."""
        units = [pa.ipc.open_file(self._unit(index).read_bytes()).read_all() for index in range(self.done)]
        sizes = np.array([len(unit) for unit in units], dtype=np.int64)
        rows = pa.concat_tables([UNIT_SCHEMA.empty_table(), *units]).replace_schema_metadata()
        count = rows["count"].to_numpy().astype(np.int64)
        ignore = rows["ignore"].combine_chunks()
        first_of_unit = np.repeat(sizes.cumsum() - sizes, sizes)
        others = ignore.flatten().to_numpy() + np.repeat(first_of_unit, np.diff(ignore.offsets.to_numpy()))
        rows = rows.set_column(4, SCHEMA.field("ignore"), pa.ListArray.from_arrays(ignore.offsets, pa.array(others)))
        return rows.add_column(0, SCHEMA.field("start"), pa.array(count.cumsum() - count)).combine_chunks()


def finished(out: str | Path) -> bool:
    """Is this set built? While it is being built it has another name."""
    return (Path(out) / "meta.json").is_file()


def npy_header(patches: int, side: int) -> bytes:
    """The header of an .npy file of (patches, side, side) uint8, in 128 bytes whatever the numbers."""
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
    """What a journal file says about its unit; None where there is no such file or not a whole one."""
    try:
        with pa.ipc.open_file(path.read_bytes()) as journal:
            journal.read_all()
            return {key.decode(): value.decode() for key, value in journal.schema.metadata.items()}
    except (OSError, pa.ArrowException):
        return None
