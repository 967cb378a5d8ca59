"""Fixtures for all tests."""

from __future__ import annotations

import importlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import Phase, settings

# A test may be slow on a busy machine.
settings.register_profile("doap", deadline=None)
settings.load_profile("doap")
# Mutation testing needs the first failure, always with the same examples.
first_failure = [Phase.explicit, Phase.generate]
settings.register_profile("fixed", deadline=None, derandomize=True, database=None, phases=first_failure)
settings.register_profile("quick", settings.get_profile("fixed"), max_examples=10)
# A process in the background of a shell ignores Ctrl-C, and so would the commands that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Ray would write its token to the home folder, and remember it when a test changes that folder.
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark of pytest-xdist for runs without it."""
    config.addinivalue_line("markers", "xdist_group(name): run in one worker of pytest-xdist")


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of a file in one worker of pytest-xdist, so that fixtures of a module are set up once.

    The tests of training come first. pytest would collect them last, and one worker would still run their long file
    when the other one has finished.
    """
    items.sort(key=lambda item: not item.nodeid.startswith("tests/training/"))
    for item in items:
        if not any(item.iter_markers("xdist_group")):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.split("::")[0]))


@pytest.fixture
def data_folder(request: pytest.FixtureRequest) -> Path:
    """Folder of real photographs and benchmarks. Tests that use it have the mark `data` with the names they need."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("DOAP_DATA", beside))
    mark = request.node.get_closest_marker("data")
    assert mark, "tests that use data_folder have the mark `data`"
    assert mark.args, "expected the names of folders or files: pytest.mark.data(name, …)"
    missing = [name for name in mark.args if not (folder / name).exists()]
    if missing:
        reason = f"{folder}: {', '.join(missing)} not found. Set DOAP_DATA; CONTRIBUTING.md lists the public sets."
        if os.environ.get("DOAP_DATA_REQUIRED") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return folder


@pytest.fixture
def cuda() -> torch.device:
    """A CUDA device. Tests that use it are marked `gpu` and are skipped on machines without one."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device("cuda")


@pytest.fixture
def import_tool(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Import a module of the folder `scripts`, which is not part of the package."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "scripts")
    return importlib.import_module


@pytest.fixture
def doap(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command in this process (torch is imported once) and return its outcome like a subprocess."""
    from doap.cli import main

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = ["doap", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as stopped:
            main()
        return subprocess.CompletedProcess(command, stopped.value.code, *capsys.readouterr())

    return run
