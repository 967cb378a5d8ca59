"""The log of a run, `log.jsonl`: JSON lines, one object to a line, so that any tool reads it while the run goes on.

| kind | says |
|---|---|
| start | the resolved recipe, versions, device, and how the peers score on the held-out places; again at a resume |
| train | loss, learning rate and speed, every few steps |
| validation | mAP and FPR95 on the held-out places |
| general | mAP on the general set, of the weights it started from and of the best |
| warning | a sentence for whoever runs it |
| end | the run did all its steps |

Each line has a `step`, and all but the first kind the `seconds` of training up to it; a resumed run counts on from
those of its checkpoint, or its curves would run backwards.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from doap.errors import DataError, MissingExtra
from doap.files import atomic_write

Record = dict[str, Any]
Point = tuple[float, int, float]


class Log:
    """Append to a log; each line is on its way to the disk before `write` returns.

        with Log(run / "log.jsonl") as log:
            log.write("train", step=50, loss=0.12)

    Args:
        path: the file, made if it is not there. Half a line at its end, left by a killed run, is dropped.
        keep_until: the step of the checkpoint that a run resumes from. A killed run may have logged later steps; they
            are dropped, since they will be trained and logged again.
        tensorboard: also write the numbers to the folder `tensorboard` beside the file.
    """

    def __init__(self, path: str | Path, keep_until: int | None = None, *, tensorboard: bool = False) -> None:
        self.path = Path(path)
        self._mirror = _mirror(self.path.with_name("tensorboard"), keep_until) if tensorboard else None
        if self.path.is_file():
            _drop(self.path, keep_until)
        self._file = self.path.open("a", encoding="utf-8", newline="\n")

    def write(self, kind: str, *, step: int, **values: Any) -> None:
        """Add a line. A number that is not finite is written as null: JSON has no word for it."""
        record = {"kind": kind, "step": step, **values}
        self._file.write(json.dumps(_finite(record), ensure_ascii=False, allow_nan=False) + "\n")
        self._file.flush()
        if self._mirror is not None:
            for name, value in values.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    self._mirror.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        self._file.close()
        if self._mirror is not None:
            self._mirror.close()

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_log(path: str | Path) -> list[Record]:
    """All lines of a log, but for half a line at its end. Other damage is an error: curves with holes would lie."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: expected the log of a run, got no such file; give the folder of a run")
    *lines, rest = path.read_bytes().split(b"\n")
    records = [_record(path, number, line) for number, line in enumerate(lines, 1)]
    try:
        return [*records, _record(path, len(lines) + 1, rest)]
    except DataError:
        return records


def points(log: Sequence[Record], kind: str, name: str) -> list[Point]:
    """(seconds, step, value) of each line that has a value; a null was not finite and cannot be drawn."""
    return [
        (float(record["seconds"]), record["step"], float(record[name]))
        for record in log
        if record["kind"] == kind and record.get(name) is not None
    ]


def peer_scores(log: Sequence[Record], name: str) -> dict[str, float]:
    """What each peer scores in `map` or `fpr95`, by the latest start."""
    peers: Record = next((record["peers"] for record in reversed(log) if record.get("peers")), {})
    return {peer: float(scores[name]) for peer, scores in peers.items() if scores.get(name) is not None}


def seconds_of(log: Sequence[Record]) -> float:
    """Time trained so far."""
    return float(next((record["seconds"] for record in reversed(log) if record.get("seconds")), 0))


def _record(path: Path, number: int, line: bytes) -> Record:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str) or type(record.get("step")) is not int:
        raise DataError(
            f"{path}, line {number}: expected a JSON object with kind and step, got {line[:40]!r}; remove the line"
        )
    return record


def _drop(path: Path, keep_until: int | None) -> None:
    """Rewrite a log without half a line and without later steps; killed in here, the old one is still whole."""
    kept = [record for record in read_log(path) if keep_until is None or record["step"] <= keep_until]
    lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in kept)
    with atomic_write(path) as unfinished:
        unfinished.write_text("".join(lines), encoding="utf-8", newline="\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _mirror(folder: Path, keep_until: int | None) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtra("tensorboard", "train") from error
    # TensorBoard cannot take lines back; from this step on it hides those of the killed run.
    return SummaryWriter(folder, purge_step=None if keep_until is None else keep_until + 1)
