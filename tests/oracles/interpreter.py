"""Programs in a new interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_python(
    *words: object, folder: Path | None = None, fails: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the interpreter with these words, such as `-c` and a program; unless it `fails`, check that it succeeds.

    Args:
        words: Arguments of the interpreter.
        folder: Its current folder.
        fails: The program may end with any exit code.
        variables: Environment variables in addition to those of this process.
    """
    command = [sys.executable, *map(str, words)]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=folder, env={**os.environ, **variables}
    )
    assert fails or ran.returncode == 0, ran.stderr
    return ran
