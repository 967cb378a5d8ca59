"""Disturb every command that writes files, run it again, and compare its output with an undisturbed run.

    python benchmarks/faults.py --out results/faults                   all commands and faults
    python benchmarks/faults.py train hloc --faults kill --times 5     some of them

--out is a folder, which gets one JSON file per fault.

| fault | what happens | what must hold |
|---|---|---|
| kill | SIGKILL of the process group at random moments | the next run completes the output |
| interrupt | SIGINT of the process group, as with Ctrl-C | one line and exit code 130; the next run completes |
| two | two processes with the same output | one succeeds; the other one succeeds or prints one line |

An output is complete if its content, as the readers of doap return it, and the names of all files equal those of the
undisturbed run. A command that refuses to replace an existing output may do so if the output is complete.

Commands run in forked processes that have imported all libraries, so that the moments fall into the work of a command.
Ctrl-C is also tested with new processes, from their first moment on. Ray only uses new processes. Other faults have
tests: memory (tests/cli/test_machine_faults.py), disks (tests/cli/test_full_disk.py) and images that are replaced.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import record
from command_process import Ended, Process, import_all

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from oracles.writing_commands import COMMANDS, PREVIEW, WritingCommand, list_files, write_inputs

# Every run after a fault must end with one of these, and both must leave a complete output.
COMPLETE, REFUSED = "completed", "already exists"


@dataclass
class Bench:
    """One command with its inputs, its undisturbed output and the problems found so far."""

    name: str
    command: WritingCommand
    inputs: Path
    work: Path
    random: random.Random
    times: int
    expected: Any = None
    files: set[str] = field(default_factory=set)
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    runs: int = 0

    @property
    def forks(self) -> bool:
        """Whether the command can run in a forked process. Ray starts processes of its own."""
        return "ray" not in self.name

    def new_folder(self) -> Path:
        """Return a new folder with what the command changes."""
        self.runs += 1
        folder = self.work / str(self.runs)
        folder.mkdir(parents=True)
        self.command.prepare(self.inputs, folder)
        return folder

    def start(self, folder: Path, fork: bool | None = None) -> Process:
        """Start the command, forked if it can be."""
        images = self.inputs / (self.command.images or "images")
        words = self.command.arguments(self.inputs, images, folder)
        return Process(words, self.temporary(folder), fork=self.forks if fork is None else fork)

    def temporary(self, folder: Path) -> Path:
        """Return the folder for temporary files. Its path is short, because Ray creates sockets in it."""
        return folder.with_suffix(".tmp")

    def measure(self) -> None:
        """Run the command without disturbance, twice: for its output and for its duration."""
        for _ in range(2):
            folder = self.new_folder()
            ended = self.start(folder).wait()
            if ended.code:
                raise SystemExit(f"{self.name}: exit code {ended.code}: {ended.errors}")
            self.seconds, self.files = ended.seconds, list_files(folder)
            found = self.command.read(folder)
            assert self.expected in (None, found), f"{self.name}: two undisturbed runs differ"
            self.expected = found

    def moments(self, times: int) -> list[float]:
        """Return random moments of a run, one in each of equal intervals."""
        return [(number + self.random.random()) * self.seconds / times for number in range(times)]

    def check(self, what: str, holds: bool, ended: Ended | None = None) -> bool:
        """Note a problem if a claim does not hold."""
        if not holds:
            end = f" [exit code {ended.code}: {' | '.join(ended.lines[-3:])[:600]}]" if ended else ""
            # Results must not depend on the folders of a machine.
            self.problems.append(f"{what}{end}".replace(f"{self.work}{os.sep}", ""))
            print(f"{self.name}: {self.problems[-1]}", flush=True)
        return holds

    def complete(self, what: str, folder: Path) -> str:
        """Run the command again and check that its output is complete; return how it ended."""
        ended = self.start(folder).wait()
        refused = ended.is_one_line and REFUSED in ended.errors
        self.check(f"{what}: the next run fails", ended.code == 0 or refused, ended)
        self.compare(what, folder)
        return REFUSED if refused else COMPLETE

    def compare(self, what: str, folder: Path) -> None:
        """Compare an output with that of the undisturbed run."""
        try:
            found = self.command.read(folder)
        # Whatever a reader raises is a fault of the output.
        except Exception as error:
            self.check(f"{what}: the output cannot be read: {type(error).__name__}: {error}", False)
            return
        differs = f"{what}: the output differs: {_difference(found, self.expected)}"
        self.check(differs, found == self.expected)
        files = list_files(folder)
        self.check(f"{what}: files left: {sorted(files - self.files)}", files <= self.files)
        missing = sorted(name for name in self.files - files if not name.endswith(PREVIEW))
        self.check(f"{what}: files missing: {missing}", not missing)


def kill(bench: Bench) -> dict[str, Any]:
    """Kill the process group at random moments, and run the command again."""
    counts = {"kills": 0, COMPLETE: 0, REFUSED: 0, "temporary files left": 0}
    for moment in bench.moments(bench.times if bench.forks else max(1, bench.times // 5)):
        folder, what = bench.new_folder(), f"killed after {moment:.3f} s"
        process = bench.start(folder)
        if process.sleep_until(moment):
            counts["kills"] += 1
            others = psutil.Process(process.number).children(recursive=True)
            process.signal(signal.SIGKILL)
            ended = process.wait()
            _end_all(bench, what, others)
            bench.check(f"{what}: prints a traceback", "Traceback" not in ended.errors, ended)
        else:
            process.wait()
        counts["temporary files left"] += len(list(bench.temporary(folder).iterdir()))
        counts[bench.complete(what, folder)] += 1
    return counts


def interrupt(bench: Bench) -> dict[str, Any]:
    """Interrupt the process group, forked and new, and run the command again."""
    counts = {"interrupts": 0, "finished before": 0, "before doap was imported": 0}
    forked = [(True, moment) for moment in bench.moments(3)] if bench.forks else []
    new = [(False, moment) for moment in ((0.5, 3.0) if bench.forks else (0.5, 3.0, 12.0))]
    for fork, moment in forked + new:
        folder, what = bench.new_folder(), f"interrupted after {moment:.3f} s ({'forked' if fork else 'new'})"
        process = bench.start(folder, fork=fork)
        if not process.sleep_until(moment):
            counts["finished before"] += 1
        others = psutil.Process(process.number).children(recursive=True)
        process.signal(signal.SIGINT)
        ended = process.wait()
        if ended.code == 0:
            continue
        counts["interrupts"] += 1
        # Python itself was starting.
        early = not fork and ended.code == -signal.SIGINT and "doap/cli" not in ended.errors
        counts["before doap was imported"] += early
        one_line = ended.code == 130 and len(ended.lines) == 1 and ended.lines[0].startswith("Interrupted.")
        bench.check(f"{what}: not one line and exit code 130", early or one_line, ended)
        _end_all(bench, what, others)
        bench.complete(what, folder)
    return counts


def two(bench: Bench) -> dict[str, Any]:
    """Run the command twice at the same time."""
    counts = {"pairs": 0, "refused": 0}
    for delay in bench.moments(3 if bench.forks else 1):
        folder, what = bench.new_folder(), f"two processes, the second after {delay:.3f} s"
        first = bench.start(folder)
        first.sleep_until(delay)
        ends = [process.wait() for process in (first, bench.start(folder))]
        counts["pairs"] += 1
        for ended in ends:
            refused = ended.is_one_line and ("is writing to it" in ended.errors or REFUSED in ended.errors)
            counts["refused"] += refused
            bench.check(f"{what}: neither success nor one line", ended.code == 0 or refused, ended)
        bench.check(f"{what}: both failed", any(ended.code == 0 for ended in ends), ends[0])
        bench.complete(what, folder)
    return counts


FAULTS: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "kill": kill,
    "interrupt": interrupt,
    "two": two,
}


def _end_all(bench: Bench, what: str, others: list[psutil.Process]) -> None:
    """Check that all processes of a command end with it, and end the remaining ones."""
    _, left = psutil.wait_procs(others, timeout=15)
    bench.check(f"{what}: processes left: {left}", not left)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _difference(found: Any, expected: Any, where: str = "") -> str:
    """Return the first differences of two nested values, for a message."""
    if isinstance(found, dict) and isinstance(expected, dict):
        parts = [
            _difference(found.get(key), expected.get(key), f"{where}/{key}")
            for key in [*expected, *(found.keys() - expected.keys())]
            if found.get(key) != expected.get(key)
        ]
        return "; ".join(parts[:3])
    if isinstance(found, list) and isinstance(expected, list) and len(found) != len(expected):
        more = [one for one in found if one not in expected]
        return f"{where}: {len(found)} instead of {len(expected)} entries {str(more)[:300]}"
    return f"{where}: {str(found)[:80]} instead of {str(expected)[:80]}"


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("commands", nargs="*", help=f"commands (default: all): {', '.join(COMMANDS)}")
    parser.add_argument("--faults", nargs="*", default=list(FAULTS), choices=list(FAULTS), help="faults (default: all)")
    parser.add_argument("--times", type=int, default=20, help="number of kills per command")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no further fault after this time")
    options = parser.parse_args()
    # A shell starts background jobs with interrupts ignored, and child processes would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs"
        write_inputs(inputs)
        import_all()
        generators = {name: random.Random(f"{options.seed} {name}") for name in COMMANDS}
        benches = {
            name: Bench(name, COMMANDS[name], inputs, Path(folder) / "work", generators[name], options.times)
            for name in options.commands or COMMANDS
        }
        for fault in options.faults:
            out = options.out and options.out / f"{fault}.json"
            run_all(fault, list(benches.values()), start + 60 * options.minutes, out, options.seed)
    sys.exit(any(bench.problems for bench in benches.values()))


def run_all(fault: str, benches: list[Bench], end: float, out: Path | None, seed: int) -> None:
    """Disturb all commands in one way; write what was found after each of them."""
    figures: dict[str, Any] = {"fault": fault, "not run for lack of time": [], "commands": {}}
    for bench in benches:
        if time.perf_counter() > end:
            figures["not run for lack of time"].append(bench.name)
            record.write(out, seed, figures)
            continue
        if bench.expected is None:
            bench.measure()
        runs, problems = bench.runs, len(bench.problems)
        found = FAULTS[fault](bench)
        shutil.rmtree(bench.work, ignore_errors=True)
        figures["commands"][bench.name] = {
            "seconds of an undisturbed run": round(bench.seconds, 2),
            "runs": bench.runs - runs,
            **found,
            "problems": bench.problems[problems:],
        }
        print(f"{fault}, {bench.name}: {json.dumps(found)}", flush=True)
        record.write(out, seed, figures)


if __name__ == "__main__":
    main()
