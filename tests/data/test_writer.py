"""The writer: groups are read back as written, and a build killed at any time resumes to the same bytes."""

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
from doap.data.writer import SetWriter, UnitGroups, npy_header
from oracles.interpreter import run_python

SIDE = 4
BUILDER = {"kind": "test", "octaves": [1, 2]}


class Killed(BaseException):
    """Stands for a signal: no handler catches it."""


def unit(seed, sizes, ignore=()):
    rng = np.random.default_rng(seed)
    patches = rng.integers(0, 256, (sum(sizes), SIDE, SIDE), dtype=np.uint8)
    pairs = np.array(ignore, dtype=np.int64).reshape(-1, 2)
    return patches, UnitGroups(np.array(sizes, dtype=np.int64), f"scene {seed % 2}", f"{seed}.jpg", pairs)


UNITS = {
    "a": unit(0, [2, 3, 1], [(0, 2)]),
    "b": unit(1, []),
    "c": unit(2, [4, 2], [(1, 0)]),
    "d": unit(3, [1, 1, 5]),
}


def open_writer(out, **changes):
    given = {"patch_size": SIDE, "builder": BUILDER, "ledger": [], **changes}
    return SetWriter(out, **given)


def build(out, units=UNITS, **changes):
    writer = open_writer(out, **changes)
    for name in writer.remaining(list(units)):
        writer.add(name, *units[name])
    return writer.finish()


def begin(out, units, **changes):
    """Return the unfinished folder of a build that was killed after this many units."""
    writer = open_writer(out, **changes)
    for name in list(UNITS)[:units]:
        writer.add(name, *UNITS[name])
    return writer.folder


def fingerprints(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return fingerprints(build(tmp_path_factory.mktemp("uninterrupted") / "set"))


@settings(deadline=None, max_examples=25)
@given(sizes=st.lists(st.lists(st.integers(1, 5), max_size=6), min_size=1, max_size=5).filter(any))
def test_groups_are_read_back_as_written(sizes, tmp_path_factory):
    units = {str(seed): unit(seed, part) for seed, part in enumerate(sizes)}
    patch_set = open_set(build(tmp_path_factory.mktemp("property") / "set", units))
    group = 0
    for patches, groups in units.values():
        end = np.cumsum(groups.count)
        for index, size in enumerate(groups.count):
            own = patches[end[index] - size : end[index]]
            np.testing.assert_array_equal(patch_set.gather(patch_set.members(np.array([group]))), own)
            assert patch_set.scene_names[patch_set.scene_ids[group]] == groups.scene
            assert patch_set.source_names[patch_set.source_ids[group]] == groups.source
            group += 1
    assert group == len(patch_set)


def test_ignored_groups_are_indices_within_the_set(tmp_path):
    assert open_set(build(tmp_path / "set")).ignored(np.arange(8)).tolist() == [[0, 2], [3, 4]]


def test_patches_may_be_given_in_parts(tmp_path, uninterrupted):
    parts = {name: (iter([patches[:2], patches[2:]]), groups) for name, (patches, groups) in UNITS.items()}
    assert fingerprints(build(tmp_path / "set", parts)) == uninterrupted


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_build_killed_at_any_call_and_resumed_has_the_same_bytes(call, moment, tmp_path, monkeypatch, uninterrupted):
    home, name = {"fsync": (os, "fsync"), "replace": (Path, "replace")}[call]
    original = getattr(home, name)
    kills = 0
    while True:
        calls = 0

        def killing(*arguments, fatal=kills):
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
        if not out.exists():
            build(out)
        assert fingerprints(out) == uninterrupted
    # The plan, two or one for each of four units, and the final ones.
    assert kills == {"fsync": 1 + 2 * 4 + 3, "replace": 1 + 4 + 1}[call]


@pytest.mark.slow
def test_a_build_killed_by_a_signal_has_the_same_bytes(tmp_path, uninterrupted):
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
    assert open_writer(tmp_path / "set").done == 2
    assert fingerprints(build(tmp_path / "set")) == uninterrupted


def test_a_build_killed_while_it_removes_its_journal_is_complete(tmp_path, monkeypatch, uninterrupted):
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)  # the process ends here
        build(tmp_path / "set")
    with pytest.raises(DataError):
        build(tmp_path / "set")
    assert fingerprints(tmp_path / "set") == uninterrupted
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_an_incomplete_unit_is_overwritten(tmp_path, uninterrupted):
    with (begin(tmp_path / "set", 3) / "set" / "patches.npy").open("ab") as file:
        file.write(b"more than a unit" * 20)
    assert fingerprints(build(tmp_path / "set")) == uninterrupted


def test_units_after_a_damaged_one_are_written_again(tmp_path, uninterrupted):
    journal = begin(tmp_path / "set", 4) / "journal" / "000002.arrow"
    journal.write_bytes(journal.read_bytes()[:100])
    # The same settings, as a program may give them.
    assert open_writer(tmp_path / "set", builder={"octaves": (1, 2), "kind": "test"}).done == 2
    assert fingerprints(build(tmp_path / "set")) == uninterrupted


@pytest.mark.parametrize("changes", [{"builder": {**BUILDER, "kind": "other"}}, {"builder": {}}, {"patch_size": 8}])
def test_a_build_with_other_settings_is_not_resumed(changes, tmp_path):
    begin(tmp_path / "set", 1)
    with pytest.raises(DataError):
        open_writer(tmp_path / "set", **changes)


def test_a_file_that_changes_between_two_runs_or_during_one_is_refused(tmp_path):
    photo = tmp_path / "a.png"
    photo.write_bytes(b"old")
    begin(tmp_path / "set", 2, inputs={"a.png": photo})
    photo.write_bytes(b"new")
    with pytest.raises(DataError):
        open_writer(tmp_path / "set", inputs={"a.png": photo})
    photo.write_bytes(b"old")
    with open_writer(tmp_path / "set", inputs={"a.png": photo}) as writer:
        photo.write_bytes(b"new")
        with pytest.raises(DataError):
            writer.finish()


@pytest.mark.parametrize("name", ["plan.json", "set/patches.npy"])
def test_a_damaged_unfinished_set_is_refused(name, tmp_path):
    (begin(tmp_path / "set", 1) / name).write_text("{")
    with pytest.raises(DataError):
        open_writer(tmp_path / "set")


@pytest.mark.parametrize("names", [["a", "x", "c"], ["b", "a"], ["a"]])
def test_a_build_with_other_units_is_not_resumed(names, tmp_path):
    begin(tmp_path / "set", 2)
    with pytest.raises(DataError):
        open_writer(tmp_path / "set").remaining(names)


def test_a_finished_set_is_not_overwritten_and_one_without_groups_is_refused(tmp_path):
    build(tmp_path / "set")
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    with pytest.raises(DataError):
        open_writer(tmp_path / "set")
    with pytest.raises(DataError):
        build(tmp_path / "empty", {"b": UNITS["b"]})


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda patches: patches[:, :, 1:], ShapeError),
        (lambda patches: patches[1:], ArgumentError),
        (lambda patches: patches.astype(np.float32), ArgumentError),
    ],
)
def test_patches_must_agree_with_the_groups_and_are_added_once(change, error, tmp_path):
    begin(tmp_path / "set", 1)
    writer = open_writer(tmp_path / "set")
    patches, groups = UNITS["d"]
    with pytest.raises(error):
        writer.add("d", change(patches), groups)
    with pytest.raises(ArgumentError):
        writer.add("a", patches, groups)


@pytest.mark.parametrize(("count", "ignore"), [([2, 0], []), ([2, 2], [(0, 2)]), ([2, 2], [(1, 1)])])
def test_groups_are_checked(count, ignore):
    with pytest.raises(ArgumentError):
        unit(0, count, ignore)


@pytest.mark.parametrize("patches", [0, 1, 10**12])
def test_the_header_equals_that_of_numpy(patches):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (patches, 64, 64)})
    assert npy_header(patches, 64) == file.getvalue()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such file names")
def test_a_relative_folder_with_a_colon_is_not_a_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (build(Path("a:b")) / "meta.json").is_file()


@pytest.mark.parametrize("side", [0, MAX_PATCH_SIZE + 1, 10**30])
def test_a_patch_size_beyond_the_limits_is_refused(side, tmp_path):
    with pytest.raises(ArgumentError):
        open_writer(tmp_path / "set", patch_size=side)
    assert not list(tmp_path.iterdir())
