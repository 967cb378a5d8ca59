"""Freed memory is kept after tuning the allocator, and Ctrl-C reaches worker processes as intended."""

from __future__ import annotations

import json
import operator
import os
import shlex
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from doap._support import processes
from doap._support.processes import ChildFault, call_in_child, interrupts_blocked, interrupts_delayed, worker_context
from oracles.forked import Forked
from oracles.interpreter import run_python

# Forty consecutive blocks of 48 MB, or 12,288 pages. glibc maps blocks larger than 32 MB directly
# from the system.
PROGRAM = """
import resource, sys, threading
import torch
from doap._support.processes import tune_allocator

def use_memory():
    for _ in range(40):
        torch.ones(12 * 2**20)

if "tuned" in sys.argv:
    assert "raised" in tune_allocator()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use_memory()
between = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
thread = threading.Thread(target=use_memory)
thread.start()
thread.join()
print(between - before, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - between)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc is set on Linux only")
def test_freed_memory_is_reused_in_the_main_thread_and_in_others():
    tuned, default = (run_python("-c", PROGRAM, way).stdout.split() for way in ("tuned", "default"))
    assert all(int(few) < int(many) / 3 for few, many in zip(tuned, default, strict=True))


SLEEPER = "import time\nprint('ready', flush=True)\ntime.sleep(60)"
ENDING = "from doap._support.processes import end_on_interrupt\nend_on_interrupt()\n" + SLEEPER


def interrupted(program):
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
def test_a_worker_started_with_blocked_interrupts_survives_ctrl_c():
    assert interrupted(SLEEPER) == (None, b"")


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_worker_that_ends_on_interrupt_prints_no_traceback():
    assert interrupted(ENDING) == (-signal.SIGINT, b"")


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_blocked_interrupt_arrives_afterwards():
    reached = False
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        with interrupts_blocked():
            signal.raise_signal(signal.SIGINT)
            reached = True
        # The handler runs at the next instruction.
        time.sleep(1)
    assert reached


@pytest.mark.parametrize("fails", [False, True])
def test_a_delayed_interrupt_arrives_at_the_end_of_the_block(fails):
    reached = False
    with pytest.raises(KeyboardInterrupt), interrupts_delayed():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        reached = True
        if fails:
            raise ValueError("a library fails because it was interrupted")
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_is_not_delayed():
    reached = False
    with pytest.raises(KeyboardInterrupt), interrupts_delayed():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        reached = True
    assert not reached


def test_a_call_in_a_child_process_returns_its_result():
    assert call_in_child(shlex.split, "a 'b c'", size=0) == ["a", "b c"]


@pytest.mark.parametrize(
    ("function", "argument", "reason"),
    [(shlex.split, "a 'b", "ValueError"), (os._exit, 3, "exit code 3"), (time.sleep, 60, "takes more than 1 s")],
)
def test_a_child_process_that_fails_crashes_or_hangs_is_reported(monkeypatch, function, argument, reason):
    monkeypatch.setattr(processes, "_SECONDS", 1)
    with pytest.raises(ChildFault, match=reason):
        call_in_child(function, argument, size=0)


@pytest.mark.skipif(sys.platform != "linux", reason="memory limits of Linux")
def test_a_child_process_that_takes_too_much_memory_is_reported():
    with pytest.raises(ChildFault):
        call_in_child(operator.mul, [0], 1 << 40, size=0)


# A script, because workers import the main module. It prints what it finds as JSON.
WITH_WORKER = """
import json
import os
from multiprocessing import forkserver
from pathlib import Path

from doap._support.processes import begin_worker, worker_context

def work(environment, sent):
    begin_worker(environment)
    sent.send({"variable": os.environ.get("LATER"), "path": os.environ.get("PYTHONPATH")})

if __name__ == "__main__":
    context = worker_context("doap.collection.local")
    os.environ["LATER"] = "yes"
    received, sent = context.Pipe(duplex=False)
    worker = context.Process(target=work, args=(dict(os.environ), sent))
    worker.start()
    found = received.recv() | {"own path": os.environ.get("PYTHONPATH")}
    worker.join()
    server = Path("/proc") / str(forkserver._forkserver._forkserver_pid)
    found["threads"] = [task.read_text().strip() for task in server.glob("task/*/comm")]
    found["torch"] = "libtorch" in (server / "maps").read_text()
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """What a worker and the server that forks it report, in a folder with a foreign module torch."""
    if not sys.platform.startswith("linux") or sys.version_info < (3, 11, 1):
        pytest.skip("workers are new processes")
    folder = tmp_path_factory.mktemp("served")
    (folder / "torch.py").write_text("raise SystemExit('foreign module')")
    (folder / "scripts").mkdir()
    script = folder / "scripts" / "script.py"
    script.write_text(WITH_WORKER)
    # Libraries that start threads at their import do so with several threads only.
    found: dict[str, Any] = json.loads(run_python(script, folder=folder, OMP_NUM_THREADS="4").stdout)
    return found


def test_workers_are_forks_of_a_process_that_has_imported_torch_and_has_one_thread(served):
    assert served["torch"]
    # The thread of pyarrow's allocator, which stops for a fork, is not counted. OpenBLAS has ended its threads.
    assert len([name for name in served["threads"] if name != "jemalloc_bg_thd"]) == 1


def test_workers_have_the_environment_variables_of_the_time_they_start(served):
    assert served["variable"] == "yes"
    assert served["path"] == served["own path"] == os.environ.get("PYTHONPATH")


def test_workers_are_new_processes_if_the_socket_of_a_server_cannot_be_created(monkeypatch):
    def fail():
        raise OSError("AF_UNIX path too long")

    monkeypatch.setattr("multiprocessing.forkserver.ensure_running", fail)
    assert worker_context("doap.collection.local").get_start_method() == "spawn"


BUSY_AT_ITS_END = """
import time
from concurrent.futures import ProcessPoolExecutor
from doap._support.processes import worker_context

if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, worker_context("doap.collection.local"))
    pool.submit(time.sleep, 0.1).result()
    print("finished")
"""


def test_a_forked_program_that_leaves_an_executor_running_ends():
    ended = Forked(BUSY_AT_ITS_END).wait(120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "finished\n", "")
