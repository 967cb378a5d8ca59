"""Programs in processes of their own that need not import torch again: forks of a server that has imported it.

They can be killed, and end with their own exit code, like those of `subprocess`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from doap._support.processes import begin_worker, worker_context


class Forked:
    """A running program.

    Args:
        code: Python program.
        arguments: Its arguments; `sys.argv[0]` is `-c`.
        variables: Environment variables in addition to those of this process.
    """

    def __init__(self, code: str, *arguments: object, variables: Mapping[str, str] | None = None) -> None:
        self._words = ["-c", *map(str, arguments)]
        self._folder = tempfile.TemporaryDirectory()
        self._outputs = [Path(self._folder.name) / name for name in ("stdout", "stderr")]
        context = worker_context("doap.collection.local")
        environment = {**os.environ, **(variables or {})}
        self.process = context.Process(target=_execute, args=(code, self._words, environment, *self._outputs))
        self.process.start()

    def wait(self, seconds: float = 300) -> subprocess.CompletedProcess[str]:
        """Return how the program ended."""
        self.process.join(seconds)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
            raise TimeoutError(f"the program takes more than {seconds} s")
        code = self.process.exitcode
        assert code is not None
        texts = [path.read_text(encoding="utf-8") if path.exists() else "" for path in self._outputs]
        self._folder.cleanup()
        return subprocess.CompletedProcess(self._words, code, *texts)


def run_forked(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program and return how it ended, with the texts that it printed."""
    return Forked(code, *arguments).wait()


def _execute(code: str, words: list[str], environment: dict[str, str], *outputs: Path) -> None:
    begin_worker(environment)
    for path, number in zip(outputs, (1, 2), strict=True):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    sys.argv = words
    # As in an interpreter, the objects of the program live until its threads have ended: an executor that is collected
    # while it is being stopped closes the pipe that wakes its thread.
    program: dict[str, object] = {"__name__": "__main__"}
    try:
        exec(compile(code, "-c", "exec"), program)
    finally:
        # An interpreter stops executors and joins threads before it runs exit handlers. A process of multiprocessing
        # runs the exit handlers of multiprocessing first, which close the queues of executors and wait for workers.
        threading._shutdown()
