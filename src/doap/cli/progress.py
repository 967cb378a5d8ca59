"""Progress of the commands, on stderr, so that the output on stdout can be piped.

A terminal shows a bar. Everywhere else, such as in the log of a batch job, a line appears every 30 seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING

import typer

from doap.cli.terminal import echo, printable

if TYPE_CHECKING:
    from rich.progress import Progress, Task

SAME_COMMAND = "Run the same command again to continue."
"""What resumable commands print when they are interrupted."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""
LINE_SECONDS = 30.0
"""Seconds between two lines of progress where there is no terminal."""
# The remaining time follows the reports of the last hour, at most 1,000. The first one does not count: it includes
# what an earlier run finished.
_PACE_SECONDS = 3600


@contextmanager
def show_progress(label: str, *, quiet: bool, resume: str = "") -> Iterator[Callable[[int, int, str], None]]:
    """Yield a `doap.types.Progress` callback that drives a bar or prints lines.

    Args:
        label: Text of the bar until the first report.
        quiet: Show nothing.
        resume: What to print after Ctrl-C: how to continue.
    """
    bar = make_bar()
    task, reported = bar.add_task(label, total=None), threading.Event()

    def update(done: int, total: int, name: str) -> None:
        bar.update(task, completed=done, total=total or None, description=printable(name))
        reported.set()

    try:
        with nullcontext() if quiet else bar if bar.console.is_terminal else _print_lines(bar.tasks[0], reported):
            yield update
    except KeyboardInterrupt:
        echo(f"Interrupted. {resume}".strip(), err=True)
        raise typer.Exit(INTERRUPTED) from None


def make_bar(clock: Callable[[], float] | None = None) -> Progress:
    """Return a bar that is not shown yet. The clock returns seconds."""
    from rich import progress as rich
    from rich.console import Console

    times = rich.TimeElapsedColumn(), rich.TimeRemainingColumn()
    columns = rich.BarColumn(), rich.MofNCompleteColumn(), *times, rich.TextColumn("{task.description}", markup=False)
    return rich.Progress(*columns, console=Console(stderr=True), speed_estimate_period=_PACE_SECONDS, get_time=clock)


def describe(task: Task) -> str:
    """Return the state of a task in one line: units, times and the current unit."""
    count = f"{task.completed:,.0f} of {task.total:,.0f}" if task.total else f"{task.completed:,.0f}"
    left = f", about {duration(task.time_remaining)} left" if task.time_remaining else ""
    return f"{count}, {duration(task.elapsed or 0)} elapsed{left}: {task.description}"


@contextmanager
def _print_lines(task: Task, reported: threading.Event) -> Iterator[None]:
    finished = threading.Event()

    def print_lines() -> None:
        while not finished.wait(LINE_SECONDS):
            # With several ranks, only the first one reports.
            if reported.is_set():
                echo(describe(task), err=True)

    # A thread, because one unit may take longer than the interval.
    thread = threading.Thread(target=print_lines, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()


def duration(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds, such as 0:02:30."""
    return str(timedelta(seconds=round(seconds)))
