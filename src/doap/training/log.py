"""The log of a run, `log.jsonl`: one JSON object per line, readable while the run continues.

| kind | content |
|---|---|
| start | the resolved recipe, versions, device, and the scores of the baselines on the validation sample |
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
from typing import Annotated, Any

from pydantic import Field

from doap._support.errors import DataError
from doap._support.files import atomic_write
from doap._support.settings import validate

Record = dict[str, Any]
Point = tuple[float, int, float]


class Log:
    """Append events to a log; each line is flushed before `write` returns.

    An incomplete last line of an interrupted run is dropped. A resumed run keeps as many bytes as the log had at its
    checkpoint, because what follows is trained and logged again.
    """

    def __init__(self, path: str | Path, keep: int | None = None) -> None:
        path = Path(path)
        if path.is_file():
            kept = path.read_bytes()[:keep]
            with atomic_write(path) as unfinished:
                unfinished.write_bytes(kept[: kept.rfind(b"\n") + 1])
        self._file = path.open("ab")

    @property
    def size(self) -> int:
        """Number of bytes written so far."""
        return self._file.tell()

    def write(self, kind: str, *, step: int, **values: Any) -> None:
        """Append a line. Numbers that are not finite are written as null, because JSON cannot represent them."""
        record = {"kind": kind, "step": step, **values}
        self._file.write(json.dumps(_finite(record), ensure_ascii=False, allow_nan=False).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


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
    map: Number = None
    fpr95: Number = None
    before: Number = None
    after: Number = None
    best: bool | None = None
    text: str = ""
    steps: int | None = None
    config: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    baselines: dict[str, dict[str, Number]] = field(default_factory=dict)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
