"""The memory allocator of a training process."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def tune_allocator() -> str:
    """Keep freed memory for the next step, where glibc would give it back; call before the first large allocation.

    A step's tensors have the sizes of those before. By default glibc maps each large one anew and returns it to the
    system afterwards, and the pages' first touch costs more than the arithmetic on them. Only a command may decide
    this for its process; `import doap` never does.

    Returns:
        What was done, for the log.
    """
    if not sys.platform.startswith("linux"):
        return "default (not Linux)"
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return "default (not glibc)"
    done = mallopt(M_MMAP_THRESHOLD, 1 << 30) and mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
    return "glibc, mmap and trim thresholds raised" if done else "default (glibc refused)"
