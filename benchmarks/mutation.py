"""Mutation testing: which small changes of the code do the tests notice?

    python benchmarks/mutation.py functional loss --mutants 100 --quick --out results/mutation.json
    python benchmarks/mutation.py functional loss --again results/mutation.json --out results/mutation.json

Cosmic Ray (`pip install cosmic-ray`) proposes the mutants. A random sample of them is tested. Mutants that only change
annotations or docstrings are left out, because no test could notice them. A mutant is killed if a test fails or the
tests take more than three times the usual processor time. Each mutant is tested in a fork of a process that has
imported the large libraries, on a copy of the source code, so commands that a test starts contain the mutant too.

A first run without mutants records the time of each test and the functions that it calls. A mutant of a function is
tested with the tests that call the function, first with the fast ones in the process that has imported the tests, then
with all of them and the tests that start processes; other mutants are tested with all tests. The tests that killed the
last mutants of the same file run first, then the fastest. `--quick` uses 10 hypothesis examples per test and leaves out
slow tests and tests that start processes.

`mutation_survivors.toml` explains survivors that no test can or should kill. They are not tested and count as survivors
in the score. `--again` tests only the other survivors of an earlier run, and a sample of targets that it does not have.
"""

from __future__ import annotations

import compileall
import contextlib
import gc
import importlib
import json
import os
import py_compile
import shutil
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import record
from mutants import Mutant, changed_function, enclosing_function, find_positions, live_functions, skeleton
from observed_tests import (
    FAILED,
    PASSED,
    PROCESS,
    ROOT,
    TIMEOUT,
    Observer,
    Selection,
    Test,
    in_fork,
    run,
    run_tests,
    test_items,
)

EXPLANATIONS = Path(__file__).with_name("mutation_survivors.toml")
# Code and tests of each target. `--quick` leaves out the tests of the last list.
TARGETS: dict[str, tuple[list[str], list[str], list[str]]] = {
    "functional": (["functional"], ["functional", "loss/test_losses.py"], ["validation"]),
    "loss": (
        ["loss"],
        [f"loss/test_{name}.py" for name in ("average_precision", "kernel", "losses")] + ["test_finite.py"],
        ["loss/test_ranks.py"],
    ),
    "matching": (["matching"], ["matching"], ["test_pipeline.py"]),
    "evaluation": (
        [f"evaluation/{name}.py" for name in ("bootstrap", "homography", "image_pair", "overlap")],
        [f"evaluation/test_{name}.py" for name in ("bootstrap", "homography", "image_pair", "overlap")],
        ["evaluation/test_oxford.py", "evaluation/test_pose.py"],
    ),
    "export": (
        ["export"],
        ["export/test_opencv.py", "export/test_features.py", "export/test_hloc.py", "export/test_colmap.py"],
        ["export/test_colmap_resume.py", "export/test_onnx.py", "export/test_kornia.py", "export/test_exporters.py"],
    ),
}
# Tests of a mutant that runs into an endless loop are stopped after three times the usual time plus these seconds of
# processor time.
GRACE_SECONDS = 10
# Maximum processor time of all tests without a mutant.
LONGEST_SECONDS = 3600
# `--quick` leaves out tests that take longer.
SLOW_SECONDS = 0.7
# The tests that killed this number of mutants of a file run first.
KILLERS = 5


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("targets", nargs="+", choices=TARGETS, metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--mutants", type=int, default=100, help="mutants per target")
    parser.add_argument("--quick", action="store_true", help="few hypothesis examples, no slow tests, no processes")
    parser.add_argument("--only", default="", metavar="EXPRESSION", help="use only these tests, as with pytest -k")
    parser.add_argument("--again", type=Path, metavar="RESULT", help="test the survivors of this result again")
    options = parser.parse_args()
    earlier = json.loads(options.again.read_text(encoding="utf-8")) if options.again else {}
    commands = [*earlier.get("earlier commands", []), earlier["command"]] if earlier else []
    figures: dict[str, Any] = earlier.get("targets", {})
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        # Python compiles only the mutant again, because the hash of its source differs.
        compileall.compile_dir(source, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
        sys.path.insert(0, str(source))
        sys.dont_write_bytecode = True
        os.environ |= {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
        import_libraries(["torch", "hypothesis", "scipy.stats", "cv2"])
        for target in options.targets:
            session = Session(target, source / "doap", options.quick, options.only)
            if target in figures:
                figures[target] = session.test_again(figures[target])
            else:
                figures[target] = session.test_sample(options.mutants, options.seed)
            record.write(options.out, options.seed, {"earlier commands": commands, "targets": figures})


def import_libraries(names: list[str]) -> None:
    """Import modules once for all forks."""
    for name in names:
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(name)
    sys.modules["torch"].set_num_threads(1)
    # The forks need not collect the garbage of these modules.
    gc.collect()
    gc.freeze()


class Session:
    """Tests mutants of one target."""

    def __init__(self, target: str, package: Path, quick: bool, only: str = "") -> None:
        self.target = target
        self.package = package
        self.quick = quick
        self.output = os.dup(1)
        self.options = [f"--hypothesis-profile={'quick' if quick else 'fixed'}", "-k", only]
        code, tests, slow = TARGETS[target]
        self.paths = tests if quick else tests + slow
        paths = [package / name for name in code]
        self.files = [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
        self.originals = {file: file.read_text(encoding="utf-8") for file in self.files}
        self.killers: dict[Path, list[str]] = defaultdict(list)
        self.tests: dict[str, Test] = {}

    def test_sample(self, number: int, seed: int) -> dict[str, Any]:
        """Test a sample of all mutants."""
        positions = [position for file in self.files for position in find_positions(file, self.originals[file])]
        chosen: dict[str, Mutant] = {}
        for index in np.random.default_rng(seed).permutation(len(positions)):
            if len(chosen) == number:
                break
            if mutant := positions[index].mutate(self.originals[positions[index].file]):
                chosen.setdefault(skeleton(mutant.code), mutant)
        survivors, timeouts = self.test(list(chosen.values()))
        return figures_of(len(positions), len(chosen), survivors, timeouts)

    def test_again(self, earlier: dict[str, Any]) -> dict[str, Any]:
        """Test the survivors of an earlier run; leave out those of lines that have changed since."""
        found = [self.find(survivor) for survivor in earlier["survivors"]]
        survivors, timeouts = self.test([mutant for mutant in found if mutant])
        tested = earlier["tested"] - found.count(None)
        figures = figures_of(earlier["mutants"], tested, survivors, earlier["of these by time"] + timeouts)
        return {**figures, "killed in the first run": earlier.get("killed in the first run", earlier["killed"])}

    def find(self, survivor: dict[str, Any]) -> Mutant | None:
        """Return the mutant that a result describes, from the nearest line if the file has changed."""
        file = self.package / survivor["file"]
        code = self.originals[file]
        lines = [line.strip() for line in code.splitlines()]
        positions = sorted(find_positions(file, code), key=lambda position: abs(position.first - survivor["line"]))
        for position in positions:
            if (
                position.operator == survivor["operator"]
                and survivor["original"] in lines[position.first - 1 : position.last]
            ):
                mutant = position.mutate(code)
                if mutant and (mutant.original, mutant.mutated) == (survivor["original"], survivor["mutated"]):
                    return mutant
        return None

    def test(self, mutants: list[Mutant]) -> tuple[list[dict[str, Any]], int]:
        """Return the survivors and the number of mutants that were killed because they took too long.

        Explained mutants survive without a test.
        """
        described = explained([mutant.describe(self.package) for mutant in mutants])
        survivors = [one for one in described if "explanation" in one]
        open_ones = [mutant for mutant, one in zip(mutants, described, strict=True) if "explanation" not in one]
        if not open_ones:
            return survivors, 0
        outcomes = self.observe(open_ones)
        for number, mutant in enumerate(open_ones):
            if number not in outcomes:
                outcomes[number] = self.report(mutant, self.test_file(mutant))
            if outcomes[number] == PASSED:
                survivors.append(mutant.describe(self.package))
        return survivors, list(outcomes.values()).count(TIMEOUT)

    def observe(self, mutants: list[Mutant]) -> dict[int, str]:
        """Run all tests without a mutant, test the mutants of functions with the fast ones, and return outcomes."""
        observer = Observer(self.package, partial(self.test_functions, mutants))
        outcome, observed = run(self.paths, observer, LONGEST_SECONDS, self.options)
        if outcome != PASSED:
            raise SystemExit(f"{self.target}: the tests fail without a mutant: {str(observed)[:300]}")
        import_libraries(observed["modules"])
        self.tests = {
            name: Test(seconds, frozenset((file, line) for file, line in functions), shared)
            for name, (seconds, functions, shared) in observed["tests"].items()
        }
        return {int(number): outcome for number, outcome in observed["outcomes"].items()}

    def test_functions(self, mutants: list[Mutant], observer: Observer, items: list[pytest.Item]) -> dict[int, str]:
        """Test mutants that only change a function, in forks of the process that has collected the tests.

        Unless quick, survivors have no outcome, because slow tests and tests that start processes may kill them.
        """
        self.tests = observer.tests()
        seconds = sum(test.seconds for test in self.tests.values())
        self.log(f"{self.target}: {len(self.tests)} tests, {seconds:.0f} s")
        named = {item.nodeid: item for item in items}
        live = live_functions(self.package)
        outcomes = {}
        for number, mutant in enumerate(mutants):
            function = changed_function(str(mutant.file), self.originals[mutant.file], mutant.code)
            position = (str(mutant.file), function.co_firstlineno) if function else None
            if (
                function is None
                or position in observer.collected
                or not live[function.co_filename, function.co_qualname]
            ):
                continue
            order = self.order(mutant, quick=True)
            action = partial(test_items, [named[name] for name in order], observer, function, live)
            outcome = self.try_mutant(mutant, order, action)
            if self.quick or outcome != PASSED:
                outcomes[number] = self.report(mutant, outcome)
        return outcomes

    def test_file(self, mutant: Mutant) -> str:
        """Test a mutant in a fork of this process, which has not imported doap."""
        order = self.order(mutant, self.quick)
        paths = list(dict.fromkeys(name.partition("::")[0].removeprefix("tests/") for name in order))
        return self.try_mutant(mutant, order, partial(run_tests, paths, Selection(order), self.options))

    def try_mutant(self, mutant: Mutant, order: list[str], action: Callable[[Path], int]) -> str:
        """Test a mutant with an action for a fork; remember the test that kills it."""
        if not order:
            return PASSED
        mutant.file.write_text(mutant.code, encoding="utf-8")
        try:
            outcome, killer = in_fork(action, 3 * self.usual_seconds(order) + GRACE_SECONDS)
        finally:
            mutant.file.write_text(self.originals[mutant.file], encoding="utf-8")
        if killer:
            earlier = [name for name in self.killers[mutant.file] if name != killer]
            self.killers[mutant.file] = [killer, *earlier][:KILLERS]
        return outcome

    def usual_seconds(self, names: list[str]) -> float:
        """Return the time of tests and of the fixtures that they share, which another test may have set up."""
        shared = {fixture: seconds for name in names for fixture, seconds in self.tests[name].shared.items()}
        return sum(self.tests[name].seconds for name in names) + sum(shared.values())

    def report(self, mutant: Mutant, outcome: str) -> str:
        """Print an outcome and return it."""
        killer = next(iter(self.killers[mutant.file]), "") if outcome == FAILED else ""
        self.log(f"{self.target}: {outcome} {killer} {mutant.describe(self.package)}")
        return outcome

    def log(self, line: str) -> None:
        """Print a line, also from a fork without output."""
        os.write(self.output, f"{line}\n".encode())

    def order(self, mutant: Mutant, quick: bool) -> list[str]:
        """Return the names of the tests that may kill a mutant, the most promising first; if quick, only fast ones."""
        first, last = enclosing_function(self.originals[mutant.file], mutant.line)
        chosen = []
        for name, test in self.tests.items():
            calls = any(file == str(mutant.file) and first <= line <= last for file, line in test.functions)
            starts = PROCESS in test.functions
            if not (starts and quick) and (calls or starts or first == 0):
                chosen.append(name)
        fast = [name for name in chosen if self.tests[name].seconds <= SLOW_SECONDS]
        chosen = fast if fast and quick else chosen
        killers = self.killers[mutant.file]
        rank = {name: killers.index(name) if name in killers else KILLERS for name in chosen}
        return sorted(chosen, key=lambda name: (rank[name], self.tests[name].seconds))


def figures_of(mutants: int, tested: int, survivors: list[dict[str, Any]], timeouts: int) -> dict[str, Any]:
    """Return the figures of a target."""
    killed = tested - len(survivors)
    return {
        "mutants": mutants,
        "tested": tested,
        "killed": killed,
        "of these by time": timeouts,
        "score": round(killed / max(tested, 1), 4),
        "survivors explained": sum("explanation" in survivor for survivor in explained(survivors)),
        "survivors": explained(survivors),
    }


def explained(survivors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return survivors with the explanations of `mutation_survivors.toml`."""
    import tomllib

    table = tomllib.loads(EXPLANATIONS.read_text(encoding="utf-8"))
    result = []
    for survivor in survivors:
        reasons = [
            line["why"]
            for line in table.get(survivor["file"], [])
            if line["original"] == survivor["original"] and line.get("mutated") in (None, survivor["mutated"])
        ]
        bare = {key: value for key, value in survivor.items() if key != "explanation"}
        result.append({**bare, "explanation": reasons[0]} if reasons else bare)
    return result


if __name__ == "__main__":
    main()
