"""Patch sets on disk: reading, faults reported in one line, splitting and merging."""

import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doap._support.errors import ArgumentError, DataError
from doap._support.files import sha256
from doap.data import store
from doap.data.store import check_set, merge_sets, open_set, split_set
from doap.data.writer import SetWriter, UnitGroups

SIDE = 4


def write(out, units, first=0, side=SIDE, **builder):
    """A set of units (scene, source, sizes, ignored pairs); each patch holds its own number, from `first` on."""
    scenes = dict.fromkeys(scene for scene, *_ in units)
    ledger = [{"scene": scene, "licence": "CC0"} for scene in scenes]
    writer = SetWriter(out, side, {"first": first, **builder}, [*ledger, {"tool": "doap"}])
    for index, (scene, source, sizes, ignore) in enumerate(units):
        numbers = np.arange(first, first + sum(sizes), dtype=np.uint8)
        patches = np.broadcast_to(numbers[:, None, None], (len(numbers), side, side))
        pairs = np.array(ignore, dtype=np.int64).reshape(-1, 2)
        writer.add(f"unit {index}", patches, UnitGroups(np.array(sizes), scene, source, pairs))
        first += sum(sizes)
    return writer.finish()


SQUARE = ("square", "tracks", [2, 1, 3], [(0, 2), (0, 1)])
BRIDGE = ("bridge", "b.jpg", [4, 2, 2], [(2, 1)])
SQUARE_AGAIN = ("square", "c.jpg", [1, 2], [(0, 1)])


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "set", [SQUARE, BRIDGE, SQUARE_AGAIN])


def contents(patch_set):
    """Each group as its scene, its source and the numbers of its patches."""
    return [
        (
            patch_set.scene_names[patch_set.scene_ids[group]],
            patch_set.source_names[patch_set.source_ids[group]],
            [int(patch[0, 0]) for patch in patch_set.gather(patch_set.members(np.array([group])))],
        )
        for group in range(len(patch_set))
    ]


def ignored_numbers(patch_set):
    """Ignored pairs by the number of the first patch of each group, which splits and merges preserve."""
    pairs = patch_set.ignored(np.arange(len(patch_set)))
    return {frozenset(int(patch_set.patches[patch_set.start[group], 0, 0]) for group in pair) for pair in pairs}


def edit_meta(path, **changes):
    meta = json.loads((path / "meta.json").read_text())
    (path / "meta.json").write_text(json.dumps({**meta, **changes}))


def edit_groups(path, column, values):
    """Change a column, and the checksum with it."""
    table = pq.read_table(path / "groups.parquet")
    table = table.set_column(table.schema.get_field_index(column), column, values)
    pq.write_table(table, path / "groups.parquet")
    edit_meta(path, sha256={name: sha256(path / name) for name in ("patches.npy", "groups.parquet")})


def test_patches_are_memory_mapped_and_not_pickled(path):
    assert isinstance(open_set(path).patches, np.memmap)
    pickled = pickle.dumps(open_set(path))
    assert len(pickled) < 500
    assert contents(pickle.loads(pickled)) == contents(open_set(path))


@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_ignored_pairs_equal_those_of_a_simple_loop(data, tmp_path_factory):
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


def cut(name):
    def fault(path):
        content = (path / name).read_bytes()
        (path / name).write_bytes(content[: len(content) * 2 // 3])

    return fault


def garble_groups(path):
    """Overwrite the data of one column but not the metadata of the file."""
    chunk = pq.read_metadata(path / "groups.parquet").row_group(0).column(1)
    content = bytearray((path / "groups.parquet").read_bytes())
    begin = chunk.dictionary_page_offset
    content[begin : begin + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    (path / "groups.parquet").write_bytes(content)


FOUND_BY_OPENING = {
    "no meta": lambda path: (path / "meta.json").unlink(),
    "bad json": cut("meta.json"),
    "json of a list": lambda path: (path / "meta.json").write_text("[1]"),
    "missing keys": lambda path: (path / "meta.json").write_text('{"format": 1, "groups": 8}'),
    "another format": lambda path: edit_meta(path, format=2),
    "extent of a list": lambda path: edit_meta(path, builder={"extent": [1]}),
    "infinite extent": lambda path: edit_meta(path, builder={"extent": float("inf")}),
    "merged from a number": lambda path: edit_meta(path, builder={"merge": 3}),
    "split from nothing": lambda path: edit_meta(path, builder={"of": {"sha256": {}}}),
    "no patches": lambda path: (path / "patches.npy").unlink(),
    "truncated patches": cut("patches.npy"),
    "no npy": lambda path: (path / "patches.npy").write_bytes(b"x" * 400),
    "wrong dtype": lambda path: np.save(path / "patches.npy", np.zeros((17, SIDE, SIDE), np.int8)),
    "wrong shape": lambda path: edit_meta(path, patch_size=8),
    "no groups": lambda path: (path / "groups.parquet").unlink(),
    "truncated groups": cut("groups.parquet"),
    "garbled groups": garble_groups,
    "wrong column": lambda path: edit_groups(path, "count", pa.array([1] * 8, pa.int64())),
    "empty values": lambda path: edit_groups(path, "count", pa.array([None] + [2] * 7, pa.int32())),
    "wrong number of groups": lambda path: edit_meta(path, groups=9),
    "wrong counts": lambda path: edit_groups(path, "count", pa.array([3] * 8, pa.int32())),
    "empty group": lambda path: edit_groups(path, "count", pa.array([3, 0, 3, 4, 2, 2, 1, 2], pa.int32())),
}


def change_a_pixel(path):
    content = bytearray((path / "patches.npy").read_bytes())
    content[-1] ^= 1
    (path / "patches.npy").write_bytes(content)


@pytest.mark.parametrize("name", FOUND_BY_OPENING)
def test_a_fault_found_by_opening_is_reported_in_one_line(name, path):
    FOUND_BY_OPENING[name](path)
    with pytest.raises(DataError) as caught:
        open_set(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fault", [change_a_pixel, lambda path: edit_meta(path, sha256={})])
def test_a_wrong_checksum_is_found_by_checking(fault, path):
    fault(path)
    open_set(path)
    with pytest.raises(DataError):
        check_set(path)


@pytest.mark.parametrize("ignored", [[8], [-1], [None]])
def test_a_damaged_column_of_ignored_groups_is_refused_when_it_is_read(ignored, path):
    edit_groups(path, "ignore", pa.array([ignored, *[[]] * 7], pa.list_(pa.int64())))
    with pytest.raises(DataError):
        open_set(path).ignored(np.arange(8))


def test_ignored_groups_of_fewer_rows_than_groups_are_refused(path):
    """A damaged page header shortens one column; the fuzzer found it as an index error."""
    patch_set = open_set(path)
    pq.write_table(pq.read_table(path / "groups.parquet").slice(0, 7), path / "groups.parquet")
    with pytest.raises(DataError):
        patch_set.ignored(np.arange(8))


@pytest.mark.parametrize("groups_at_once", [2, 4096])
def test_a_split_contains_the_groups_of_its_scenes(groups_at_once, path, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "GROUPS_AT_ONCE", groups_at_once)
    whole, part = open_set(path), open_set(split_set(path, tmp_path / "part", ["square"]))
    assert contents(part) == [group for group in contents(whole) if group[0] == "square"]
    assert ignored_numbers(part) == {frozenset(pair) for pair in [(0, 2), (0, 3), (14, 15)]}
    assert part.meta["ledger"] == [{"scene": "square", "licence": "CC0"}, {"tool": "doap"}]


@pytest.mark.parametrize("groups_at_once", [2, 4096])
def test_a_merge_contains_the_groups_of_all_sets(groups_at_once, path, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "GROUPS_AT_ONCE", groups_at_once)
    other = write(tmp_path / "other", [("tower", "tracks", [2, 2], [(0, 1)]), BRIDGE], first=100)
    merged = open_set(merge_sets([path, other], tmp_path / "merged"))
    assert contents(merged) == contents(open_set(path)) + contents(open_set(other))
    assert ignored_numbers(merged) == ignored_numbers(open_set(path)) | ignored_numbers(open_set(other))
    assert [row.get("scene") for row in merged.meta["ledger"]] == ["square", "bridge", None, "tower"]


def test_splitting_and_merging_restores_the_set_and_its_extent(tmp_path):
    whole = write(tmp_path / "wide", [SQUARE, BRIDGE, SQUARE_AGAIN], extent=1.5)
    parts = [split_set(whole, tmp_path / name, [name]) for name in ("square", "bridge")]
    merged = open_set(merge_sets(parts, tmp_path / "merged"))
    assert sorted(contents(merged)) == sorted(contents(open_set(whole)))
    assert ignored_numbers(merged) == ignored_numbers(open_set(whole))
    assert merged.extent == 1.5


@pytest.mark.parametrize("change", [{"side": 8}, {"extent": 1.5}])
def test_a_merge_needs_patches_of_one_size_and_extent(change, path, tmp_path):
    other = write(tmp_path / "other", [BRIDGE], **change)
    with pytest.raises(DataError):
        merge_sets([path, other], tmp_path / "merged")
    with pytest.raises(ArgumentError):
        merge_sets([], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
