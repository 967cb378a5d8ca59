"""The command line, as tests call it."""

import subprocess
import sys

import pytest

from doap.cli import main


@pytest.fixture
def doap(monkeypatch, capsys):
    """The command in this process, where torch is imported once; its answer as that of a process of its own."""

    def run(*arguments):
        command = ["doap", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as stopped:
            main()
        return subprocess.CompletedProcess(command, stopped.value.code, *capsys.readouterr())

    return run
