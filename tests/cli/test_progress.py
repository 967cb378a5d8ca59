"""Progress on stderr: lines where there is no terminal, estimates of the remaining time, and Ctrl-C."""

import json
import time

import pytest

from doap.cli.progress import SAME_COMMAND, describe, make_bar, show_progress
from oracles.photos import write_photo


class Clock:
    """A clock that the test sets."""

    now = 100.0

    def __call__(self):
        return self.now


def describe_after(reports, total=1000):
    """Report pairs of a time and a number of finished units; return the line."""
    clock = Clock()
    bar = make_bar(clock)
    task = bar.add_task("units", total=None)
    for moment, done in reports:
        clock.now = 100.0 + moment
        bar.update(task, completed=done, total=total)
    return describe(bar.tasks[0])


@pytest.mark.parametrize(
    ("reports", "remaining"),
    [
        ([(0, 0), (10, 1)], None),
        # 990 units remain, at 1 unit per second.
        ([(0, 0), *((second, second) for second in range(1, 11))], "0:16:30"),
        # An earlier run finished 900 units, which took no time now; 90 remain.
        ([(0, 0), (1, 900), *((1 + second, 900 + second) for second in range(1, 11))], "0:01:30"),
        # The pace of the last hour counts: 400 units in a second, then one unit per 100 seconds; 500 remain.
        ([(0, 1), (1, 400), *((100 * unit, 400 + unit) for unit in range(1, 101))], "13:53:20"),
        ([(0, 0), (1, 500), (2, 1000)], None),
    ],
    ids=["one unit", "steady", "resumed", "slower", "finished"],
)
def test_remaining_time_follows_the_recent_pace(reports, remaining):
    line = describe_after(reports)
    assert f"about {remaining} left" in line if remaining else "left" not in line


def test_an_unknown_total_has_no_estimate():
    assert describe_after([(0, 1), (7, 7)], total=None) == "7, 0:00:07 elapsed: units"


def test_without_a_terminal_lines_appear_also_during_a_long_unit(capsys, monkeypatch):
    monkeypatch.setattr("doap.cli.progress.LINE_SECONDS", 0.01)
    with show_progress("images", quiet=False) as progress:
        time.sleep(0.1)
        assert capsys.readouterr().err == ""
        progress(3, 12, "photo.jpg")
        # No further report arrives.
        lines = []
        deadline = time.monotonic() + 10
        while len(lines) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
            lines += capsys.readouterr().err.splitlines()
    assert len(lines) >= 3
    assert set(lines) == {"3 of 12, 0:00:00 elapsed: photo.jpg"}


def test_a_quick_or_quiet_command_prints_no_progress(capsys, monkeypatch):
    with show_progress("images", quiet=False) as progress:
        progress(3, 12, "photo.jpg")
    monkeypatch.setattr("doap.cli.progress.LINE_SECONDS", 0.01)
    with show_progress("images", quiet=True) as progress:
        progress(3, 12, "photo.jpg")
        time.sleep(0.1)
    assert capsys.readouterr() == ("", "")


INTERRUPTING = """
import os, signal
from pathlib import Path
calls = 0

def describe(patches):
    global calls
    calls += 1
    if calls == 12 and Path("interrupt").exists():
        os.kill(os.getpid(), signal.SIGINT)
    return patches.flatten(1)
"""


def test_ctrl_c_names_the_command_that_continues_and_it_does(doap, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(15):
        write_photo(tmp_path / "images" / f"{number}.png", number, height=60, width=80)
    (tmp_path / "mine.py").write_text(INTERRUPTING)
    (tmp_path / "interrupt").touch()
    options = ("--descriptor", "mine.py:describe", "--max-keypoints", 10, "--workers", 1)
    command = ("extract", "images", "--out", "features", *options)
    stopped = doap(*command)
    assert (stopped.returncode, stopped.stdout) == (130, "")
    assert stopped.stderr.splitlines() == [f"Interrupted. {SAME_COMMAND}"]
    (tmp_path / "interrupt").unlink()
    done = json.loads(doap(*command, "--json").stdout)
    assert done["extracted"] + done["reused"] == 15
    assert done["reused"] > 0
    assert done["extracted"] > 0
