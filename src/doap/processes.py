"""What a process decides for itself: when it ends, and what becomes of memory it has freed."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import sys
import threading

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8


def follow_parent() -> None:
    """Called in a worker: it ends when its parent does, however that ends, and is not left behind."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def tune_allocator() -> str:
    """Keep freed memory for the next step, where glibc would give it back; call before the first large allocation.

    A step's tensors have the sizes of those before. By default glibc maps each large one anew and returns it to the
    system afterwards, and the pages' first touch costs more than the arithmetic on them. Only a command, or a process
    that doap has started, may decide this; `import doap` never does.

    Returns:
        What was done, for the log.
    """
    if not sys.platform.startswith("linux"):
        return "default (not Linux)"
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return "default (not glibc)"
    # Other threads would get arenas of 64 MB, which are given back whatever the thresholds say.
    settings = ((M_MMAP_THRESHOLD, 1 << 30), (M_TRIM_THRESHOLD, (1 << 31) - 1), (M_ARENA_MAX, 1))
    done = all(mallopt(name, value) for name, value in settings)
    return "glibc, mmap and trim thresholds raised, one arena" if done else "default (glibc refused)"
