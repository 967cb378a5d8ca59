"""The engine of one machine: processes look at images, and one network, in the process that asks, describes them.

Threads of that process share the network, each with images of its own and one processor for them. One batch spread
over all processors would wait, layer by layer, for the one that is just looking at an image.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from itertools import islice

import pyarrow as pa
import torch

from doap.errors import ArgumentError
from doap.processes import follow_parent
from doap.scale.features import FailedImage
from doap.scale.stages import IMAGES_AT_ONCE, Describe, Look, Looked, begin_process

TRIES = 3
"""How many processes an image may end before it is given up."""

_look: Look


def extract_locally(names: Sequence[str], look: Look, describe: Describe, workers: int) -> Iterator[pa.Table]:
    """Rows of images, some at a time, in the order in which they were looked at."""
    begun = deque[Future[pa.Table]]()
    with (
        closing(look_at(names, look, workers)) as looked,
        # torch's threads alone: OpenCV has one number for the whole program, which is not ours.
        ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as describers,
    ):
        try:
            while some := list(islice(looked, IMAGES_AT_ONCE)):
                begun.append(describers.submit(describe, some))
                if len(begun) > workers:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for future in begun:
                future.cancel()
            # This thread's number is what it was, but threads that begin later would take over the describers'.
            torch.set_num_threads(torch.get_num_threads())


def look_at(names: Sequence[str], look: Look, workers: int) -> Generator[Looked]:
    """Look at images in other processes, and go on when one of them dies.

    Whose fault that was is not known: all images that were at hand are suspects. They are looked at again, one at a
    time, and one that ends `TRIES` processes while it is alone has failed. An image that was not read has no checksum,
    so the next run tries it again.
    """
    fresh, suspects, deaths = deque(names), deque[str](), Counter[str]()
    at_hand: dict[Future[Looked], str] = {}
    # Enough for the processes to be busy while the network is.
    most_at_hand = 2 * workers + IMAGES_AT_ONCE
    suspect_at_hand = False
    pool = _pool(look, workers)
    try:
        _check_that_processes_start(pool)
        while fresh or suspects or at_hand:
            try:
                while (queue := suspects or fresh) and len(at_hand) < most_at_hand:
                    # A suspect waits until nothing is at hand, and nothing is begun beside it.
                    if at_hand and (suspects or suspect_at_hand):
                        break
                    future = pool.submit(_look_at, queue[0])
                    suspect_at_hand = queue is suspects
                    at_hand[future] = queue.popleft()
                for future in wait(at_hand, return_when=FIRST_COMPLETED).done:
                    seen = future.result()
                    del at_hand[future]
                    yield seen
            except BrokenProcessPool:
                pool.shutdown()
                pool = _pool(look, workers)
                alone = len(at_hand) == 1
                for name in at_hand.values():
                    deaths[name] += alone
                    if deaths[name] < TRIES:
                        suspects.append(name)
                    else:
                        reason = f"{look.images / name}: expected an image, got one that ended {TRIES} processes"
                        yield FailedImage(name, "", reason)
                at_hand.clear()
    finally:
        pool.shutdown(cancel_futures=True)


def _pool(look: Look, workers: int) -> ProcessPoolExecutor:
    # A forked process would inherit the threads' locks of torch and OpenCV, in whatever state they are.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(look,))


def _check_that_processes_start(pool: ProcessPoolExecutor) -> None:
    """Before the images, which would be blamed for it one after the other."""
    try:
        pool.submit(os.getpid).result()
    except BrokenProcessPool as error:
        raise ArgumentError(
            "workers: expected processes that start, got one that ended before its first image; a script that is run "
            "needs `if __name__ == '__main__':` around what it does"
        ) from error


def _begin(look: Look) -> None:
    """Prepare a process that looks at images."""
    global _look
    _look = look
    begin_process()
    # An interrupt is for the process that asks. It ends this one, also by dying.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    follow_parent()


def _look_at(name: str) -> Looked:
    return _look(name)
