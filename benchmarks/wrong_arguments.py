"""Give every argument and option of every command wrong values, one at a time, with valid values for the others.

    python benchmarks/wrong_arguments.py --out results/wrong-arguments.json       all commands
    python benchmarks/wrong_arguments.py match "index search" --values 5          some commands and values

The commands, arguments and options are those of the command line itself. `tests/oracles/all_commands.py` has valid
arguments and small generated inputs. A run must end with one of these:

| end | meaning |
|---|---|
| success | the value is allowed, for example an output with an unusual name, which must then exist |
| one line and exit code 1 | refused by the command |
| usage message and exit code 2 | refused by the parser |

Tracebacks, crashes, runs of more than --hang seconds and values that must be refused but are accepted are failures:
empty texts everywhere; texts, values that are not finite and numbers beyond 64 bits where a number is expected; and
missing files and folders where an existing one is expected. The result lists all values that a command accepts.

--values draws some of the values of each parameter, which depend on --seed. Commands run in forked processes that have
imported all libraries. They may allocate --memory megabytes in addition.
"""

from __future__ import annotations

import functools
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import types
import typing
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import record
import typer
from command_process import Ended, Process, import_all

from doap.cli import app

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from oracles.all_commands import WORDS, arguments, prepare, write_all_inputs
from oracles.photos import write_photo

NUMBERS = {
    "zero": "0",
    "minus one": "-1",
    "2**31": str(2**31),
    "2**63": str(2**63),
    "2**64": str(2**64),
    "10**30": str(10**30),
    "tiny": "1e-300",
    "huge": "1e308",
    "nan": "nan",
    "infinity": "inf",
    "minus infinity": "-inf",
    "text": "many",
}
"""Wrong numbers. Some commands may accept zero, large and tiny ones."""
NEVER = {"real": {"nan", "infinity", "minus infinity", "text"}}
NEVER["integer"] = NEVER["real"] | {"2**63", "2**64", "10**30", "tiny", "huge"}
"""Values that no number may have. The others depend on the option."""
OUT = Path("out")
"""Folder of outputs inside the folder of a run."""
NOT_UTF8 = os.fsdecode(b"\xff\xfe")
NAMES = {
    "space": " ",
    "name that does not exist": "missing",
    "name that is not UTF-8": NOT_UTF8,
    "newline": "two\nlines",
    "control characters": "red\x1b[31m\x07",
    "long name": "x" * 300,
    "name with a colon": "a:b",
    "name of a drive": "C:x",
    "unknown scheme": "x://y",
    "URL without a bucket": "s3://",
    "URL of a missing folder": "file:///missing",
    "minus one": "-1",
    "10**30": str(10**30),
}
"""Names without a file, which get the extension of the valid one."""
FILES = {
    "text file": "odd/text.txt",
    "image": "odd/image.png",
    "JSON file": "odd/values.json",
    "weights": "odd/fast.safetensors",
    "empty folder": "odd/folder",
    "patch set": "odd/set",
    "current folder": ".",
    "file as a folder": "odd/text.txt/name",
    "unreadable file": "odd/unreadable",
    "read-only folder": "odd/read-only/name",
    "device": "/dev/null",
    "system folder": "/proc/name",
    "unreadable memory": "/proc/self/mem",
}
"""Existing files and folders with other contents."""
UNUSUAL = {"space", "newline", "control characters", "name that is not UTF-8", "name with a colon", "name of a drive"}
"""Possible names: a valid input gets them as links."""
MISSING = NAMES.keys() - UNUSUAL | {"file as a folder", "system folder"}
"""Values that an input must not have, because there is no such file."""


OTHER_LINES = re.compile(r"skipped: |warning: |.* elapsed\b")
"""Lines on stderr that may precede an error."""


@dataclass(frozen=True)
class Parameter:
    """An argument or option, with the words of a valid command line around its value.

    Attributes:
        name: Name as users write it.
        kind: `integer`, `real`, `choice`, `flag`, `input`, `output` or `text`.
        before: Words before the value.
        after: Words after it.
        valid: The valid value, if the command line has one.
    """

    name: str
    kind: str
    before: list[str]
    after: list[str]
    valid: str | None = None

    def values(self) -> dict[str, str]:
        """Return the wrong values."""
        if self.kind == "flag":
            return {}
        if self.kind == "choice":
            return {"empty": "", "space": " ", "text": "many"}
        if self.kind in NEVER:
            return {"empty": "", **NUMBERS}
        ending = Path(self.valid).suffix if self.valid else ""
        names = {name: value + ending for name, value in NAMES.items()}
        # Never an output outside the folder of a run: root could replace the devices of the machine.
        files = {name: value for name, value in FILES.items() if self.kind == "input" or not value.startswith("/dev")}
        return {"empty": "", **names, **files}

    def refuses(self, label: str) -> bool:
        """Return whether no command may accept a value."""
        return (
            label == "empty"
            or self.kind == "choice"
            or label in NEVER.get(self.kind, ())
            or (self.kind == "input" and label in MISSING)
        )


@dataclass(frozen=True)
class Case:
    """A run with one wrong value."""

    parameter: Parameter
    label: str
    value: str

    @property
    def words(self) -> list[str]:
        """Arguments of the command."""
        return [*self.parameter.before, self.value, *self.parameter.after]

    @property
    def links(self) -> dict[str, str]:
        """Links in the folder of the run, and their targets: a valid input with an unusual name."""
        linked = self.parameter.kind == "input" and self.label in UNUSUAL
        return {self.value: self.parameter.valid} if linked and self.parameter.valid else {}


@dataclass
class Bench:
    """One command, and what its runs ended with."""

    name: str
    command: Any
    inputs: Path
    odd: Path
    work: Path
    seconds: float
    memory: int
    counts: Counter[str] = field(default_factory=Counter)
    accepted: dict[str, list[str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def measure(self, sample: int | None, seed: int) -> dict[str, Any]:
        """Run the command with valid arguments, and then with all or some wrong values of each parameter."""
        words = arguments(self.name, self.inputs, OUT)[len(self.name.split()) :]
        ended = self.start(words).wait(self.seconds)
        # Without a line on stderr, it is an answer: `doap localize` found no pose.
        if ended.code and ended.errors:
            self.fail("valid arguments", "refused", ended)
        found = parameters(self.command, words, self.inputs)
        drawn = random.Random(f"{seed} {self.name}")
        for parameter in found:
            values = list(parameter.values().items())
            for number in sorted(drawn.sample(range(len(values)), min(sample or len(values), len(values)))):
                case = Case(parameter, *values[number])
                self.check(case, self.start(case.words, case.links).wait(self.seconds))
        return {
            "parameters": len(self.command.params),
            "runs": self.counts.total(),
            **{end: self.counts[end] for end in ("success", "one line", "usage")},
            "accepted": self.accepted,
            "failures": self.failures,
        }

    def start(self, words: list[str], links: Mapping[str, str] = types.MappingProxyType({})) -> Process:
        """Start the command in a new folder, which has copies of the files with other contents."""
        folder = self.work
        os.chdir(self.odd)
        shutil.rmtree(folder, ignore_errors=True)
        (folder / OUT).mkdir(parents=True)
        shutil.copytree(self.odd, folder / "odd")
        prepare(self.name, self.inputs, folder / OUT)
        os.chdir(folder)
        for link, target in links.items():
            Path(link).symlink_to(target)
        return Process([*self.name.split(), *words], folder / "tmp", fork=True, memory=self.memory)

    def check(self, case: Case, ended: Ended) -> None:
        """Count how a run with a wrong value ended, and note a failure."""
        parameter, end = case.parameter, classify(ended, self.seconds)
        self.counts[end] += 1
        failure = None if end in ("success", "one line", "usage") else end
        if end == "success":
            self.accepted.setdefault(parameter.name, []).append(case.label)
            if parameter.refuses(case.label):
                failure = "accepted"
            elif parameter.kind == "output" and not os.path.lexists(self.work / case.value):
                failure = "success without an output"
        if failure:
            self.fail(f"{parameter.name}, {case.label}", failure, ended)

    def fail(self, what: str, failure: str, ended: Ended) -> None:
        """Note a failure, without the folders of this machine."""
        lines = " | ".join(ended.lines[-2:])[-400:].replace(f"{self.work.parent}{os.sep}", "")
        self.failures.append(f"{what}: {failure} [exit code {ended.code}: {lines}]")
        print(f"{self.name}: {self.failures[-1]}", flush=True)


def classify(ended: Ended, seconds: float) -> str:
    """Return how a run ended: `success`, `one line`, `usage`, or the kind of a failure."""
    if ended.seconds >= seconds:
        return "hang"
    if ended.code < 0:
        return f"crash ({signal.Signals(-ended.code).name})"
    if "Traceback" in ended.errors:
        return "traceback"
    if ended.code == 2:
        return "usage" if "Usage: doap" in ended.errors else "no usage message"
    if ended.code == 0:
        return "success"
    errors = [line for line in ended.lines if not OTHER_LINES.match(line)]
    # Some commands answer with exit code 1, such as `doap data check`.
    answered = not errors and (ended.text or ended.errors)
    single = len(errors) == 1 and errors[0].startswith("doap: ")
    return "one line" if ended.code == 1 and (single or answered) else "not one line"


def commands(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all commands below a group by the words that select them."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def parameters(command: Any, words: list[str], inputs: Path) -> Iterator[Parameter]:
    """Yield all parameters of a command. Each value of an argument with several values is a parameter.

    Args:
        command: Command of click.
        words: Valid arguments.
        inputs: Folder of inputs.
    """
    hints = typing.get_type_hints(command.callback)
    context = command.make_context(command.name, words.copy(), resilient_parsing=True)
    options = [param for param in command.params if param.param_type_name == "option"]
    typed = {param.name: _occurrences(param, words) for param in options}
    used = {number for found in typed.values() for number in found}
    given = [word for number, word in enumerate(words) if number in used]
    fixed = [param for param in command.params if param.param_type_name == "argument"]
    positional = [(param.name, value) for param in fixed for value in _values(context.params[param.name])]
    values = [value for _, value in positional]
    for number, (name, value) in enumerate(positional):
        before, after = [*given, *values[:number]], values[number + 1 :]
        yield Parameter(f"{name} {number + 1}", _kind(str, value, inputs), before, after, value)
    for param in options:
        others = [word for number, word in enumerate(words) if number not in typed[param.name]]
        value = next((words[number] for number in typed[param.name][1:2]), None)
        kind = _kind(hints.get(param.name, str), value, inputs)
        yield Parameter(param.opts[0], kind, [*others, param.opts[0]], [], value)


def _values(value: Any) -> list[str]:
    """Return the words of a parsed value."""
    return [str(one) for one in (value if isinstance(value, list | tuple) else [value]) if one is not None]


def _occurrences(param: Any, words: list[str]) -> list[int]:
    """Return the positions of an option and its value in the words of a command line."""
    names = {*param.opts, *param.secondary_opts}
    found = [number for number, word in enumerate(words) if word in names]
    return sorted(number + shift for number in found for shift in ((0,) if param.is_flag else (0, 1)))


def _kind(hint: Any, valid: str | None, inputs: Path) -> str:
    """Return the kind of a parameter from its type and its valid value."""
    if typing.get_origin(hint) is typing.Literal:
        return "choice"
    parts = [part for part in typing.get_args(hint) if part is not types.NoneType]
    if parts:
        return _kind(parts[0], valid, inputs)
    if hint is bool:
        return "flag"
    if hint in (int, float):
        return "integer" if hint is int else "real"
    if valid and inputs in Path(valid).parents:
        return "input"
    return "output" if valid and OUT in Path(valid).parents else "text"


def write_odd(folder: Path, inputs: Path) -> None:
    """Write files and folders that are not what a command expects."""
    (folder / "folder").mkdir(parents=True)
    (folder / "text.txt").write_text("Four score and seven years ago\nour fathers brought forth\n")
    (folder / "values.json").write_text(json.dumps({"format": 1, "values": [1, 2, 3]}))
    write_photo(folder / "image.png", 99, 60, 80)
    shutil.copyfile(inputs / "fast.safetensors", folder / "fast.safetensors")
    shutil.copytree(inputs / "other", folder / "set")
    # The owner of the machine can read them all the same.
    shutil.copyfile(folder / "image.png", folder / "unreadable")
    (folder / "unreadable").chmod(0)
    (folder / "read-only").mkdir(mode=0o555)


def main() -> None:
    """Run all commands; write what was found after each of them."""
    parser = record.arguments(__doc__)
    parser.add_argument("commands", nargs="*", help=f"commands (default: all): {', '.join(WORDS)}")
    parser.add_argument("--hang", type=float, default=120, help="seconds after which a run hangs")
    parser.add_argument("--memory", type=int, default=4000, help="megabytes that a run may allocate")
    parser.add_argument("--values", type=int, help="number of random values per parameter (default: all)")
    options = parser.parse_args()
    out = options.out and options.out.resolve()
    found = dict(commands(typer.main.get_command(app)))
    assert set(found) == set(WORDS), "tests/oracles/all_commands.py has every command"
    kept: dict[str, Any] = {}
    figures: dict[str, Any] = {"runs": 0, "failures": 0, "commands": kept}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_all_inputs(folder / "inputs")
        write_odd(folder / "odd", folder / "inputs")
        import_all()
        # Typer would build all commands again in each process.
        typer.main.get_command = functools.cache(typer.main.get_command)
        typer.main.get_command(app)
        folders = folder / "inputs", folder / "odd", folder / "work"
        for one in options.commands or found:
            start = time.perf_counter()
            bench = Bench(one, found[one], *folders, options.hang, options.memory << 20)
            kept[one] = measured = bench.measure(options.values, options.seed)
            seconds = time.perf_counter() - start
            ends = re.sub(r'[{}"]', "", json.dumps(dict(bench.counts)))
            print(f"{one}: {measured['parameters']} parameters, {ends}, {seconds:.0f} s", flush=True)
            figures |= {name: sum(_count(one[name]) for one in kept.values()) for name in ("runs", "failures")}
            record.write(out, options.seed, figures)
        os.chdir(folder.parent)
    sys.exit(figures["failures"] > 0)


def _count(value: int | list[str]) -> int:
    return value if isinstance(value, int) else len(value)


if __name__ == "__main__":
    main()
