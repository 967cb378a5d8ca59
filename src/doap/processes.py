"""Settings of a process: its lifetime and its memory allocator."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import sys
import threading

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8


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
