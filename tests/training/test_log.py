"""The log: written lines are read back, and an interrupted run neither loses a line nor logs a step twice."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from doap._support.errors import DataError
from doap.training.log import Log, read_log


@pytest.fixture
def path(tmp_path):
    """A log with a start event and the steps 50, 100 and 150."""
    with closing(Log(tmp_path / "log.jsonl")) as log:
        log.write("start", step=0, config={"name": "größer"}, versions={"torch": "2"})
        for step in (50, 100, 150):
            log.write("train", step=step, loss=1 / step)
    return tmp_path / "log.jsonl"


def steps(path):
    return [record["step"] for record in read_log(path)]


def test_written_lines_are_read_back_before_the_log_is_closed(path):
    with closing(Log(path)) as log:
        log.write("end", step=200)
        assert steps(path) == [0, 50, 100, 150, 200]
    start, first, *_ = read_log(path)
    assert start == {"kind": "start", "step": 0, "config": {"name": "größer"}, "versions": {"torch": "2"}}
    assert first == {"kind": "train", "step": 50, "loss": 1 / 50}


def test_resuming_drops_what_was_written_after_the_checkpoint(path):
    with closing(Log(path)) as log:
        size = log.size
        log.write("train", step=200, loss=1.0)
    with closing(Log(path, keep=size)) as log:
        log.write("train", step=200, loss=7.0)
    assert steps(path) == [0, 50, 100, 150, 200]
    assert read_log(path)[-1]["loss"] == 7.0
    with closing(Log(path, keep=0)):
        assert steps(path) == []


def test_an_interrupted_resume_leaves_the_old_log(path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    before = path.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            Log(path, keep=0)
    assert path.read_bytes() == before


def test_an_incomplete_last_line_is_skipped_and_dropped_on_opening(path):
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for end in range(last, len(whole) - 1):
        path.write_bytes(whole[:end])
        assert steps(path) == [0, 50, 100]
    # The file may be shorter than it was at the checkpoint, after a power failure.
    with closing(Log(path, keep=10_000)) as log:
        log.write("train", step=200)
    assert steps(path) == [0, 50, 100, 200]


@pytest.mark.parametrize("damage", [b'{"kind": "tra', b"", b"[1, 2]", b'{"step": 3}', b"\xff\xfe"])
def test_other_damage_is_refused(path, damage):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], damage + b"\n", *lines[1:]]))
    with pytest.raises(DataError):
        read_log(path)


def test_a_missing_log_is_an_error(tmp_path):
    with pytest.raises(DataError):
        read_log(tmp_path / "log.jsonl")


def test_numbers_that_are_not_finite_are_null(path):
    def refuse(word):
        raise AssertionError(word)

    with closing(Log(path)) as log:
        log.write("validation", step=200, map=float("nan"), baselines={"sift": [float("inf"), 0.5]})
    line = json.loads(path.read_text(encoding="utf-8").splitlines()[-1], parse_constant=refuse)
    assert (line["map"], line["baselines"]) == (None, {"sift": [None, 0.5]})
