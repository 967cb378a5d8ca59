"""Progress of the commands, on stderr, so that the output on stdout can be piped.

A terminal shows a bar. Everywhere else, such as in the log of a batch job, a line appears every 30 seconds.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta

import typer

from doap.cli.terminal import echo, printable

SAME_COMMAND = "Run the same command again to continue."
"""What resumable commands print when they are interrupted."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""
LINE_SECONDS = 30.0
"""Seconds between two lines of progress where there is no terminal."""
# The pace is that of the last two minutes, or of the last samples if units take longer.
_PACE_SECONDS, _PACE_SAMPLES, _SAMPLE_SECONDS = 120.0, 5, 1.0


class Pace:
    """Units done so far, and an estimate of the remaining time from the recent ones.

    Units that an earlier run finished are reported at once and do not count: the estimate begins with the first report
    above zero.

    Args:
        clock: Returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._start = clock, clock()
        self._samples: deque[tuple[float, int]] = deque()
        self.done, self.total, self.name = 0, 0, ""

    def update(self, done: int, total: int, name: str) -> None:
        """Take a report of a `doap.types.Progress` callback; a total of 0 is unknown."""
        if done < self.done or total != self.total:
            self._samples.clear()
        self.done, self.total, self.name = done, total, name
        now = self._clock()
        if done and (not self._samples or done > self._samples[-1][1]):
            if len(self._samples) > 1 and now - self._samples[-2][0] < _SAMPLE_SECONDS:
                self._samples.pop()
            self._samples.append((now, done))
        while len(self._samples) > _PACE_SAMPLES and now - self._samples[1][0] > _PACE_SECONDS:
            self._samples.popleft()

    @property
    def remaining(self) -> str:
        """Estimate of the remaining time; empty if there is none."""
        if len(self._samples) < 2 or not self.done < self.total:
            return ""
        (begin, first), (end, last) = self._samples[0], self._samples[-1]
        return f"about {duration((end - begin) * (self.total - last) / (last - first))} left"

    @property
    def line(self) -> str:
        """All of it in one line."""
        count = f"{self.done:,} of {self.total:,}" if self.total else f"{self.done:,}"
        elapsed = f"{duration(self._clock() - self._start)} elapsed"
        return ", ".join(part for part in (count, elapsed, self.remaining) if part) + f": {self.name}"


@contextmanager
def show_progress(label: str, *, quiet: bool, resume: str = "") -> Iterator[Callable[[int, int, str], None]]:
    """Yield a `doap.types.Progress` callback that drives a bar or prints lines.

    Args:
        label: Text of the bar until the first report.
        quiet: Show nothing.
        resume: What to print after Ctrl-C: how to continue.
    """
    pace = Pace()
    try:
        with nullcontext(pace.update) if quiet else _display(label, pace) as update:
            yield update
    except KeyboardInterrupt:
        echo(f"Interrupted. {resume}".strip(), err=True)
        raise typer.Exit(INTERRUPTED) from None


def _display(label: str, pace: Pace) -> AbstractContextManager[Callable[[int, int, str], None]]:
    from rich.console import Console

    return _bar(label, pace) if Console(stderr=True).is_terminal else _lines(pace)


@contextmanager
def _bar(label: str, pace: Pace) -> Iterator[Callable[[int, int, str], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    texts = TextColumn("{task.fields[remaining]}"), TextColumn("{task.description}", markup=False)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), *texts)
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=None, remaining="")

        def update(done: int, total: int, name: str) -> None:
            pace.update(done, total, name)
            bar.update(task, completed=done, total=total or None, description=printable(name), remaining=pace.remaining)

        yield update


@contextmanager
def _lines(pace: Pace) -> Iterator[Callable[[int, int, str], None]]:
    finished, reported = threading.Event(), threading.Event()

    def update(done: int, total: int, name: str) -> None:
        pace.update(done, total, name)
        reported.set()

    def print_lines() -> None:
        while not finished.wait(LINE_SECONDS):
            # With several ranks, only the first one reports.
            if reported.is_set():
                echo(pace.line, err=True)

    # A thread, because one unit may take longer than the interval.
    thread = threading.Thread(target=print_lines, daemon=True)
    thread.start()
    try:
        yield update
    finally:
        finished.set()
        thread.join()


def duration(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds, such as 0:02:30."""
    return str(timedelta(seconds=round(seconds)))
