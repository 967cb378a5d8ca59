"""Extract the features of a folder of images: find what is missing, run an engine, write parts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar, get_args

import pyarrow as pa
import torch

from doap._support.checks import check_choice
from doap._support.device import Precision
from doap._support.errors import ArgumentError, DataError
from doap._support.processes import check_workers
from doap._support.text import counted
from doap.collection.extractor import ConfiguredExtractor, open_extractor
from doap.collection.features import REMOVED, DamagedPart, FailedImage, FeatureSet, PartWriter, make_table
from doap.collection.image_folder import ImageFolder
from doap.collection.local import WORKERS_PER_GPU, ImageExtractor, extract_in_process, extract_locally, make_portable
from doap.collection.storage import LocalFolder, Storage, StoredFile, open_storage
from doap.detectors import Detector
from doap.extractor import DescriptorSource
from doap.types import Progress, no_progress

Engine = Literal["local", "ray"]
"""Extraction engine: processes on this machine, or Ray."""
Run = Callable[[Sequence[StoredFile], PartWriter], Generator[pa.Table]]
"""A configured engine: extracts images, writes their rows, and yields tables with their names and errors."""

_Result = TypeVar("_Result")
# Starting a worker process takes as long as extracting about this many images.
_IMAGES_PER_WORKER = 16


@dataclass(frozen=True)
class ExtractionSummary:
    """Result of `extract_folder`.

    Attributes:
        out: Folder of the feature set, or its URL.
        extracted: Number of images that this run extracted.
        reused: Number of images that an earlier run extracted and that have not changed since.
        removed: Number of images that are no longer in the folder.
        skipped: Images without features, and the reasons.
        seconds: Duration of the run.
        images_per_second: Number of images processed per second, including skipped ones.
        masks: Number of images with a mask; None without a folder of masks.
    """

    out: Path | str
    extracted: int
    reused: int
    removed: int
    skipped: dict[str, str]
    seconds: float
    images_per_second: float
    masks: int | None = None


def extract_folder(
    images: str | Path,
    out: str | Path,
    descriptor: DescriptorSource = "doap-128",
    *,
    detector: str | Detector | None = None,
    max_keypoints: int = 2048,
    masks: str | Path | None = None,
    tile: int | None = None,
    verify: bool = False,
    engine: Engine = "local",
    workers: int | None = None,
    address: str | None = None,
    device: str | torch.device = "auto",
    precision: Precision = "auto",
    progress: Progress = no_progress,
) -> ExtractionSummary:
    """Extract the features of all images in a folder into a `FeatureSet`, as `doap.extract` does for one image.

    Resumable: only images whose size or modification time is new, or that of whose mask is, are extracted; all of them
    if a setting has changed. An image that cannot be read is skipped. Keypoints are in the pixels as stored in the
    file. More than one worker, and Ray, start other processes. A script then needs `if __name__ == "__main__":`.

    >>> import doap
    >>> doap.extract_folder("photos", "features").extracted  # doctest: +SKIP
    1024

    Args:
        images: Folder of images, searched recursively; a path or a URL (`s3://`) that every machine can read.
        out: Folder of the feature set; a path or a URL. Locks refuse a second run with the same path, not the same URL.
        descriptor: Name, file or object; see `doap.load`. Other processes require an object that can be pickled.
        detector: Name or object; None is the descriptor's own detector or SIFT.
        max_keypoints: Maximum number of keypoints per image.
        masks: Folder of masks: keypoints of `a/b.jpg` are detected where `a/b.jpg.png` is not zero, if it exists.
        tile: Side in pixels of the tiles in which larger images are processed; see `doap.extract`.
        verify: Compare checksums too, to find images that were changed without a change of size and time.
        engine: `local` for this machine, `ray` for Ray on this machine or a cluster.
        workers: Number of worker processes; 1 extracts in the calling process. None is one per processor, fewer for a
            few images, and 1 for an object that cannot be pickled. A cluster ignores it.
        address: Address of a Ray cluster; None starts Ray on this machine.
        device: Device of the network: "auto", "cpu", "cuda", "cuda:N" or "mps". Ray requests GPUs if it has any.
        precision: Arithmetic of the network: "auto", "float32" or "bfloat16".
        progress: Called with the number of processed images, the number of images, and the speed.
    """
    folder = ImageFolder.open(images, masks)
    listing = folder.list()
    # The machine that starts Ray may have no GPU, and the fingerprint does not depend on the device.
    extractor = open_extractor(
        descriptor,
        detector=detector,
        max_keypoints=max_keypoints,
        tile=tile,
        device="cpu" if engine == "ray" else device,
        precision=precision,
    )
    run = _make_engine(folder, extractor, workers, engine, address, str(device))
    storage = open_storage(out)
    with storage.lock():
        return _update(folder, listing, storage, extractor, run, progress, verify)[1]


def use_features(
    folder: ImageFolder,
    listing: Mapping[str, str],
    out: Path,
    extractor: ConfiguredExtractor,
    workers: int | None,
    total: int,
    progress: Progress,
    action: Callable[[FeatureSet, ExtractionSummary], _Result],
    verify: bool = False,
) -> _Result:
    """Bring a feature set up to date with images of a folder, given with their stamps, and run an action that reads it.

    The progress counts images among a `total` that includes the steps of the action. If a part of the set is damaged,
    it is deleted, its images are extracted again and the action is repeated. No other run can change the set meanwhile.
    """
    run, storage = _make_engine(folder, extractor, workers), LocalFolder(out)

    def report(done: int, _: int, text: str) -> None:
        progress(done, total, text)

    with storage.lock():
        while True:
            try:
                features, summary = _update(folder, listing, storage, extractor, run, report, verify)
                if not features.names:
                    reason = next(iter(features.failed.values()))
                    raise DataError(
                        f"{folder.images}: none of {counted(len(listing), 'image')} can be read. The first one: "
                        f"{reason}"
                    )
                return action(features, summary)
            except DamagedPart as damage:
                damage.delete()


def _update(
    folder: ImageFolder,
    listing: Mapping[str, str],
    storage: Storage,
    extractor: ConfiguredExtractor,
    run: Run,
    progress: Progress,
    verify: bool,
) -> tuple[FeatureSet, ExtractionSummary]:
    """Bring a feature set up to date with images of a folder, given with their stamps."""
    start, total = time.perf_counter(), len(listing)
    with PartWriter(storage, extractor.info) as writer:
        progress(0, total, "comparing with earlier runs")
        rows = writer.before.known
        known = zip(*(rows[key].to_pylist() for key in ("name", "stamp", "checksum")), strict=True)
        # Images without a checksum could not be read.
        earlier = {name: (stamp if checksum else None, checksum) for name, stamp, checksum in known}
        missing = []
        for name, stamp in listing.items():
            before, checksum = earlier.get(name, (None, ""))
            if before != stamp or (verify and folder.checksum(name) != checksum):
                missing.append(StoredFile(name, stamp))
        removed = [FailedImage(name, "", REMOVED) for name in earlier if name not in listing]
        if removed:
            writer.add(make_table(removed, extractor.info))
        progress(total - len(missing), total, "starting")
        processed, extracted, engine_start = 0, 0, time.perf_counter()
        # An empty list does not start the engine.
        with closing(run(missing, writer)) as tables:
            for table in tables if missing else ():
                processed += len(table)
                extracted += table["error"].null_count
                speed = processed / (time.perf_counter() - engine_start)
                progress(total - len(missing) + processed, total, f"{speed:,.1f} images/s")
    # A run without changes does not open the set again.
    features = FeatureSet(storage) if missing or removed else writer.before
    for part in features.superseded:
        storage.delete(part)
    seconds = time.perf_counter() - start
    return features, ExtractionSummary(
        storage.local or str(storage),
        extracted,
        len(features) - extracted,
        len(removed),
        features.failed,
        seconds,
        processed / seconds,
        folder.count_masks(listing.values()),
    )


def _make_engine(
    folder: ImageFolder,
    extractor: ConfiguredExtractor,
    workers: int | None,
    engine: Engine = "local",
    address: str | None = None,
    device: str = "auto",
) -> Run:
    """Return an engine. The local one runs in the calling process for one worker, and starts processes for more."""
    check_choice(engine, get_args(Engine), name="engine")
    if workers is not None:
        check_workers(workers)
    if address is not None and engine != "ray":
        raise ArgumentError(f"address: only the ray engine takes an address, got {address!r}.")
    extract = ImageExtractor(folder, extractor.extractor, extractor.info)
    portable = make_portable(extract.to("cpu"), extractor.reopen)
    if portable is None and (engine == "ray" or (workers or 1) > 1):
        raise ArgumentError(
            f"descriptor and detector: {extract.extractor.name} with this detector cannot be sent to other processes "
            "(not picklable). Pass names or files instead of objects, or use workers=1."
        )
    used, processors = extract.extractor.device, os.cpu_count() or 1
    if engine == "ray" and portable:
        from doap.collection.ray import extract_with_ray

        settings = (portable, workers or processors, address, device)
        return lambda sources, writer: extract_with_ray(sources, writer.target, *settings)

    def run(sources: Sequence[StoredFile], writer: PartWriter) -> Generator[pa.Table]:
        most = processors if used.type == "cpu" else min(processors, WORKERS_PER_GPU)
        processes = workers or min(most, 1 + len(sources) // _IMAGES_PER_WORKER)
        if processes == 1 or portable is None:
            return _add(writer, extract_in_process(sources, extract))
        return _add(writer, extract_locally(sources, portable, processes, str(used)))

    return run


def _add(writer: PartWriter, tables: Generator[pa.Table]) -> Generator[pa.Table]:
    """Pass tables to a writer, and yield them."""
    with closing(tables):
        for table in tables:
            writer.add(table)
            yield table
