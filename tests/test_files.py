"""Atomic files: complete or absent. Locks: one writer at a time."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from doap._support.errors import DataError
from doap._support.files import OutputLock, atomic_write, beside


def test_a_file_appears_only_when_it_is_complete(tmp_path):
    path = tmp_path / "a.txt"
    with atomic_write(path) as unfinished:
        unfinished.write_text("half")
        assert not path.exists()
        unfinished.write_text("whole")
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_old_file_and_no_temporary_one(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail_halfway():
        with atomic_write(path) as unfinished:
            unfinished.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_halfway()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_of_one_file_do_not_mix(tmp_path):
    path = tmp_path / "a.txt"
    with atomic_write(path) as first:
        with atomic_write(path) as second:
            assert first != second
            first.write_text("first")
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"


def test_only_old_temporary_files_of_the_same_file_are_removed(tmp_path):
    old, new, other = (tmp_path / f"{name}.unfinished" for name in ("_a.txt.1-ab", "_a.txt.2-ab", "_b.txt.1-ab"))
    for path in (old, new, other):
        path.touch()
    for path in (old, other):
        os.utime(path, (0, 0))
    with atomic_write(tmp_path / "a.txt") as unfinished:
        unfinished.touch()
    assert sorted(tmp_path.iterdir()) == [new, other, tmp_path / "a.txt"]


HOLD = """
import sys, time
from pathlib import Path
from doap._support.files import OutputLock
with OutputLock(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def hold_lock(path):
    """Start a process that locks a path, and return it once it holds the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def test_the_second_process_is_refused_until_the_first_is_killed(tmp_path):
    path = tmp_path / "out.db"
    with hold_lock(path) as process:
        with pytest.raises(DataError, match=rf"process {process.pid} on"):
            OutputLock(path)
        process.kill()
    assert (tmp_path / "out.db.lock").exists()  # stale, but not locked
    with OutputLock(path):
        pass
    assert not list(tmp_path.iterdir())


def test_a_process_can_wait_for_a_lock(tmp_path):
    path = tmp_path / "out.db"
    with hold_lock(path) as process:
        begin = time.monotonic()
        threading.Timer(0.3, process.kill).start()
        with OutputLock(path, wait=True):
            assert time.monotonic() - begin > 0.25


def test_a_link_has_the_lock_of_its_target(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "out")
    with OutputLock(tmp_path / "out"), pytest.raises(DataError):
        OutputLock(tmp_path / "link")


@pytest.mark.parametrize("inside", [False, True])
def test_at_most_one_of_many_threads_holds_a_lock(tmp_path, inside):
    held, together = [], []

    def work(_):
        try:
            with OutputLock(tmp_path, inside=inside):
                held.append(1)
                together.append(len(held))
                time.sleep(0.001)
                held.pop()
        except DataError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        acquired = sum(pool.map(work, range(300)))
    assert acquired > 0
    assert max(together) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_worker_does_not_keep_the_lock_of_its_killed_parent(tmp_path):
    script = HOLD.replace('    print("locked"', "    child = __import__('os').fork()\n    child and print(child")
    command = [sys.executable, "-c", script, tmp_path / "out"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
        process.wait()
        try:
            os.kill(child, 0)
            # The worker drops its copy of the lock when it starts, which takes a moment on a busy machine.
            end = time.monotonic() + 30
            while True:
                try:
                    OutputLock(tmp_path / "out").release()
                    break
                except DataError:
                    assert time.monotonic() < end
                    time.sleep(0.05)
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("path", [".", "..", "name/.."])
def test_a_path_beside_a_folder_without_a_name_is_in_its_parent(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    folder = Path(path).resolve()
    assert beside(Path(path), "{}.unfinished") == folder.parent / f"{folder.name}.unfinished"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
def test_a_special_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with (
        pytest.raises(DataError),
        atomic_write(tmp_path / "pipe") as unfinished,
    ):
        unfinished.write_text("new")
    assert (tmp_path / "pipe").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]
