"""Tuning the allocator keeps freed memory, also for threads that start later."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Forty consecutive blocks of 48 MB, or 12,288 pages. glibc maps blocks larger than 32 MB directly
# from the system.
PROGRAM = """
import resource, sys, threading
import torch
from doap.processes import tune_allocator

def use_memory():
    for _ in range(40):
        torch.ones(12 * 2**20)

if "tuned" in sys.argv:
    assert "raised" in tune_allocator()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
if "thread" in sys.argv:
    thread = threading.Thread(target=use_memory)
    thread.start()
    thread.join()
else:
    use_memory()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc is set on Linux only")
@pytest.mark.parametrize("where", ["main", "thread"])
def test_freed_memory_is_reused(where: str) -> None:
    assert faults(where, "tuned") < faults(where, "default") / 3


def faults(*arguments: str) -> int:
    """Return the number of minor page faults of a process."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True)
    return int(done.stdout)
