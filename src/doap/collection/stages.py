"""The two stages of extraction, and the local engine: worker processes detect, one network in this process describes.

`Detect` processes one image: it reads it and runs the first stage of the extractor. Many processes can run it.
`Describe` runs the second stage for several images together, where the network is, and converts them to rows. Every
engine runs these and nothing else.

Several threads of the calling process share the network, each with its own batch of images and one processor. A single
batch spread over all processors would wait, layer by layer, for the processor that is busy with detection.
"""

from __future__ import annotations

import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar, cast

import pyarrow as pa
import torch

from doap._support.errors import ArgumentError, DoapError, is_out_of_memory
from doap._support.processes import NO_START, begin_worker, starting_workers, tune_allocator, worker_context
from doap.collection.extractor import ConfiguredExtractor, ExtractorInfo
from doap.collection.features import FailedImage, StoredImage, make_table
from doap.collection.image_folder import ImageFolder
from doap.collection.storage import StoredFile
from doap.extractor import Extractor, Prepared

Reopen = Callable[[], Extractor]
"""A picklable function that loads an extractor in another process."""

IMAGES_PER_BATCH = 4
"""Images described together: 8,192 patches at 2,048 keypoints per image. Larger batches delay the last images."""
MAX_CRASHES = 3
"""Number of worker processes that an image may crash before it counts as failed."""
_GPU_THREADS = 2

_detect: Detect


@dataclass(frozen=True)
class PreparedImage:
    """An image after the first stage; the other attributes are those of `StoredImage`."""

    name: str
    checksum: str
    prepared: Prepared
    stamp: str = ""


ImageResult = PreparedImage | FailedImage


@dataclass(frozen=True)
class Detect:
    """First stage: `Extractor.prepare` of one image, which is read once, or the reason why it has no features.

    Attributes:
        folder: Folder of images, and of their masks.
        extractor: Extractor.
        max_keypoints, tile: As for `doap.extract`.
    """

    folder: ImageFolder
    extractor: Extractor
    max_keypoints: int
    tile: int | None = None

    def __call__(self, source: StoredFile) -> ImageResult:
        name, stamp = source
        path, checksum = self.folder.locate(name), ""
        try:
            contents = self.folder.read(name)
            checksum = contents.checksum
            grey, mask = self.folder.decode(name, contents)
            prepared = self.extractor.prepare(grey, max_keypoints=self.max_keypoints, mask=mask, tile=self.tile)
        # A library may raise anything for an unusual image. Wrong arguments were refused earlier.
        except Exception as error:
            if is_out_of_memory(error):
                # Not a fault of the image: without a checksum, the next run tries it again.
                return FailedImage(name, "", f"{path}: not enough memory. Run the same command again.", stamp)
            reason = f"{path}: {type(error).__name__}: {error}"
            if isinstance(error, DoapError):
                reason = str(error)
            elif isinstance(error, OSError) and not checksum:
                reason = f"{path}: cannot be read: {error.strerror or error}. Check the path."
            return FailedImage(name, checksum, " ".join(reason.split()), stamp)
        return PreparedImage(name, checksum, prepared, stamp)


@dataclass(frozen=True)
class Describe:
    """Second stage: `Extractor.finish` of several images, as rows.

    Attributes:
        extractor: Extractor.
        info: Identity and settings for the rows.
    """

    extractor: Extractor
    info: ExtractorInfo

    def to(self, device: str) -> Describe:
        """Return the stage with a copy of its network on another device."""
        return replace(self, extractor=self.extractor.to(torch.device(device)))

    def __call__(self, images: Sequence[ImageResult]) -> pa.Table:
        """Return the rows of any number of images, in their order."""
        features = iter(self.extractor.finish([one.prepared for one in images if isinstance(one, PreparedImage)]))
        results = [
            StoredImage(one.name, one.checksum, next(features), one.stamp) if isinstance(one, PreparedImage) else one
            for one in images
        ]
        return make_table(results, self.info)


_Stage = TypeVar("_Stage", Detect, Describe)


def make_stages(folder: ImageFolder, configured: ConfiguredExtractor) -> tuple[Detect, Describe]:
    """Return both stages for this process."""
    extractor, info = configured.extractor, configured.info
    return Detect(folder, extractor.first_stage(), info.max_keypoints, info.tile), Describe(extractor, info)


def make_portable(stage: _Stage, reopen: Reopen | None) -> _Stage:
    """Return a stage that can be pickled and then called in another process, where `reopen` loads its extractor."""
    if _is_picklable(stage):
        return stage
    if reopen is not None:
        portable = replace(stage, extractor=cast(Extractor, _Placeholder(reopen)))
        if _is_picklable(portable):
            return portable
    raise ArgumentError(
        f"descriptor and detector: {stage.extractor.name} with this detector cannot be sent to other "
        "processes (not picklable). Pass names or files instead of objects, or use workers=1."
    )


class _Placeholder:
    """Is unpickled as the result of a function."""

    def __init__(self, make: Reopen) -> None:
        self._make = make

    def __reduce__(self) -> tuple[Reopen, tuple[()]]:
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


def extract_in_process(sources: Sequence[StoredFile], detect: Detect, describe: Describe) -> Generator[pa.Table]:
    """Yield the rows of images one by one, without other processes."""
    for source in sources:
        yield describe([detect(source)])


def extract_locally(
    sources: Sequence[StoredFile], detect: Detect, describe: Describe, workers: int
) -> Generator[pa.Table]:
    """Yield the rows of images in batches, in the order in which detection in worker processes finishes."""
    pending = deque[Future[pa.Table]]()
    threads = workers if describe.extractor.device.type == "cpu" else _GPU_THREADS
    with (
        closing(_detect_images(sources, detect, workers)) as results,
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


def _detect_images(sources: Sequence[StoredFile], detect: Detect, workers: int) -> Generator[ImageResult]:
    """Run the first stage in worker processes, and continue when one of them crashes.

    After a crash, the culprit among the images that were being processed is unknown, so each of them is processed in a
    process of its own. An image that crashes `MAX_CRASHES` of these counts as failed. It has no checksum, so the next
    run tries it again.
    """
    waiting, running = deque(sources), dict[Future[ImageResult], StoredFile]()
    # Enough to keep the workers busy while the network describes.
    max_running = 2 * workers + IMAGES_PER_BATCH
    pool = _start_pool(detect, workers)
    try:
        while waiting or running:
            try:
                while waiting and len(running) < max_running:
                    with starting_workers():
                        future = pool.submit(_detect_image, waiting[0])
                    running[future] = waiting.popleft()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield future.result()
                    del running[future]
            except BrokenProcessPool:
                pool.shutdown()
                for source in running.values():
                    yield _detect_alone(source, detect)
                running.clear()
                pool = _start_pool(detect, workers)
    finally:
        pool.shutdown(cancel_futures=True)


def _detect_alone(source: StoredFile, detect: Detect) -> ImageResult:
    for _ in range(MAX_CRASHES):
        with _start_pool(detect, 1) as pool, suppress(BrokenProcessPool), starting_workers():
            return pool.submit(_detect_image, source).result()
    return FailedImage(source.name, "", f"{detect.folder.locate(source.name)}: crashed {MAX_CRASHES} worker processes.")


def _start_pool(detect: Detect, workers: int) -> ProcessPoolExecutor:
    """Start worker processes. Images are not blamed for those that do not start."""
    arguments = (dict(os.environ), pickle.dumps(detect))
    pool = ProcessPoolExecutor(workers, worker_context(__name__), initializer=_begin, initargs=arguments)
    try:
        with starting_workers():
            started = pool.submit(os.getpid)
        started.result()
    except BrokenProcessPool as error:
        raise ArgumentError(NO_START) from error
    return pool


def _begin(environment: Mapping[str, str], detect: bytes) -> None:
    """Prepare a worker process."""
    global _detect
    _detect = begin_worker(environment, detect)
    prepare_worker()
    # The calling process handles interrupts and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _detect_image(source: StoredFile) -> ImageResult:
    return _detect(source)
