"""Extraction of images to rows, in this process or in worker processes of this machine."""

from __future__ import annotations

import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa
import torch

from doap._support.errors import ArgumentError, DoapError, is_out_of_memory
from doap._support.processes import NO_START, begin_worker, starting_workers, tune_allocator, worker_context
from doap.collection.extractor import ExtractorInfo
from doap.collection.features import FailedImage, StoredImage, make_table
from doap.collection.image_folder import ImageFolder
from doap.collection.storage import StoredFile
from doap.extractor import Extractor, Prepared

IMAGES_PER_BATCH = 4
"""Images described together: 8,192 patches at 2,048 keypoints per image. Larger batches delay the last images."""
MAX_CRASHES = 3
"""Number of worker processes that an image may crash before it counts as failed."""
WORKERS_PER_GPU = 8
"""Number of processes that share a GPU: they detect on processors most of the time, and describe in between."""

_extract: ImageExtractor


@dataclass(frozen=True)
class ImageExtractor:
    """Extracts images of a folder to rows. Every engine calls it and nothing else.

    Attributes:
        folder: Folder of images, and of their masks.
        extractor: Extractor.
        info: Its identity and settings.
    """

    folder: ImageFolder
    extractor: Extractor
    info: ExtractorInfo

    def __call__(self, sources: Sequence[StoredFile]) -> pa.Table:
        """Return the rows of images, in their order. The network describes all of them together."""
        prepared = [self._prepare(source) for source in sources]
        features = iter(self.extractor.finish([one for _, one in prepared if isinstance(one, Prepared)]))
        rows = [
            StoredImage(source.name, checksum, next(features), source.stamp)
            if isinstance(one, Prepared)
            else FailedImage(source.name, checksum, one, source.stamp)
            for source, (checksum, one) in zip(sources, prepared, strict=True)
        ]
        return make_table(rows, self.info)

    def to(self, device: str) -> ImageExtractor:
        """Return it with a copy of its network on another device."""
        return replace(self, extractor=self.extractor.to(torch.device(device)))

    def fail(self, source: StoredFile, reason: str) -> pa.Table:
        """Return the row of an image that crashes its process. It has no checksum, so the next run tries it again."""
        return make_table([FailedImage(source.name, "", f"{self.folder.locate(source.name)}: {reason}")], self.info)

    def _prepare(self, source: StoredFile) -> tuple[str, Prepared | str]:
        """Read and prepare an image; return its checksum, and the reason if that fails."""
        path, checksum = self.folder.locate(source.name), ""
        try:
            contents = self.folder.read(source.name)
            checksum = contents.checksum
            grey, mask = self.folder.decode(source.name, contents)
            max_keypoints, tile = self.info.max_keypoints, self.info.tile
            return checksum, self.extractor.prepare(grey, max_keypoints=max_keypoints, mask=mask, tile=tile)
        # A library may raise anything for an unusual image. Wrong arguments were refused earlier.
        except Exception as error:
            if is_out_of_memory(error):
                # Not a fault of the image: without a checksum, the next run tries it again.
                return "", f"{path}: not enough memory. Run the same command again."
            reason = f"{path}: {type(error).__name__}: {error}"
            if isinstance(error, DoapError):
                reason = str(error)
            elif isinstance(error, OSError) and not checksum:
                reason = f"{path}: cannot be read: {error.strerror or error}. Check the path."
            return checksum, " ".join(reason.split())


def make_portable(extract: ImageExtractor, reopen: Callable[[], Extractor] | None) -> ImageExtractor | None:
    """Return an extractor that can be pickled, or one that `reopen` loads in the other process; None without either."""
    if _is_picklable(extract):
        return extract
    portable = replace(extract, extractor=cast(Extractor, reopen and _Placeholder(reopen)))
    return portable if reopen and _is_picklable(portable) else None


class _Placeholder:
    """Is unpickled as the result of a function."""

    def __init__(self, make: Callable[[], Extractor]) -> None:
        self._make = make

    def __reduce__(self) -> tuple[Callable[[], Extractor], tuple[()]]:
        return self._make, ()


def _is_picklable(value: object) -> bool:
    try:
        pickle.dumps(value)
    # Every type raises an exception of its own.
    except Exception:
        return False
    return True


def prepare_worker() -> None:
    """Configure a worker process: one thread, and freed memory is kept for the next images.

    With glibc's defaults, a quarter of the describing time goes into mapping freed memory again.
    """
    import cv2

    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    tune_allocator()


def split(sources: Sequence[StoredFile], size: int) -> list[Sequence[StoredFile]]:
    """Return images in parts of this size; the last one may be smaller."""
    return [sources[start : start + size] for start in range(0, len(sources), size)]


def extract_in_process(sources: Sequence[StoredFile], extract: ImageExtractor) -> Generator[pa.Table]:
    """Yield the rows of images one by one, without other processes."""
    for source in sources:
        yield extract([source])


def extract_locally(
    sources: Sequence[StoredFile], extract: ImageExtractor, workers: int, device: str
) -> Generator[pa.Table]:
    """Yield the rows of images in batches, as worker processes finish them, and continue when one of them crashes.

    After a crash, the culprit among the images that were being processed is unknown, so each of them is processed in a
    process of its own. An image that crashes `MAX_CRASHES` of these counts as failed.
    """
    waiting, running = deque(split(sources, IMAGES_PER_BATCH)), dict[Future[pa.Table], Sequence[StoredFile]]()
    pool = _start_pool(extract, workers, device)
    try:
        while waiting or running:
            try:
                while waiting and len(running) < 2 * workers:
                    with starting_workers():
                        future = pool.submit(_extract_batch, waiting[0])
                    running[future] = waiting.popleft()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield future.result()
                    del running[future]
            except BrokenProcessPool:
                pool.shutdown()
                for source in (source for batch in running.values() for source in batch):
                    yield _extract_alone(source, extract, device)
                running.clear()
                pool = _start_pool(extract, workers, device)
    finally:
        pool.shutdown(cancel_futures=True)


def _extract_alone(source: StoredFile, extract: ImageExtractor, device: str) -> pa.Table:
    for _ in range(MAX_CRASHES):
        with _start_pool(extract, 1, device) as pool, suppress(BrokenProcessPool), starting_workers():
            return pool.submit(_extract_batch, [source]).result()
    return extract.fail(source, f"crashed {MAX_CRASHES} worker processes.")


def _start_pool(extract: ImageExtractor, workers: int, device: str) -> ProcessPoolExecutor:
    """Start worker processes. Images are not blamed for those that do not start."""
    arguments = (dict(os.environ), pickle.dumps(extract), device)
    pool = ProcessPoolExecutor(workers, worker_context(__name__), initializer=_begin, initargs=arguments)
    try:
        with starting_workers():
            started = pool.submit(os.getpid)
        started.result()
    except BrokenProcessPool as error:
        raise ArgumentError(NO_START) from error
    return pool


def _begin(environment: Mapping[str, str], pickled: bytes, device: str) -> None:
    """Prepare a worker process."""
    global _extract
    extract: ImageExtractor = begin_worker(environment, pickled)
    _extract = extract.to(device)
    prepare_worker()
    # The calling process handles interrupts and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _extract_batch(sources: Sequence[StoredFile]) -> pa.Table:
    return _extract(sources)
