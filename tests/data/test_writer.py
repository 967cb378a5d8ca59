"""The writer: groups are read back as written, and a build killed at any time resumes to the same bytes."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doap._support.checks import MAX_PATCH_SIZE
from doap._support.errors import ArgumentError, DataError, ShapeError
from doap.data.store import open_set
from doap.data.writer import SetWriter, UnitGroups, finished, npy_header
from oracles.interpreter import run_python

SIDE = 4
BUILDER = {"kind": "test", "octaves": [1, 2]}
LEDGER = [{"scene": "square", "licence": "CC0"}]


class Killed(BaseException):
    """Stands for a signal: no handler catches it."""


def unit(seed: int, sizes: list[int], ignore: list[tuple[int, int]] | None = None) -> tuple[np.ndarray, UnitGroups]:
    rng = np.random.default_rng(seed)
    patches = rng.integers(0, 256, (sum(sizes), SIDE, SIDE), dtype=np.uint8)
    position = rng.random((len(sizes), 3), dtype=np.float32)
    pairs = np.array(ignore or [], dtype=np.int64).reshape(-1, 2)
    return patches, UnitGroups(np.array(sizes, dtype=np.int64), f"scene {seed % 2}", position, f"{seed}.jpg", pairs)


UNITS = {
    "a": unit(0, [2, 3, 1], [(0, 2)]),
    "b": unit(1, []),
    "c": unit(2, [4, 2], [(1, 0)]),
    "d": unit(3, [1, 1, 5]),
}


def build(out: Path, units: dict[str, tuple[np.ndarray, UnitGroups]] = UNITS) -> Path:
    writer = SetWriter(out, SIDE, BUILDER, LEDGER)
    for name in writer.remaining(list(units)):
        writer.add(name, *units[name])
    return writer.finish()


def begin(out: Path, units: int) -> Path:
    """Return the unfinished folder of a build that was killed after this many units."""
    writer = SetWriter(out, SIDE, BUILDER, LEDGER)
    for name in list(UNITS)[:units]:
        writer.add(name, *UNITS[name])
    return writer.folder


def fingerprints(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return fingerprints(build(tmp_path_factory.mktemp("uninterrupted") / "set"))


sizes_of_units = st.lists(st.lists(st.integers(1, 5), max_size=6), min_size=1, max_size=5).filter(any)


@settings(deadline=None, max_examples=25)
@given(sizes=sizes_of_units)
def test_groups_are_read_back_as_written(sizes: list[list[int]], tmp_path_factory: pytest.TempPathFactory) -> None:
    units = {str(seed): unit(seed, part) for seed, part in enumerate(sizes)}
    patch_set = open_set(build(tmp_path_factory.mktemp("property") / "set", units))
    group = 0
    for patches, groups in units.values():
        end = np.cumsum(groups.count)
        for index, size in enumerate(groups.count):
            own = patches[end[index] - size : end[index]]
            np.testing.assert_array_equal(patch_set.gather(patch_set.members(np.array([group]))), own)
            np.testing.assert_array_equal(patch_set.position[group], groups.position[index])
            assert patch_set.scene_names[patch_set.scene_ids[group]] == groups.scene
            assert patch_set.source_names[patch_set.source_ids[group]] == groups.source
            group += 1
    assert group == len(patch_set)


def test_ignored_groups_are_indices_within_the_set(tmp_path: Path) -> None:
    ignored = open_set(build(tmp_path / "set")).ignored(np.arange(8))
    assert ignored.tolist() == [[0, 2], [3, 4]]


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_build_killed_at_any_call_and_resumed_has_the_same_bytes(
    call: str, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uninterrupted: dict[str, str]
) -> None:
    home, name = {"fsync": (os, "fsync"), "replace": (Path, "replace")}[call]
    original = getattr(home, name)
    kills = 0
    while True:
        calls = 0

        def killing(*arguments: object, fatal: int = kills) -> object:
            nonlocal calls
            calls += 1
            if calls - 1 == fatal and moment == "before":
                raise Killed
            result = original(*arguments)
            if calls - 1 == fatal:
                raise Killed
            return result

        out = tmp_path / str(kills)
        monkeypatch.setattr(home, name, killing)
        try:
            build(out)
        except Killed:
            kills += 1
        else:
            break
        finally:
            monkeypatch.undo()
        if not finished(out):
            build(out)
        assert fingerprints(out) == uninterrupted
    # The plan, two or one for each of four units, and the final ones.
    assert kills == {"fsync": 1 + 2 * 4 + 3, "replace": 1 + 4 + 1}[call]


def test_a_build_killed_repeatedly_has_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uninterrupted: dict[str, str]
) -> None:
    original, rng = os.fsync, np.random.default_rng(0)

    def killing(descriptor: int) -> None:
        if rng.random() < 0.4:
            raise Killed
        original(descriptor)

    monkeypatch.setattr(os, "fsync", killing)
    kills = 0
    while not finished(tmp_path / "set"):
        try:
            build(tmp_path / "set")
        except Killed:
            kills += 1
    assert kills > 1
    assert fingerprints(tmp_path / "set") == uninterrupted


@pytest.mark.slow
def test_a_build_killed_by_a_signal_has_the_same_bytes(tmp_path: Path, uninterrupted: dict[str, str]) -> None:
    # Unlike an exception, a signal does not flush the buffers of open files.
    script = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]).parent)]
from test_writer import build
calls, original = 0, os.fsync
def killing(descriptor):
    global calls
    calls += 1
    if calls == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    original(descriptor)
os.fsync = killing
build(Path(sys.argv[2]))
"""
    ran = run_python("-c", script, Path(__file__).parent, tmp_path / "set", fails=True)
    assert ran.returncode == -signal.SIGKILL
    assert SetWriter(tmp_path / "set", SIDE, BUILDER, LEDGER).done == 2
    assert fingerprints(build(tmp_path / "set")) == uninterrupted


def test_an_incomplete_unit_is_truncated(tmp_path: Path, uninterrupted: dict[str, str]) -> None:
    patches = begin(tmp_path / "set", 3) / "set" / "patches.npy"
    whole = patches.stat().st_size
    with patches.open("ab") as file:
        file.write(b"half a un")
    SetWriter(tmp_path / "set", SIDE, BUILDER, LEDGER)
    assert patches.stat().st_size == whole
    assert fingerprints(build(tmp_path / "set")) == uninterrupted


def test_units_after_a_damaged_one_are_dropped(tmp_path: Path, uninterrupted: dict[str, str]) -> None:
    journal = begin(tmp_path / "set", 4) / "units" / "000002.arrow"
    journal.write_bytes(journal.read_bytes()[:100])
    assert SetWriter(tmp_path / "set", SIDE, BUILDER, LEDGER).done == 2
    assert sorted(path.name for path in journal.parent.iterdir()) == ["000000.arrow", "000001.arrow"]
    assert fingerprints(build(tmp_path / "set")) == uninterrupted


def test_a_unit_whose_patches_changed_on_disk_is_written_again(tmp_path: Path, uninterrupted: dict[str, str]) -> None:
    patches = begin(tmp_path / "set", 4) / "set" / "patches.npy"
    content = bytearray(patches.read_bytes())
    content[-1] ^= 1
    patches.write_bytes(content)
    assert SetWriter(tmp_path / "set", SIDE, BUILDER, LEDGER).done == 3
    assert fingerprints(build(tmp_path / "set")) == uninterrupted


def test_a_failed_add_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uninterrupted: dict[str, str]
) -> None:
    begin(tmp_path / "set", 3)
    writer = SetWriter(tmp_path / "set", SIDE, BUILDER, LEDGER)
    longer = unit(9, [9, 9])

    def killing(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(Path, "replace", killing)
    with pytest.raises(Killed):
        writer.add("d", *longer)
    monkeypatch.undo()
    writer.add("d", *UNITS["d"])
    assert fingerprints(writer.finish()) == uninterrupted


def test_a_build_with_other_settings_is_not_resumed(tmp_path: Path) -> None:
    begin(tmp_path / "set", 1)
    with pytest.raises(
        DataError, match=r"builder.kind was 'test' and is now 'other'\. Remove .* choose another --out\.$"
    ):
        SetWriter(tmp_path / "set", SIDE, {**BUILDER, "kind": "other"}, LEDGER)
    with pytest.raises(DataError, match=r"patch_size was 4 and is now 8"):
        SetWriter(tmp_path / "set", 8, BUILDER, LEDGER)


def test_settings_with_tuples_or_in_another_order_are_resumed(tmp_path: Path, uninterrupted: dict[str, str]) -> None:
    begin(tmp_path / "set", 4)
    writer = SetWriter(tmp_path / "set", SIDE, {"octaves": (1, 2), "kind": "test"}, LEDGER)
    assert fingerprints(writer.finish()) == uninterrupted


def test_a_damaged_plan_is_reported_in_one_line(tmp_path: Path) -> None:
    (begin(tmp_path / "set", 1) / "plan.json").write_text("{")
    with pytest.raises(DataError, match=r"plan.json: expected a JSON object") as caught:
        SetWriter(tmp_path / "set", SIDE, BUILDER, LEDGER)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("names", [["a", "x", "c"], ["b", "a"], ["a"]])
def test_a_build_with_other_units_is_not_resumed(names: list[str], tmp_path: Path) -> None:
    begin(tmp_path / "set", 2)
    with pytest.raises(DataError, match=r"unit \d was .* and is now .*\. Remove"):
        SetWriter(tmp_path / "set", SIDE, BUILDER, LEDGER).remaining(names)


def test_a_unit_cannot_be_added_twice(tmp_path: Path) -> None:
    begin(tmp_path / "set", 2)
    with pytest.raises(ArgumentError, match=r"unit 'a' is already committed\. Skip the first 2 units"):
        SetWriter(tmp_path / "set", SIDE, BUILDER, LEDGER).add("a", *UNITS["a"])


def test_a_finished_set_is_never_overwritten(tmp_path: Path) -> None:
    assert not finished(tmp_path / "set")
    build(tmp_path / "set")
    assert finished(tmp_path / "set")
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    with pytest.raises(DataError, match=r"set: already exists\. Remove it or choose another --out\.$"):
        SetWriter(tmp_path / "set", SIDE, BUILDER, LEDGER)


def test_a_set_without_groups_is_refused(tmp_path: Path) -> None:
    writer = SetWriter(tmp_path / "set", SIDE, BUILDER, LEDGER)
    writer.add("b", *UNITS["b"])
    with pytest.raises(DataError, match=r"expected at least one group, got none in 1 units"):
        writer.finish()


def test_patches_must_agree_with_the_groups(tmp_path: Path) -> None:
    writer = SetWriter(tmp_path / "set", SIDE, BUILDER, LEDGER)
    patches, groups = UNITS["a"]
    with pytest.raises(ShapeError, match=r"patches: expected \(N, 4, 4\), got \(6, 4, 3\)"):
        writer.add("a", patches[:, :, 1:], groups)
    with pytest.raises(ArgumentError, match=r"expected 6 \(the sum of counts\) of uint8, got 5 of uint8"):
        writer.add("a", patches[1:], groups)
    with pytest.raises(ArgumentError, match=r"got 6 of float32"):
        writer.add("a", patches.astype(np.float32), groups)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "ignore", "message"),
    [
        ([2, 0], [], "at least 1 patch"),
        ([2, 2], [(0, 2)], "expected groups 0 to 1 of the unit, got 0 to 2"),
        ([2, 2], [(1, 1)], "a group with itself"),
    ],
)
def test_groups_are_checked(count: list[int], ignore: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        unit(0, count, ignore)


@pytest.mark.parametrize("patches", [0, 1, 10**12])
def test_the_header_equals_that_of_numpy(patches: int) -> None:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (patches, 64, 64)})
    assert npy_header(patches, 64) == file.getvalue()


def test_a_build_killed_while_it_removes_its_journal_is_finished_by_the_same_command(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda _: None)  # the process ends here
        build(tmp_path / "set")
    assert (tmp_path / "set.unfinished").exists()
    with pytest.raises(DataError, match="already exists"):
        SetWriter(tmp_path / "set", SIDE, {**BUILDER, "kind": "other"}, LEDGER)
    before = fingerprints(tmp_path / "set")
    (tmp_path / "set.unfinished" / "plan.json").unlink()  # the journal may be partly removed
    build(tmp_path / "set")
    assert fingerprints(tmp_path / "set") == before
    assert not (tmp_path / "set.unfinished").exists()
    with pytest.raises(DataError, match="already exists"):
        build(tmp_path / "set")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such file names")
def test_a_relative_folder_with_a_colon_is_not_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert finished(build(Path("a:b")))


@pytest.mark.parametrize("side", [0, MAX_PATCH_SIZE + 1, 10**30])
def test_a_patch_size_beyond_the_limits_is_refused(side: int, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="expected 1 to 1,024 pixels"):
        SetWriter(tmp_path / "set", side, BUILDER, LEDGER)
    assert not list(tmp_path.iterdir())
