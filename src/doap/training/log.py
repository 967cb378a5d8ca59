"""The log of a run, `log.jsonl`: one JSON object per line, readable while the run continues.

| kind | content |
|---|---|
| start | the resolved recipe, versions, device, and the scores of the baselines on the validation sample |
| estimate | seconds per step after the first steps, and the expected number of steps and seconds of the whole run |
| train | loss, learning rate and speed, every few steps |
| validation | mAP and FPR95 on the validation sample |
| regression_set | mAP on the regression set, of the initial weights and of the best |
| warning | a message for the user |
| end | the run is complete |

Each line has the `step` and the `seconds` of training so far. A resumed run continues from those of its checkpoint.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

from pydantic import Field

from doap._support.errors import DataError, MissingExtra
from doap._support.files import atomic_write
from doap._support.settings import validate

Record = dict[str, Any]
Point = tuple[float, int, float]


class Log:
    """Append events to a log; each line is flushed before `write` returns.

        with Log(run / "log.jsonl") as log:
            log.write("train", step=50, loss=0.12)

    Args:
        path: The file; it is created if it does not exist. An incomplete last line of an interrupted run is dropped.
        keep_until: Step of the checkpoint from which a run resumes. Lines of later steps are dropped because these
            steps are trained and logged again.
        tensorboard: Also write the numbers to the folder `tensorboard` beside the file.
    """

    def __init__(self, path: str | Path, keep_until: int | None = None, *, tensorboard: bool = False) -> None:
        self.path = Path(path)
        self._mirror = _mirror(self.path.with_name("tensorboard"), keep_until) if tensorboard else None
        if self.path.is_file():
            kept = [line for line in read_log(self.path) if keep_until is None or line["step"] <= keep_until]
            _rewrite(self.path, kept)
        self._open()

    def write(self, kind: str, *, step: int, **values: Any) -> None:
        """Append a line. Numbers that are not finite are written as null, because JSON cannot represent them."""
        record = {"kind": kind, "step": step, **values}
        self._file.write(json.dumps(_finite(record), ensure_ascii=False, allow_nan=False) + "\n")
        self._file.flush()
        if self._mirror is not None:
            for name, value in values.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    self._mirror.add_scalar(f"{kind}/{name}", value, step)

    def drop_after(self, kind: str) -> None:
        """Drop all lines after the last one of a kind."""
        self._file.close()
        lines = read_log(self.path)
        last = max((number for number, line in enumerate(lines) if line["kind"] == kind), default=len(lines))
        if lines[last + 1 :]:
            _rewrite(self.path, lines[: last + 1])
        self._open()

    def _open(self) -> None:
        self._file = self.path.open("a", encoding="utf-8", newline="\n")

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
    """Return the events of a log. An incomplete last line is skipped; any other damage is an error."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such log; expected the folder of a training run")
    *lines, rest = path.read_bytes().split(b"\n")
    records = [_record(path, number, line) for number, line in enumerate(lines, 1)]
    try:
        return [*records, _record(path, len(lines) + 1, rest)]
    except DataError:
        return records


def points(log: Sequence[Record], kind: str, name: str) -> list[Point]:
    """Return (seconds, step, value) of each line of a kind that has a value; null values are skipped."""
    return [
        (float(record.get("seconds") or 0), record["step"], float(record[name]))
        for record in log
        if record["kind"] == kind and record.get(name) is not None
    ]


def baseline_scores(log: Sequence[Record], metric: str) -> dict[str, float]:
    """Return the `map` or `fpr95` of each baseline, from the latest start."""
    baselines: Record = next((record["baselines"] for record in reversed(log) if record.get("baselines")), {})
    return {name: float(scores[metric]) for name, scores in baselines.items() if scores.get(metric) is not None}


def seconds_of(log: Sequence[Record]) -> float:
    """Return the training time so far, in seconds."""
    return float(next((record["seconds"] for record in reversed(log) if record.get("seconds")), 0))


def _record(path: Path, number: int, line: bytes) -> Record:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str) or type(record.get("step")) is not int:
        raise DataError(
            f"{path}, line {number}: expected a JSON object with kind and step, got {line[:40]!r}; remove the line"
        )
    validate(_Line, record, f"{path}, line {number}")
    return record


Number = Annotated[float, Field(ge=-1e15, le=1e15)] | None
"""A finite number of a size that charts can show; null stands for a number that is not finite."""


@dataclass(frozen=True)
class _Line:
    """Schema of the values that pages and resumed runs read from a line; others may follow."""

    step: Annotated[int, Field(ge=0)]
    seconds: Number = None
    loss: Number = None
    learning_rate: Number = None
    patches_per_second: Number = None
    ap: Number = None
    map: Number = None
    fpr95: Number = None
    before: Number = None
    after: Number = None
    best: bool | None = None
    text: str = ""
    steps: int | None = None
    seconds_per_step: Number = None
    expected_steps: int | None = None
    expected_seconds: Number = None
    config: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    baselines: dict[str, dict[str, Number]] = field(default_factory=dict)


def _rewrite(path: Path, kept: Sequence[Record]) -> None:
    """Replace a log atomically."""
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
    # TensorBoard cannot delete events; `purge_step` hides those of the interrupted run.
    return SummaryWriter(folder, purge_step=None if keep_until is None else keep_until + 1)
