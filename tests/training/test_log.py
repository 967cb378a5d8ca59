"""The log: written lines are read back, and an interrupted run neither loses a line nor logs a step twice."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from doap._support.errors import DataError, MissingExtra
from doap.training.log import Log, read_log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log with a start event and the steps 50, 100 and 150."""
    with Log(tmp_path / "log.jsonl") as log:
        log.write("start", step=0, config={"name": "größer"}, versions={"torch": "2"})
        for step in (50, 100, 150):
            log.write("train", step=step, loss=1 / step)
    return tmp_path / "log.jsonl"


def steps(path: Path) -> list[int]:
    return [record["step"] for record in read_log(path)]


def test_written_lines_are_read_back(path: Path) -> None:
    start, first, *_ = read_log(path)
    assert start == {"kind": "start", "step": 0, "config": {"name": "größer"}, "versions": {"torch": "2"}}
    assert first == {"kind": "train", "step": 50, "loss": 1 / 50}


def test_a_line_can_be_read_before_the_log_is_closed(path: Path) -> None:
    with Log(path) as log:
        log.write("end", step=200)
        assert steps(path)[-1] == 200


def test_opening_again_appends(path: Path) -> None:
    before = path.read_bytes()
    with Log(path) as log:
        log.write("end", step=200)
    assert path.read_bytes().startswith(before)
    assert steps(path) == [0, 50, 100, 150, 200]


def test_resuming_drops_later_steps_and_keeps_the_step_of_the_checkpoint(path: Path) -> None:
    with Log(path, keep_until=100) as log:
        log.write("train", step=150, loss=7.0)
    assert steps(path) == [0, 50, 100, 150]
    assert read_log(path)[-1]["loss"] == 7.0


def test_an_interrupted_resume_leaves_the_old_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    before = path.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            Log(path, keep_until=50)
    assert path.read_bytes() == before


def test_lines_before_an_incomplete_line_are_read(path: Path) -> None:
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for end in range(last, len(whole) - 1):
        path.write_bytes(whole[:end])
        assert steps(path) == [0, 50, 100]


def test_an_incomplete_last_line_is_dropped_on_opening(path: Path) -> None:
    with path.open("ab") as file:
        file.write('{"kind": "train", "note": "grö'.encode()[:-1])
    with Log(path) as log:
        log.write("train", step=200)
    assert steps(path) == [0, 50, 100, 150, 200]


@pytest.mark.parametrize("damage", [b'{"kind": "tra', b"", b"[1, 2]", b'{"step": 3}', b"\xff\xfe"])
def test_other_damage_is_an_error_that_names_the_line(path: Path, damage: bytes) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], damage + b"\n", *lines[1:]]))
    with pytest.raises(DataError, match=r"log\.jsonl, line 2: expected a JSON object"):
        read_log(path)


def test_a_missing_log_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such log"):
        read_log(tmp_path / "log.jsonl")


def test_numbers_that_are_not_finite_are_null(path: Path) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    with Log(path) as log:
        log.write("validation", step=200, map=float("nan"), baselines={"sift": [float("inf"), 0.5]})
    line = json.loads(path.read_text(encoding="utf-8").splitlines()[-1], parse_constant=refuse)
    assert (line["map"], line["baselines"]) == (None, {"sift": [None, 0.5]})


def test_tensorboard_receives_the_numbers_of_a_line(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Log(tmp_path / "log.jsonl", tensorboard=True) as log:
        log.write("start", step=0, device="cpu")
        log.write("validation", step=200, map=0.5, best=True)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert events.Tags()["scalars"] == ["validation/map"]
    assert [(event.step, event.value) for event in events.Scalars("validation/map")] == [(200, 0.5)]


def test_a_missing_tensorboard_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtra, match=r"doap\[train\]"):
        Log(tmp_path / "log.jsonl", tensorboard=True)
