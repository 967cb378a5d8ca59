"""Run the command line inside the test process."""

import subprocess
import sys

import pytest

from doap.cli import main


@pytest.fixture
def doap(monkeypatch, capsys):
    """Run a command in this process (torch is imported once) and return its outcome like a subprocess."""

    def run(*arguments):
        command = ["doap", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as stopped:
            main()
        return subprocess.CompletedProcess(command, stopped.value.code, *capsys.readouterr())

    return run
