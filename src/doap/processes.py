"""Settings of a process: its lifetime and its memory allocator."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C in this thread while worker processes start.

    They inherit the block, so that an interrupt does not print a traceback for each of them, and the calling process
    decides what happens. On Windows nothing is blocked.
    """
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_on_interrupt() -> None:
    """End this worker process at Ctrl-C, without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def follow_parent() -> None:
    """Terminate this worker process when its parent ends, even if the parent is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def tune_allocator() -> str:
    """Let glibc keep freed memory for reuse; call this before the first large allocation.

    Every training step allocates tensors of the same sizes. By default, glibc maps each large block
    from the system and returns it afterwards, and the page faults cost more than the arithmetic on
    the block. Only commands and processes started by doap call this function; `import doap` does
    not.

    Returns:
        Description of the setting, for the log.
    """
    if not sys.platform.startswith("linux"):
        return "default (not Linux)"
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return "default (not glibc)"
    # Additional threads would get arenas of 64 MB, which are returned regardless of the thresholds.
    settings = ((M_MMAP_THRESHOLD, 1 << 30), (M_TRIM_THRESHOLD, (1 << 31) - 1), (M_ARENA_MAX, 1))
    done = all(mallopt(name, value) for name, value in settings)
    return "glibc, mmap and trim thresholds raised, one arena" if done else "default (glibc refused)"
