"""The local engine: worker processes detect, and one network in the calling process describes.

Several threads of the calling process share the network, each with its own batch of images and one processor. A single
batch spread over all processors would wait, layer by layer, for the processor that is busy with detection.
"""

from __future__ import annotations

import os
import pickle
import signal
from collections import Counter, deque
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from itertools import islice

import pyarrow as pa
import torch

from doap._support.errors import ArgumentError
from doap._support.processes import NO_START, begin_worker, starting_workers, worker_context
from doap.collection.features import FailedImage
from doap.collection.image_folder import Source
from doap.collection.stages import IMAGES_PER_BATCH, Describe, Detect, ImageResult, prepare_worker

MAX_CRASHES = 3
"""Number of worker processes that an image may crash before it counts as failed."""
_GPU_THREADS = 2

_detect: Detect


def extract_in_process(sources: Sequence[Source], detect: Detect, describe: Describe) -> Generator[pa.Table]:
    """Yield the rows of images one by one, without other processes."""
    for source in sources:
        yield describe([detect(source)])


def extract_locally(sources: Sequence[Source], detect: Detect, describe: Describe, workers: int) -> Generator[pa.Table]:
    """Yield the rows of images in batches, in the order in which detection in worker processes finishes."""
    pending = deque[Future[pa.Table]]()
    threads = workers if describe.extractor.device.type == "cpu" else _GPU_THREADS
    with (
        closing(detect_images(sources, detect, workers)) as results,
        # OpenCV's number of threads stays as it is, because it holds for the whole program.
        ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        try:
            while batch := list(islice(results, IMAGES_PER_BATCH)):
                pending.append(pool.submit(describe, batch))
                if len(pending) > threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
            # Threads started later would otherwise inherit the number set in the pool.
            torch.set_num_threads(torch.get_num_threads())


def detect_images(sources: Sequence[Source], detect: Detect, workers: int) -> Generator[ImageResult]:
    """Run the first stage in worker processes, and continue when one of them crashes.

    After a crash all images that were being processed are suspects, because the culprit is unknown. Suspects are
    processed again one at a time. An image that crashes `MAX_CRASHES` processes on its own counts as failed. It has no
    checksum, so the next run tries it again.
    """
    fresh, suspects, crashes = deque(sources), deque[Source](), Counter[Source]()
    running: dict[Future[ImageResult], Source] = {}
    # Enough to keep the workers busy while the network describes.
    max_running = 2 * workers + IMAGES_PER_BATCH
    suspect_running = False
    pool = _start_pool(detect, workers)
    try:
        _check_start(pool)
        while fresh or suspects or running:
            try:
                while (queue := suspects or fresh) and len(running) < max_running:
                    # A suspect runs on its own.
                    if running and (suspects or suspect_running):
                        break
                    with starting_workers():
                        future = pool.submit(_detect_image, queue[0])
                    suspect_running = queue is suspects
                    running[future] = queue.popleft()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    result = future.result()
                    del running[future]
                    yield result
            except BrokenProcessPool:
                pool.shutdown()
                pool = _start_pool(detect, workers)
                for source in running.values():
                    crashes[source] += len(running) == 1
                    if crashes[source] < MAX_CRASHES:
                        suspects.append(source)
                    else:
                        path = detect.folder.locate(source.name)
                        yield FailedImage(source.name, "", f"{path}: crashed {MAX_CRASHES} worker processes.")
                running.clear()
    finally:
        pool.shutdown(cancel_futures=True)


def _start_pool(detect: Detect, workers: int) -> ProcessPoolExecutor:
    context = worker_context(__name__)
    arguments = (dict(os.environ), pickle.dumps(detect))
    return ProcessPoolExecutor(workers, context, initializer=_initialise, initargs=arguments)


def _check_start(pool: ProcessPoolExecutor) -> None:
    """Check that worker processes start, so that images are not blamed for it."""
    try:
        with starting_workers():
            started = pool.submit(os.getpid)
        started.result()
    except BrokenProcessPool as error:
        raise ArgumentError(NO_START) from error


def _initialise(environment: Mapping[str, str], detect: bytes) -> None:
    """Prepare a worker process."""
    global _detect
    _detect = begin_worker(environment, detect)
    prepare_worker()
    # The calling process handles interrupts and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _detect_image(source: Source) -> ImageResult:
    return _detect(source)
