"""Run doap in a process group of its own: forked from this process, or new, with limits."""

from __future__ import annotations

import gc
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from doap.cli import main as run_command_line

TIMEOUT = 600.0
"""Seconds after which a process is killed."""
_PROGRESS = re.compile(r"[\d,]+( of [\d,]+)?, \d+:\d\d:\d\d elapsed")


@dataclass(frozen=True)
class Ended:
    """The end of a process: its exit code, negative for a signal, and what it printed."""

    code: int
    errors: str
    text: str
    seconds: float

    @property
    def lines(self) -> list[str]:
        """Lines on stderr, except for those of the progress, which a slow machine prints."""
        return [line for line in self.errors.splitlines() if not _PROGRESS.match(line)]

    @property
    def is_one_line(self) -> bool:
        """Whether the process ended with an error in one line."""
        return self.code == 1 and len(self.lines) == 1 and self.lines[0].startswith("doap: ")


class Process:
    """A running command in a process group of its own.

    Args:
        words: Arguments of doap.
        temporary: Folder for temporary files.
        fork: Fork this process, which has imported all libraries, instead of starting a new one.
        memory: Bytes that a forked process may allocate in addition to what it has.
    """

    def __init__(
        self,
        words: list[str],
        temporary: Path,
        *,
        fork: bool,
        memory: int | None = None,
    ) -> None:
        temporary.mkdir(exist_ok=True)
        self._files = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115 - closed by `wait`
        self._start = time.perf_counter()
        if fork:
            sys.stdout.flush()
            self.number = os.fork()
            if not self.number:
                _become(words, temporary, memory, *(file.fileno() for file in self._files))
            return
        variables = os.environ | {"TMPDIR": str(temporary)}
        self.number = subprocess.Popen(
            [sys.executable, "-m", "doap", *words],
            stdout=self._files[0],
            stderr=self._files[1],
            env=variables,
            start_new_session=True,
        ).pid

    def signal(self, number: int) -> None:
        """Send a signal to the process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.number, number)

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process runs."""
        if not hasattr(self, "_code"):
            number, status = os.waitpid(self.number, os.WNOHANG)
            if not number:
                return None
            self._code = os.waitstatus_to_exitcode(status)
            self._seconds = time.perf_counter() - self._start
        return self._code

    def wait(self, seconds: float = TIMEOUT) -> Ended:
        """Wait for the end; a process that takes too long is killed."""
        end = time.perf_counter() + seconds
        while self.poll() is None:
            if time.perf_counter() > end:
                self.signal(signal.SIGKILL)
            time.sleep(0.005)
        texts = []
        for file in self._files:
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
            file.close()
        return Ended(self._code, texts[1], texts[0], self._seconds)

    def sleep_until(self, moment: float) -> bool:
        """Wait until some seconds after the start; return whether the process still runs."""
        while (left := self._start + moment - time.perf_counter()) > 0 and self.poll() is None:
            time.sleep(min(left, 0.002))
        return self.poll() is None


def import_all() -> None:
    """Import what the commands import, so that forked processes do not spend their time on it."""
    import faiss  # noqa: F401
    import h5py  # noqa: F401
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401
    import onnxscript  # noqa: F401
    import pycolmap  # noqa: F401
    import typer.rich_utils  # noqa: F401

    import doap.collection
    import doap.collection.localization
    import doap.evaluation
    import doap.export.onnx
    import doap.training  # noqa: F401

    # The garbage collection of a forked process would copy the memory of all objects.
    gc.freeze()


def _become(words: list[str], temporary: Path, memory: int | None, *outputs: int) -> None:
    """Run doap in this forked process, and end it."""
    code: Any = 1
    try:
        os.setpgrp()
        os.dup2(outputs[0], 1)
        os.dup2(outputs[1], 2)
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
        sys.argv = ["doap", *words]
        if memory is not None:
            limit = memory + psutil.Process().memory_info().vms
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        run_command_line()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
