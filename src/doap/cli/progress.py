"""Progress bars of the commands, on stderr, so that the output on stdout can be piped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from doap.cli.terminal import printable

if TYPE_CHECKING:
    from rich.progress import Progress


def progress_bar(*, quiet: bool) -> Progress:
    """Return a bar with counts, elapsed and remaining time; it is hidden unless stderr is a terminal."""
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
    hidden = quiet or not console.is_terminal
    return Progress(*columns, TextColumn("{task.description}"), console=console, disable=hidden)


@contextmanager
def show_progress(label: str, *, quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    """Yield a `doap.types.Progress` callback that drives a progress bar."""
    with progress_bar(quiet=quiet) as bar:
        task = bar.add_task(label, total=None)

        def update(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total or None, description=printable(name))

        yield update
