"""The progress bar of all commands, on stderr, so that what is printed can be piped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


def progress_bar(*, quiet: bool) -> Progress:
    """A bar, how many of how many, time gone and time left, and what is at hand; none where nobody watches it."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    # A file or a pipe would get one bar, at the end, before the line that says what went wrong.
    hidden = quiet or not console.is_terminal
    return Progress(*columns, TextColumn("{task.description}"), console=console, disable=hidden)


@contextmanager
def reported(what: str, *, quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    """A bar that a long function reports to: units done, units in all, and the one at hand."""
    with progress_bar(quiet=quiet) as bar:
        task = bar.add_task(what, total=None)

        def report(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total or None, description=name)

        yield report
