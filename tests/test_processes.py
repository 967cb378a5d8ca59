"""Freed memory is kept after tuning the allocator, and Ctrl-C reaches worker processes as intended."""

from __future__ import annotations

import operator
import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from doap.processes import ChildFault, call_in_child, interrupts_blocked

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


SLEEPER = "import time\nprint('ready', flush=True)\ntime.sleep(60)"
ENDING = "from doap.processes import end_on_interrupt\nend_on_interrupt()\n" + SLEEPER


def interrupted(program: str) -> tuple[int | None, bytes]:
    """Interrupt a program started with blocked interrupts; return its exit code, None if it lives, and stderr."""
    with interrupts_blocked():
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    child.send_signal(signal.SIGINT)
    try:
        code: int | None = child.wait(0.5)
    except subprocess.TimeoutExpired:
        code = None
    child.kill()
    return code, child.communicate()[1]


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_worker_started_with_blocked_interrupts_survives_ctrl_c() -> None:
    assert interrupted(SLEEPER) == (None, b"")


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_worker_that_ends_on_interrupt_prints_no_traceback() -> None:
    assert interrupted(ENDING) == (-signal.SIGINT, b"")


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_blocked_interrupt_arrives_afterwards() -> None:
    reached = False
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        with interrupts_blocked():
            signal.raise_signal(signal.SIGINT)
            reached = True
        # The handler runs at the next instruction.
        time.sleep(1)
    assert reached


def test_a_call_in_a_child_process_returns_its_result() -> None:
    assert call_in_child(shlex.split, "a 'b c'", seconds=20) == ["a", "b c"]


def test_an_exception_in_a_child_process_is_reported() -> None:
    with pytest.raises(ChildFault, match="ValueError: No closing quotation"):
        call_in_child(shlex.split, "a 'b", seconds=20)


def test_a_child_process_that_crashes_is_reported() -> None:
    with pytest.raises(ChildFault, match=r"exit code -?[1-9]"):
        call_in_child(os.abort, seconds=20)


def test_a_child_process_that_hangs_is_ended() -> None:
    with pytest.raises(ChildFault, match="takes more than 1 s"):
        call_in_child(time.sleep, 60, seconds=1)


@pytest.mark.skipif(sys.platform != "linux", reason="memory limits of Linux")
def test_a_child_process_that_takes_too_much_memory_is_reported() -> None:
    with pytest.raises(ChildFault, match="MemoryError"):
        call_in_child(operator.mul, [0], 1 << 40, seconds=20)
