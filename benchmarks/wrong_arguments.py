"""Give every argument and option of every command wrong values, one at a time, with valid values for the others.

    python benchmarks/wrong_arguments.py --out results/wrong-arguments.json       all commands
    python benchmarks/wrong_arguments.py match "index search" --values 5          some commands and values

The commands, arguments and options are those of the command line itself. `tests/oracles/all_commands.py` has valid
arguments and small generated inputs. A run must end with success (the value is allowed), with one line and exit code 1,
or with a usage message and exit code 2. Tracebacks, crashes, runs of more than --hang seconds and values that must be
refused but are accepted are failures. Commands run in forked processes that have imported all libraries, and may
allocate --memory megabytes in addition.
"""

from __future__ import annotations

import functools
import json
import os
import random
import re
import shutil
import sys
import tempfile
import types
import typing
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import record
import typer
from command_process import Ended, Process, import_all

from doap.cli import app

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from oracles.all_commands import WORDS, arguments, prepare, write_all_inputs
from oracles.photos import write_photo

OUT = Path("out")
"""Folder of outputs inside the folder of a run."""
NEVER_NUMBERS = {"nan": "nan", "infinity": "inf", "minus infinity": "-inf", "text": "many"}
LARGE = {"2**63": str(2**63), "2**64": str(2**64), "10**30": str(10**30), "tiny": "1e-300", "huge": "1e308"}
NUMBERS = {"zero": "0", "minus one": "-1", "2**31": str(2**31)}
"""Numbers that some options accept. Real options may accept large and tiny ones too."""
MISSING = {
    "name that does not exist": "missing",
    "long name": "x" * 300,
    "unknown scheme": "x://y",
    "URL without a bucket": "s3://",
    "URL of a missing folder": "file:///missing",
    "file as a folder": "odd/text.txt/name",
    "system folder": "/proc/name",
}
"""Names that an input must not have, because there is no such file."""
NAMES = {
    "space": " ",
    "name that is not UTF-8": os.fsdecode(b"\xff\xfe"),
    "newline": "two\nlines",
    "control characters": "red\x1b[31m\x07",
    "name with a colon": "a:b",
    "name of a drive": "C:x",
    "minus one": "-1",
}
"""Unusual names."""
FILES = {
    "text file": "odd/text.txt",
    "image": "odd/image.png",
    "JSON file": "odd/values.json",
    "weights": "odd/fast.safetensors",
    "empty folder": "odd/folder",
    "patch set": "odd/set",
    "current folder": ".",
    "unreadable file": "odd/unreadable",
    "read-only folder": "odd/read-only/name",
    "device": "/dev/null",
    "unreadable memory": "/proc/self/mem",
}
"""Existing files and folders with other contents."""
OTHER_LINES = re.compile(r"skipped: |warning: |.* elapsed\b")
"""Lines on stderr that may precede an error."""


class Parameter(NamedTuple):
    """An argument or option: its name, the words around its value, values to try, and those that none may accept."""

    name: str
    before: list[str]
    after: list[str]
    values: dict[str, str]
    never: set[str]
    is_output: bool


def parameters(command: Any, words: list[str], inputs: Path) -> Iterator[Parameter]:
    """Yield all parameters of a command of click. Each value of an argument with several values is a parameter."""
    parsed = command.make_context(command.name, words.copy(), resilient_parsing=True).params
    fixed = [param for param in command.params if param.param_type_name == "argument"]
    values = [str(value) for param in fixed for value in _listed(parsed[param.name])]
    options = [word for word in words if word not in values]
    hints = typing.get_type_hints(command.callback)
    for number, value in enumerate(values):
        yield _parameter(
            f"argument {number + 1}", None, value, inputs, [*options, *values[:number]], values[number + 1 :]
        )
    for param in command.params:
        if param.param_type_name == "option" and not param.is_flag:
            at = next((number for number, word in enumerate(words) if word in param.opts), None)
            others = words if at is None else words[:at] + words[at + 2 :]
            valid = None if at is None else words[at + 1]
            yield _parameter(param.opts[0], _type(hints.get(param.name)), valid, inputs, [*others, param.opts[0]], [])


def _parameter(name: str, kind: Any, valid: str | None, inputs: Path, before: list[str], after: list[str]) -> Parameter:
    if kind is typing.Literal:
        return Parameter(
            name, before, after, {"empty": "", "space": " ", "text": "many"}, {"empty", "space", "text"}, False
        )
    if kind in (int, float):
        values = {"empty": ""} | NEVER_NUMBERS | LARGE | NUMBERS
        never = {"empty", *NEVER_NUMBERS} | (LARGE.keys() if kind is int else set())
        return Parameter(name, before, after, values, never, False)
    ending = Path(valid).suffix if valid else ""
    names = {label: value + ending for label, value in (NAMES | MISSING).items()}
    folders = Path(valid).parents if valid else ()
    is_input, is_output = inputs in folders, OUT in folders
    # Never an output outside the folder of a run: root could replace the devices of the machine.
    files = {label: value for label, value in FILES.items() if is_input or not value.startswith("/dev")}
    return Parameter(
        name,
        before,
        after,
        {"empty": ""} | names | files,
        {"empty"} | (MISSING.keys() if is_input else set()),
        is_output,
    )


def _type(hint: Any) -> Any:
    """Return the type of an option that may be None, or `Literal`."""
    if typing.get_origin(hint) is typing.Literal:
        return typing.Literal
    inner = [part for part in typing.get_args(hint) if part is not types.NoneType]
    return _type(inner[0]) if inner else hint


def _listed(value: Any) -> list[Any]:
    return [one for one in (value if isinstance(value, list | tuple) else [value]) if one is not None]


def classify(ended: Ended, seconds: float) -> str:
    """Return how a run ended: `success`, `one line`, `usage`, or the kind of a failure."""
    if ended.seconds >= seconds:
        return "hang"
    if ended.code < 0:
        return f"crash (signal {-ended.code})"
    if "Traceback" in ended.errors:
        return "traceback"
    if ended.code == 2:
        return "usage" if "Usage: doap" in ended.errors else "no usage message"
    if ended.code == 0:
        return "success"
    errors = [line for line in ended.lines if not OTHER_LINES.match(line)]
    # Some commands answer with exit code 1, such as `doap localize`.
    answered = not errors and (ended.text or ended.errors)
    single = len(errors) == 1 and errors[0].startswith("doap: ")
    return "one line" if ended.code == 1 and (single or answered) else "not one line"


def measure(name: str, command: Any, folder: Path, options: Any) -> dict[str, Any]:
    """Run a command with valid arguments, and then with all or some wrong values of each parameter."""
    inputs, work = folder / "inputs", folder / "work"
    counts: Counter[str] = Counter()
    accepted: dict[str, list[str]] = {}
    failures: list[str] = []

    def run(words: list[str]) -> Ended:
        os.chdir(folder)
        shutil.rmtree(work, ignore_errors=True)
        (work / OUT).mkdir(parents=True)
        shutil.copytree(folder / "odd", work / "odd")
        prepare(name, inputs, work / OUT)
        os.chdir(work)
        process = Process([*name.split(), *words], work / "tmp", fork=True, memory=options.memory << 20)
        return process.wait(options.hang)

    def fail(what: str, failure: str, ended: Ended) -> None:
        lines = " | ".join(ended.lines[-2:])[-400:].replace(f"{folder}{os.sep}", "")
        failures.append(f"{what}: {failure} [exit code {ended.code}: {lines}]")
        print(f"{name}: {failures[-1]}", flush=True)

    words = arguments(name, inputs, OUT)[len(name.split()) :]
    ended = run(words)
    # Without a line on stderr, it is an answer: `doap localize` found no pose.
    if ended.code and ended.errors:
        fail("valid arguments", "refused", ended)
    drawn = random.Random(f"{options.seed} {name}")
    for one in parameters(command, words, inputs):
        labels = list(one.values)
        for label in drawn.sample(labels, min(options.values or len(labels), len(labels))):
            ended = run([*one.before, one.values[label], *one.after])
            end = classify(ended, options.hang)
            counts[end] += 1
            if end == "success":
                accepted.setdefault(one.name, []).append(label)
                if label in one.never:
                    end = "accepted"
                elif one.is_output and not os.path.lexists(work / one.values[label]):
                    end = "success without an output"
            if end not in ("success", "one line", "usage"):
                fail(f"{one.name}, {label}", end, ended)
    ends = {end: counts[end] for end in ("success", "one line", "usage")}
    return {"runs": counts.total(), **ends, "accepted": accepted, "failures": failures}


def commands(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all commands below a group by the words that select them."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def write_odd(folder: Path, inputs: Path) -> None:
    """Write files and folders that are not what a command expects."""
    (folder / "folder").mkdir(parents=True)
    (folder / "text.txt").write_text("Four score and seven years ago\nour fathers brought forth\n")
    (folder / "values.json").write_text(json.dumps({"format": 1, "values": [1, 2, 3]}))
    write_photo(folder / "image.png", 99, 60, 80)
    shutil.copyfile(inputs / "fast.safetensors", folder / "fast.safetensors")
    shutil.copytree(inputs / "other", folder / "set")
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
    # Typer would build all commands again in each process.
    typer.main.get_command = functools.cache(typer.main.get_command)
    found = dict(commands(typer.main.get_command(app)))
    assert set(found) == set(WORDS), "tests/oracles/all_commands.py has every command"
    kept: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_all_inputs(folder / "inputs")
        write_odd(folder / "odd", folder / "inputs")
        import_all()
        for one in options.commands or found:
            kept[one] = measure(one, found[one], folder, options)
            print(f"{one}: { ({key: value for key, value in kept[one].items() if key != 'accepted'}) }", flush=True)
            totals = {
                "runs": sum(of["runs"] for of in kept.values()),
                "failures": sum(len(of["failures"]) for of in kept.values()),
            }
            record.write(out, options.seed, totals | {"commands": kept})
        os.chdir(folder.parent)
    sys.exit(totals["failures"] > 0)


if __name__ == "__main__":
    main()
