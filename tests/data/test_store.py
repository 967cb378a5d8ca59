"""Patch sets on disk: reading, faults reported in one line, splitting and merging."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doap._support.errors import ArgumentError, DataError
from doap._support.files import sha256
from doap.data import store
from doap.data.store import PatchSet, check_set, merge_sets, open_set, split_set
from doap.data.writer import SetWriter, UnitGroups

SIDE = 4


Units = list[tuple[str, str, list[int], list[tuple[int, int]]]]


def write(out: Path, units: Units, first: int = 0, **builder: float) -> Path:
    """A set of units (scene, source, sizes, ignored pairs); each patch holds its own number, from `first` on."""
    scenes = dict.fromkeys(scene for scene, *_ in units)
    ledger: list[dict[str, Any]] = [{"scene": scene, "licence": "CC0"} for scene in scenes]
    writer = SetWriter(out, SIDE, {"first": first, **builder}, [*ledger, {"tool": "doap"}])
    for index, (scene, source, sizes, ignore) in enumerate(units):
        numbers = np.arange(first, first + sum(sizes), dtype=np.uint8)
        patches = np.broadcast_to(numbers[:, None, None], (len(numbers), SIDE, SIDE))
        position = np.full((len(sizes), 3), index, dtype=np.float32)
        pairs = np.array(ignore, dtype=np.int64).reshape(-1, 2)
        writer.add(f"unit {index}", patches, UnitGroups(np.array(sizes), scene, position, source, pairs))
        first += sum(sizes)
    return writer.finish()


SQUARE = ("square", "tracks", [2, 1, 3], [(0, 2), (0, 1)])
BRIDGE = ("bridge", "b.jpg", [4, 2, 2], [(2, 1)])
SQUARE_AGAIN = ("square", "c.jpg", [1, 2], [(0, 1)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "set", [SQUARE, BRIDGE, SQUARE_AGAIN])


def contents(patch_set: PatchSet) -> list[tuple[str, str, list[int], float]]:
    """Each group as its scene, its source, the numbers of its patches and its position."""
    return [
        (
            patch_set.scene_names[patch_set.scene_ids[group]],
            patch_set.source_names[patch_set.source_ids[group]],
            [int(patch[0, 0]) for patch in patch_set.gather(patch_set.members(np.array([group])))],
            float(patch_set.position[group, 0]),
        )
        for group in range(len(patch_set))
    ]


def ignored_numbers(patch_set: PatchSet) -> set[frozenset[int]]:
    """Ignored pairs by the number of the first patch of each group, which splits and merges preserve."""
    pairs = patch_set.ignored(np.arange(len(patch_set)))
    return {frozenset(int(patch_set.patches[patch_set.start[group], 0, 0]) for group in pair) for pair in pairs}


def edit_meta(path: Path, **changes: Any) -> None:
    meta = json.loads((path / "meta.json").read_text())
    (path / "meta.json").write_text(json.dumps({**meta, **changes}))


def edit_groups(path: Path, column: str, values: pa.Array) -> None:
    """Change a column, and the checksum with it."""
    table = pq.read_table(path / "groups.parquet")
    table = table.set_column(table.schema.get_field_index(column), column, values)
    pq.write_table(table, path / "groups.parquet")
    edit_meta(path, sha256={name: sha256(path / name) for name in ("patches.npy", "groups.parquet")})


def test_a_set_is_opened_as_it_was_written(path: Path) -> None:
    patch_set = open_set(path)
    assert len(patch_set) == 8
    assert patch_set.patch_size == SIDE
    assert patch_set.count.tolist() == [2, 1, 3, 4, 2, 2, 1, 2]
    assert patch_set.start.tolist() == [0, 2, 3, 6, 10, 12, 14, 15]
    assert contents(patch_set)[2] == ("square", "tracks", [3, 4, 5], 0.0)
    assert contents(patch_set)[7] == ("square", "c.jpg", [15, 16], 2.0)


def test_patches_are_memory_mapped_and_read_only(path: Path) -> None:
    patches = open_set(path).patches
    assert isinstance(patches, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        patches[0] = 0


def test_a_pickled_set_contains_no_patches(path: Path) -> None:
    pickled = pickle.dumps(open_set(path))
    assert len(pickled) < 500
    assert contents(pickle.loads(pickled)) == contents(open_set(path))


def test_several_row_groups_are_read_like_one(path: Path) -> None:
    before = contents(open_set(path)), ignored_numbers(open_set(path))
    pq.write_table(pq.read_table(path / "groups.parquet"), path / "groups.parquet", row_group_size=3)
    assert (contents(open_set(path)), ignored_numbers(open_set(path))) == before


@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_ignored_pairs_equal_those_of_a_simple_loop(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    group = st.integers(0, 9)
    pairs = data.draw(st.sets(st.tuples(group, group).filter(lambda pair: pair[0] < pair[1])))
    batch = data.draw(st.lists(group, unique=True))
    patch_set = open_set(write(tmp_path_factory.mktemp("ignored") / "set", [("a", "b", [1] * 10, sorted(pairs))]))
    expected = [
        [first, second]
        for first in range(len(batch))
        for second in range(first + 1, len(batch))
        if (batch[first], batch[second]) in pairs or (batch[second], batch[first]) in pairs
    ]
    found = patch_set.ignored(np.array(batch, dtype=np.int64))
    assert found.shape == (len(expected), 2)
    assert sorted(found.tolist()) == expected


def test_the_check_returns_a_summary_of_the_set(path: Path) -> None:
    summary = check_set(path)
    assert (summary.patches, summary.groups) == (17, 8)
    assert summary.groups_per_scene == {"square": 5, "bridge": 3}
    assert summary.groups_per_size == {1: 2, 2: 4, 3: 1, 4: 1}
    assert (summary.from_tracks, summary.from_photos) == (3, 5)


def cut(name: str) -> Callable[[Path], None]:
    def fault(path: Path) -> None:
        content = (path / name).read_bytes()
        (path / name).write_bytes(content[: len(content) * 2 // 3])

    return fault


def garble_groups(path: Path) -> None:
    """Overwrite the data of one column but not the metadata of the file."""
    chunk = pq.read_metadata(path / "groups.parquet").row_group(0).column(1)
    content = bytearray((path / "groups.parquet").read_bytes())
    begin = chunk.dictionary_page_offset
    content[begin : begin + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    (path / "groups.parquet").write_bytes(content)


def lengthen_patches(path: Path) -> None:
    with (path / "patches.npy").open("ab") as file:
        file.write(b"more")


def drop_keys(path: Path) -> None:
    (path / "meta.json").write_text('{"format": 1, "groups": 8}')


FOUND_BY_OPENING: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no meta": (lambda path: (path / "meta.json").unlink(), r"set: not a patch set \(no meta.json\)"),
    "bad json": (cut("meta.json"), r"meta.json: expected a JSON object, got a damaged file"),
    "json of a list": (lambda path: (path / "meta.json").write_text("[1]"), r"meta.json: expected a JSON object"),
    "missing keys": (drop_keys, r"meta.json: builder: field required"),
    "another format": (lambda path: edit_meta(path, format=2), r"expected format 1, got 2"),
    "no patches": (lambda path: (path / "patches.npy").unlink(), r"patches.npy: the file is missing"),
    "truncated patches": (cut("patches.npy"), r"patches.npy: the file is truncated or damaged"),
    "more patches": (lengthen_patches, r"patches.npy: 4 bytes after the last patch"),
    "no npy": (
        lambda path: (path / "patches.npy").write_bytes(b"x" * 400),
        r"patches.npy: the file is truncated or damaged",
    ),
    "wrong dtype": (
        lambda path: np.save(path / "patches.npy", np.zeros((17, SIDE, SIDE), np.int8)),
        r"expected uint8 \(17, 4, 4\) according to meta.json, got int8 \(17, 4, 4\)",
    ),
    "wrong shape": (
        lambda path: edit_meta(path, patch_size=8),
        r"expected uint8 \(17, 8, 8\) .* got uint8 \(17, 4, 4\)",
    ),
    "no groups": (lambda path: (path / "groups.parquet").unlink(), r"groups.parquet: no such file"),
    "truncated groups": (cut("groups.parquet"), r"groups.parquet: not a readable Parquet file"),
    "garbled groups": (garble_groups, r"groups.parquet: not a readable Parquet file"),
    "wrong column": (
        lambda path: edit_groups(path, "count", pa.array([1] * 8, pa.int64())),
        r"groups.parquet: expected the columns of format 1, got start int64, count int64",
    ),
    "empty values": (
        lambda path: edit_groups(path, "count", pa.array([None] + [2] * 7, pa.int32())),
        r"empty values in column count",
    ),
    "wrong number of groups": (lambda path: edit_meta(path, groups=9), r"expected 9 groups, got 8"),
    "wrong counts": (
        lambda path: edit_groups(path, "count", pa.array([3] * 8, pa.int32())),
        r"expected groups of 17 patches in total and no empty group, got 24 patches and 0 empty groups",
    ),
    "empty group": (
        lambda path: edit_groups(path, "count", pa.array([3, 0, 3, 4, 2, 2, 1, 2], pa.int32())),
        r"got 17 patches and 1 empty groups",
    ),
}


def change_a_pixel(path: Path) -> None:
    content = bytearray((path / "patches.npy").read_bytes())
    content[-1] ^= 1
    (path / "patches.npy").write_bytes(content)


def edit_ignore(path: Path, *lists: list[int]) -> None:
    edit_groups(path, "ignore", pa.array([*lists, *[[]] * (8 - len(lists))], pa.list_(pa.int64())))


FOUND_BY_CHECKING: dict[str, tuple[Callable[[Path], Any], str]] = {
    "wrong checksum": (change_a_pixel, r"patches.npy: expected SHA-256 \w{64}, got \w{64}. Copy"),
    "no checksum": (lambda path: edit_meta(path, sha256={}), r"patches.npy: expected SHA-256 None"),
    "wrong start": (
        lambda path: edit_groups(path, "start", pa.array([0, 3, 4, 6, 10, 12, 14, 15], pa.int64())),
        r"a group does not start where the previous one ends",
    ),
    "ignored beyond": (lambda path: edit_ignore(path, [8]), r"expected ignored groups from 0 to 7, got 8 to 8"),
    "ignores itself": (lambda path: edit_ignore(path, [0]), r"a group ignores itself"),
    "ignored one way": (
        lambda path: edit_ignore(path, [1], [0, 2]),
        r"a group ignores another one that does not ignore it",
    ),
}


@pytest.mark.parametrize("name", FOUND_BY_OPENING)
def test_a_fault_found_by_opening_is_reported_in_one_line(name: str, path: Path) -> None:
    fault, message = FOUND_BY_OPENING[name]
    fault(path)
    with pytest.raises(DataError, match=message) as caught:
        open_set(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", FOUND_BY_CHECKING)
def test_a_fault_found_by_checking_is_reported_in_one_line(name: str, path: Path) -> None:
    fault, message = FOUND_BY_CHECKING[name]
    fault(path)
    open_set(path)
    with pytest.raises(DataError, match=message) as caught:
        check_set(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ignored", [[8], [-1], [None]])
def test_a_damaged_column_of_ignored_groups_is_refused_when_it_is_read(ignored: list[int], path: Path) -> None:
    edit_ignore(path, ignored)
    with pytest.raises(DataError, match=r"expected ignored groups from 0 to 7, got") as caught:
        open_set(path).ignored(np.arange(8))
    assert "\n" not in str(caught.value)


def test_ignored_groups_of_fewer_rows_than_groups_are_refused(path: Path) -> None:
    """A damaged page header shortens one column; the fuzzer found it as an index error."""
    patch_set = open_set(path)
    pq.write_table(pq.read_table(path / "groups.parquet").slice(0, 7), path / "groups.parquet")
    with pytest.raises(DataError, match=r"damaged column ignore in groups.parquet"):
        patch_set.ignored(np.arange(8))


@pytest.mark.parametrize("groups_at_once", [1, 2, 4096])
def test_a_split_contains_the_groups_of_its_scenes(
    groups_at_once: int, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "GROUPS_AT_ONCE", groups_at_once)
    whole, part = open_set(path), open_set(split_set(path, tmp_path / "part", ["square"]))
    assert contents(part) == [group for group in contents(whole) if group[0] == "square"]
    assert ignored_numbers(part) == {frozenset(pair) for pair in [(0, 2), (0, 3), (14, 15)]}
    assert part.meta["ledger"] == [{"scene": "square", "licence": "CC0"}, {"tool": "doap"}]
    assert check_set(tmp_path / "part").groups_per_scene == {"square": 5}


def test_a_split_drops_ignored_pairs_with_groups_of_other_scenes(path: Path, tmp_path: Path) -> None:
    edit_ignore(path, [2, 3], [], [0], [0])
    split_set(path, tmp_path / "part", ["square"])
    assert check_set(tmp_path / "part").groups == 5
    assert ignored_numbers(open_set(tmp_path / "part")) == {frozenset([0, 3])}


@pytest.mark.parametrize("groups_at_once", [1, 2, 4096])
def test_a_merge_contains_the_groups_of_all_sets(
    groups_at_once: int, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "GROUPS_AT_ONCE", groups_at_once)
    other = write(tmp_path / "other", [("tower", "tracks", [2, 2], [(0, 1)]), BRIDGE], first=100)
    merged = open_set(merge_sets([path, other], tmp_path / "merged"))
    assert contents(merged) == contents(open_set(path)) + contents(open_set(other))
    assert ignored_numbers(merged) == ignored_numbers(open_set(path)) | ignored_numbers(open_set(other))
    assert [row.get("scene") for row in merged.meta["ledger"]] == ["square", "bridge", None, "tower"]
    assert check_set(tmp_path / "merged").groups_per_scene == {"square": 5, "bridge": 6, "tower": 2}


def test_sets_of_different_extents_are_not_merged(path: Path, tmp_path: Path) -> None:
    wide = write(tmp_path / "wide", [BRIDGE], extent=1.5)
    with pytest.raises(DataError, match=r"expected sets of one extent, got \[1\.0, 1\.5\]"):
        merge_sets([path, wide], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_splitting_and_merging_restores_the_set(path: Path, tmp_path: Path) -> None:
    parts = [split_set(path, tmp_path / name, [name]) for name in ("square", "bridge")]
    merged = open_set(merge_sets(parts, tmp_path / "merged"))
    assert sorted(contents(merged)) == sorted(contents(open_set(path)))
    assert ignored_numbers(merged) == ignored_numbers(open_set(path))


def test_a_split_needs_scenes_that_exist(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"expected some of \['square', 'bridge'\], got \['towr'\]"):
        split_set(path, tmp_path / "part", ["square", "towr"])
    with pytest.raises(ArgumentError, match=r"got none"):
        split_set(path, tmp_path / "part", [])


def test_a_merge_needs_patches_of_one_size(path: Path, tmp_path: Path) -> None:
    writer = SetWriter(tmp_path / "large", 8, {}, [])
    groups = UnitGroups(np.array([1]), "a", np.zeros((1, 3), np.float32), "b", np.zeros((0, 2), np.int64))
    writer.add("a", np.zeros((1, 8, 8), np.uint8), groups)
    with pytest.raises(DataError, match=r"expected sets of one patch size, got \[4, 8\]"):
        merge_sets([path, writer.finish()], tmp_path / "merged")
    with pytest.raises(ArgumentError, match=r"expected at least one set"):
        merge_sets([], tmp_path / "merged")
