"""Start and lifetime of worker processes, the memory allocator, and calls in a child process with limits."""

from __future__ import annotations

import ctypes
import json
import math
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from doap._support.errors import ArgumentError

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

# A child process gets its arguments on the command line. The first is the search path of its parent, because the
# current folder, where Python searches by default, may hold foreign files.
_CHILD = (
    "import sys; sys.path[:] = sys.argv[1].split(chr(10)); from doap._support.processes import serve_call; serve_call()"
)
# Limits of a child process that reads files. Real ones are read a hundred times as fast.
_SECONDS, _BYTES_PER_SECOND = 10, 1e6
_MEMORY, _MEMORY_PER_BYTE = 4 << 30, 20
# How a child process that takes too long is ended by its alarm.
_TIMEOUT = () if sys.platform == "win32" else (-signal.SIGALRM,)
NO_START = (
    "workers: a worker process ended before its first task. A script with more than one worker needs "
    "`if __name__ == '__main__':` around its code. Otherwise, memory may be too small for the workers."
)
# A socket and two pipes for the process, and those of a pool's queues.
_PIPES_PER_START = 6

MAX_WORKERS = 1024
"""Largest number of worker processes."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8


def check_workers(workers: int) -> None:
    """Check a number of worker processes before the first one starts."""
    if not 1 <= workers <= MAX_WORKERS:
        raise ArgumentError(f"workers: expected 1 to {MAX_WORKERS:,}, got {workers}.")


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


@contextmanager
def interrupts_delayed() -> Iterator[None]:
    """Delay the first Ctrl-C to the end of a block, for libraries that discard it. A second one takes effect at once.

    In other threads nothing is delayed, because Ctrl-C only interrupts the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received = False

    def note(*_: object) -> None:
        nonlocal received
        if received:
            raise KeyboardInterrupt
        received = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if received:
            raise KeyboardInterrupt


def end_on_interrupt() -> None:
    """End this worker process at Ctrl-C, without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def worker_context(module: str) -> SpawnContext | ForkServerContext:
    """Return the context in which worker processes start.

    A fork of this process would inherit the locks of its threads in an unknown state. On Linux, workers are forks of a
    server process without threads, which imports the large libraries once for all workers of this program. On other
    systems, every worker is a new process. In both cases, workers import the main module of a script again, and call
    `begin_worker` first.

    Args:
        module: Module that the server imports. If a server runs already, the workers import it.
    """
    if sys.platform == "win32":
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver, resource_tracker

    # Starting the tracker unblocks Ctrl-C, so it must not start between the following lines or with the first worker.
    resource_tracker.ensure_running()
    # Before Python 3.11, the server would search the current folder, which may hold foreign files, for modules. Python
    # 3.11.0 lets other users connect to it (CVE-2022-42919).
    if not sys.platform.startswith("linux") or sys.version_info < (3, 11, 1):
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([module])
    before = dict(os.environ)
    try:
        with interrupts_blocked():
            # The server finds the same modules as this process.
            os.environ |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}
            forkserver.ensure_running()
    # Its socket needs a temporary folder that can be written and has a short path.
    except OSError:
        return multiprocessing.get_context("spawn")
    finally:
        _set_environment(before)
    return context


@contextmanager
def starting_workers() -> Iterator[None]:
    """Block Ctrl-C in this thread while a worker process starts, and report if it cannot."""
    try:
        with interrupts_blocked(), ExitStack() as opened:
            # The server that forks workers prints a traceback if this process reaches its limit while it asks for one.
            for file in (file for _ in range(_PIPES_PER_START) for file in os.pipe()):
                opened.callback(os.close, file)
            opened.close()
            yield
    # The server that forks workers has ended.
    except (EOFError, ConnectionError) as error:
        raise ArgumentError(NO_START) from error


def _set_environment(variables: Mapping[str, str]) -> None:
    for name in set(os.environ) - set(variables):
        del os.environ[name]
    os.environ.update(variables)


def begin_worker(environment: Mapping[str, str], pickled: bytes = pickle.dumps(None)) -> Any:
    """Prepare this worker process, and return the value that its parent pickled for it.

    The process ends when its parent ends, even if the parent is killed.

    Args:
        environment: Environment variables of the parent. A server that forks workers has earlier ones.
        pickled: A pickled value. It is unpickled after the environment is set, because opening a storage needs that.
    """
    _set_environment(environment)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    return pickle.loads(pickled)


class ChildFault(Exception):  # noqa: N818 - named after what happened
    """A call in a child process failed, crashed or exceeded a limit; the message is the reason."""


def call_in_child(function: Callable[..., Any], *arguments: Any, size: int) -> Any:
    """Call a function of a module in a child process.

    Libraries in C can hang or crash while they read a damaged file, and Python cannot interrupt them.

    Args:
        function: Function at the top level of a module. Its result is sent as JSON.
        arguments: Its arguments.
        size: Number of bytes that it reads, which limits its time and memory.

    Raises:
        ChildFault: If the function raises an exception, crashes or exceeds a limit.
    """
    seconds = math.ceil(_SECONDS + size / _BYTES_PER_SECOND)
    call = pickle.dumps((function, arguments, seconds, _MEMORY + _MEMORY_PER_BYTE * size))
    command, timeout = [sys.executable, "-c", _CHILD, "\n".join(sys.path)], f"reading takes more than {seconds} s"
    try:
        child = subprocess.run(command, input=call, capture_output=True, timeout=seconds + 5)
    except subprocess.TimeoutExpired as error:
        raise ChildFault(timeout) from error
    if child.returncode:
        reason = f"its process ended with exit code {child.returncode}"
        raise ChildFault(timeout if child.returncode in _TIMEOUT else reason)
    value, fault = json.loads(child.stdout)
    if fault:
        raise ChildFault(fault)
    return value


def serve_call() -> None:
    """Make the call of `call_in_child` in the child process."""
    function, arguments, seconds, memory = pickle.load(sys.stdin.buffer)
    if sys.platform != "win32":
        import resource

        # The system ends the process, even while a library does not return to Python.
        signal.alarm(seconds)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    value, fault = None, None
    try:
        value = function(*arguments)
    # Libraries report damage with many types of errors.
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
    sys.stdout.write(json.dumps([value, fault]))


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
