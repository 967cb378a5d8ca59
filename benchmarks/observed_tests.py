"""Tests that benchmarks/mutation.py observes, selects and runs in forks of its process."""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PASSED, FAILED, TIMEOUT = "passed", "failed", "timeout"
# Stands for the functions that a test calls in other processes.
PROCESS = ("process", 0)


@dataclass(frozen=True)
class Test:
    """Usual time of a test, the functions it calls, as file and first line, and times of fixtures that tests share."""

    seconds: float
    functions: frozenset[tuple[str, int]]
    shared: dict[str, float]


class Observer:
    """Pytest plugin that records the time of each test and the functions of a package that it calls.

    Args:
        package: Folder of the package.
        after: Called with this object and all tests after they have passed; returns outcomes of mutants.
    """

    def __init__(self, package: Path, after: Callable[[Observer, list[pytest.Item]], dict[int, str]]) -> None:
        self.prefix = str(package)
        self.after = after
        self.outcomes: dict[int, str] = {}
        self.active = True
        self.functions: set[tuple[str, int]] = set()
        self.collected: set[tuple[str, int]] = set()
        self.fixtures: dict[str, set[tuple[str, int]]] = defaultdict(set)
        self.shared: dict[str, float] = defaultdict(float)
        self.seconds: dict[str, float] = {}
        self.called: dict[str, set[tuple[str, int]]] = {}
        self.names: dict[str, list[str]] = {}
        self.failed: str | None = None

    def pytest_collection(self) -> None:
        # Functions that are called while tests are collected count for all tests.
        self.functions = self.collected
        sys.settrace(self.trace)

    def pytest_collection_finish(self) -> None:
        self.functions = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        result = yield
        sys.settrace(None)
        self.active = False
        if not self.failed:
            self.outcomes = self.after(self, session.items)
        return result

    def trace(self, frame: FrameType, _event: str, _argument: object) -> None:
        """Record a call."""
        code = frame.f_code
        if code.co_filename.startswith(self.prefix) and code.co_name != "<module>":
            self.functions.add((code.co_filename, code.co_firstlineno))

    @contextlib.contextmanager
    def recording(self, into: set[tuple[str, int]]) -> Iterator[None]:
        """Record the calls and processes of a block, for the surrounding block too."""
        if not self.active:
            yield
            return
        outside, self.functions = self.functions, into
        before = children_seconds()
        sys.settrace(self.trace)
        try:
            yield
        finally:
            if children_seconds() > before:
                self.functions.add(PROCESS)
            outside |= into
            self.functions = outside

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        start = time.process_time()
        called: set[tuple[str, int]] = set()
        with self.recording(called):
            result = yield
        self.seconds[item.nodeid] = time.process_time() - start
        self.called[item.nodeid] = called
        self.names[item.nodeid] = list(getattr(item, "fixturenames", []))
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        start = time.process_time()
        with self.recording(self.fixtures[fixturedef.argname]):
            result = yield
        if self.active and fixturedef.scope != "function":
            self.shared[fixturedef.argname] += time.process_time() - start
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = report.nodeid

    def tests(self) -> dict[str, Test]:
        """Return all tests. A test calls what its fixtures call, even if another test sets them up."""
        return {
            name: Test(
                seconds,
                frozenset(
                    self.called[name].union(self.collected, *(self.fixtures[fixture] for fixture in self.names[name]))
                ),
                {fixture: self.shared[fixture] for fixture in self.names[name] if fixture in self.shared},
            )
            for name, seconds in self.seconds.items()
        }

    def result(self) -> Any:
        """Return the modules that tests import, time and functions of each test, and outcomes of mutants."""
        if self.failed:
            return self.failed
        own = ("doap", "tests", "oracles", "conftest", "__main__")
        modules = [name for name in sys.modules if name.partition(".")[0] not in own]
        tests = {name: (test.seconds, sorted(test.functions), test.shared) for name, test in self.tests().items()}
        return {"modules": modules, "tests": tests, "outcomes": self.outcomes}


class Selection:
    """Pytest plugin that runs the named tests in their order and remembers the one that fails."""

    def __init__(self, names: list[str]) -> None:
        self.rank = {name: number for number, name in enumerate(names)}
        self.failed: str | None = None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self.rank), key=lambda item: self.rank[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = report.nodeid

    def result(self) -> Any:
        """Return the name of the test that failed."""
        return self.failed


def children_seconds() -> float:
    """Return the processor time of all child processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def in_fork(action: Callable[[Path], int], seconds: float) -> tuple[str, Any]:
    """Call an action in a fork of this process, for some seconds of processor time.

    Args:
        action: Function of a file to which it may write an answer as JSON; returns an exit code of pytest.
        seconds: Maximum processor time.

    Returns:
        passed, failed or timeout, and the answer.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setpgrp()
                resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), resource.RLIM_INFINITY))
                code = action(answer)
            finally:
                os._exit(code)
        end = time.monotonic() + 30 * seconds
        while time.monotonic() < end:
            finished, status = os.waitpid(child, os.WNOHANG)
            if finished:
                code = os.waitstatus_to_exitcode(status)
                outcome = PASSED if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) else FAILED
                outcome = TIMEOUT if code == -signal.SIGXCPU else outcome
                return outcome, json.loads(answer.read_text()) if answer.exists() else None
            time.sleep(0.02)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return TIMEOUT, None


def run(tests: list[str], plugin: Observer, seconds: float, options: list[str]) -> tuple[str, Any]:
    """Run tests in a fork of this process for some seconds of processor time; see `in_fork`."""
    return in_fork(partial(run_tests, tests, plugin, options), seconds)


def run_tests(tests: list[str], plugin: Observer | Selection, options: list[str], answer: Path) -> int:
    """Run tests up to the first failure, without any output; return the exit code."""
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    os.chdir(ROOT)
    fast = ["-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain", f"--basetemp={answer.with_name('folder')}"]
    paths = [f"tests/{name}" for name in tests]
    code = int(pytest.main(["-x", "-q", *fast, *options, *paths], plugins=[plugin]))
    answer.write_text(json.dumps(plugin.result()))
    return code


def test_items(
    items: list[pytest.Item],
    observer: Observer,
    code: CodeType,
    live: dict[tuple[str, str], list[FunctionType]],
    answer: Path,
) -> int:
    """Run collected tests with other code in a function, up to the first failure; return the exit code."""
    for function in live[code.co_filename, code.co_qualname]:
        function.__code__ = code
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if observer.failed:
            answer.write_text(json.dumps(observer.failed))
            return 1
    return 0
