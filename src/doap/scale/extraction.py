"""Extract the features of a folder of images: find what is missing, run an engine, write parts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar, get_args

import pyarrow as pa
import torch

from doap.checks import check_choice
from doap.describer import Describer
from doap.detectors import Detector
from doap.device import Precision
from doap.errors import ArgumentError, DataError
from doap.files import OutputLock, make_folder
from doap.images import list_images
from doap.scale.extractor import Extractor, Stored, open_extractor
from doap.scale.features import REMOVED, DamagedPart, FailedImage, FeatureSet, PartWriter, make_table
from doap.scale.image_folder import ImageFolder
from doap.scale.local import extract_in_process, extract_locally
from doap.scale.stages import make_portable, make_stages
from doap.text import counted
from doap.types import Progress, no_progress

Engine = Literal["local", "ray"]
"""Extraction engine: processes on this machine, or Ray."""
MakeRows = Callable[[Sequence[str]], Generator[pa.Table]]
"""A configured engine: yields the rows of the named images, several at a time and in any order."""

_Result = TypeVar("_Result")
# Starting a worker process takes as long as extracting about this many images.
_IMAGES_PER_WORKER = 16


@dataclass(frozen=True)
class ExtractionSummary:
    """Result of `extract_folder`.

    Attributes:
        out: Folder of the feature set.
        extracted: Number of images that this run extracted.
        reused: Number of images that an earlier run extracted and that have not changed since.
        removed: Number of images that are no longer in the folder.
        skipped: Images without features, and the reasons.
        seconds: Duration of the run.
        images_per_second: Number of images processed per second, including skipped ones.
        masks: Number of images with a mask; None without a folder of masks.
    """

    out: Path
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
    descriptor: str | Path | Describer = "doap-128",
    *,
    detector: str | Detector | None = None,
    max_keypoints: int = 2048,
    masks: str | Path | None = None,
    tile: int | None = None,
    stored: Stored | None = None,
    engine: Engine = "local",
    workers: int | None = None,
    address: str | None = None,
    device: str | torch.device = "auto",
    precision: Precision = "auto",
    progress: Progress = no_progress,
) -> ExtractionSummary:
    """Extract the features of all images in a folder into a `FeatureSet`, as `doap.extract` does for one image.

    Resumable: only images that are new or have changed, or whose mask has, are extracted; all of them if a setting has
    changed. An image that cannot be read is skipped. Keypoints are in the pixels as stored in the file. More than one
    worker, and Ray, start other processes. A script then needs `if __name__ == "__main__":`.

    >>> import doap
    >>> doap.extract_folder("photos", "features").extracted  # doctest: +SKIP
    1024

    Args:
        images: Folder of images, searched recursively. Every machine of a cluster must see it.
        out: Folder of the feature set. A second run that writes to it at the same time is refused.
        descriptor: Name, file or object; see `doap.load`. Other processes require an object that can be pickled.
        detector: Name or object; None is the descriptor's own detector or SIFT.
        max_keypoints: Maximum number of keypoints per image.
        masks: Folder of masks: keypoints of `a/b.jpg` are detected where `a/b.jpg.png` is not zero, if it exists.
        tile: Side in pixels of the tiles in which larger images are processed; see `doap.extract`.
        stored: Storage type of real descriptors: `float32`, `float16` (default) or `uint8`.
        engine: `local` for this machine, `ray` for Ray Data on this machine or a cluster.
        workers: Number of worker processes; 1 extracts in the calling process. None is one per processor, or fewer
            for a few images. A cluster ignores it.
        address: Address of a Ray cluster; None starts Ray on this machine.
        device: Device of the network: "auto", "cpu", "cuda", "cuda:N" or "mps". Ray requests GPUs for "cuda", and for
            "auto" if the cluster has any.
        precision: Arithmetic of the network: "auto", "float32" or "bfloat16".
        progress: Called with the number of processed images, the number of images, and the speed.
    """
    folder = ImageFolder(Path(images).absolute(), None if masks is None else Path(masks).absolute())
    names = list_names(folder.images)
    extractor = open_extractor(
        descriptor,
        detector=detector,
        max_keypoints=max_keypoints,
        tile=tile,
        stored=stored,
        # The machine that starts Ray may have no GPU, and the fingerprint does not depend on the device.
        device="cpu" if engine == "ray" else device,
        precision=precision,
    )
    make_rows = _make_engine(folder, extractor, workers, engine, address, str(device))
    with OutputLock(make_folder(Path(out)), inside=True):
        return _update(folder, names, Path(out), extractor, make_rows, progress)[1]


def use_features(
    folder: ImageFolder,
    names: Sequence[str],
    out: Path,
    extractor: Extractor,
    workers: int | None,
    total: int,
    progress: Progress,
    action: Callable[[FeatureSet, ExtractionSummary], _Result],
) -> _Result:
    """Bring a feature set up to date with the named images of a folder, and run an action that reads it.

    The progress counts images among a `total` that includes the steps of the action. If a part of the set is damaged,
    it is deleted, its images are extracted again and the action is repeated. No other run can change the set meanwhile.
    """
    make_rows = _make_engine(folder, extractor, workers)

    def report(done: int, _: int, text: str) -> None:
        progress(done, total, text)

    with OutputLock(make_folder(out), inside=True):
        while True:
            try:
                features, summary = _update(folder, names, out, extractor, make_rows, report)
                if not features.names:
                    reason = features.failed[names[0]]
                    raise DataError(
                        f"{folder.images}: none of {counted(len(names), 'image')} can be read. The first one: {reason}"
                    )
                return action(features, summary)
            except DamagedPart as damage:
                damage.part.unlink()


def list_names(images: Path) -> list[str]:
    """Return the names of the images in a folder: their paths inside it, sorted."""
    return [path.relative_to(images).as_posix() for path in list_images(images)]


def _update(
    folder: ImageFolder, names: Sequence[str], out: Path, extractor: Extractor, make_rows: MakeRows, progress: Progress
) -> tuple[FeatureSet, ExtractionSummary]:
    """Bring a feature set up to date with the named images of a folder."""
    start = time.perf_counter()
    with PartWriter(out, extractor.info) as writer:
        progress(0, len(names), "comparing checksums")
        known = FeatureSet(out).checksums
        missing = _find_missing(folder, names, known)
        folder.check_masks(missing)
        removed = sorted(known.keys() - set(names))
        if removed:
            writer.add(make_table([FailedImage(name, "", REMOVED) for name in removed], extractor.info))
        progress(len(names) - len(missing), len(names), "starting")
        processed, extracted, engine_start = 0, 0, time.perf_counter()
        # An empty list does not start the engine.
        with closing(make_rows(missing)) as tables:
            for table in tables if missing else ():
                writer.add(table)
                processed += len(table)
                extracted += table["error"].null_count
                speed = processed / (time.perf_counter() - engine_start)
                progress(len(names) - len(missing) + processed, len(names), f"{speed:,.1f} images/s")
    features = FeatureSet(out)
    for part in features.superseded:
        part.unlink()
    seconds = time.perf_counter() - start
    reused = len(features) - extracted
    masks = None if folder.masks is None else sum(folder.mask(name) is not None for name in names)
    return features, ExtractionSummary(
        out, extracted, reused, len(removed), features.failed, seconds, processed / seconds, masks
    )


def _make_engine(
    folder: ImageFolder,
    extractor: Extractor,
    workers: int | None,
    engine: Engine = "local",
    address: str | None = None,
    device: str = "auto",
) -> MakeRows:
    """Return an engine. The local one runs in the calling process for one worker, and starts processes for more."""
    check_choice(engine, get_args(Engine), name="engine")
    if workers is not None and workers < 1:
        raise ArgumentError(f"workers: expected 1 or more, got {workers}.")
    if address is not None and engine != "ray":
        raise ArgumentError(f"address: only the ray engine takes an address, got {address!r}.")
    detect, describe = make_stages(folder, extractor)
    if engine == "local" and workers == 1:
        return partial(extract_in_process, detect=detect, describe=describe)
    portable, processors = make_portable(detect, extractor.reopen), os.cpu_count() or 1
    if engine == "ray":
        from doap.scale.ray import extract_with_ray

        second = make_portable(describe.to("cpu"), extractor.reopen)
        settings = (portable, second, workers or processors, address, device)
        return lambda names: extract_with_ray(names, *settings)

    def make_rows(names: Sequence[str]) -> Generator[pa.Table]:
        processes = workers or min(processors, 1 + len(names) // _IMAGES_PER_WORKER)
        if processes == 1:
            return extract_in_process(names, detect, describe)
        return extract_locally(names, portable, describe, processes)

    return make_rows


def _find_missing(folder: ImageFolder, names: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """Return the images that are new, have changed (or their mask has), or could not be read before."""
    stored = [name for name in names if known.get(name)]
    # Reading and hashing release the interpreter lock.
    with ThreadPoolExecutor() as pool:
        current = dict(zip(stored, pool.map(partial(_checksum, folder), stored), strict=True))
    return [name for name in names if name not in current or current[name] != known[name]]


def _checksum(folder: ImageFolder, name: str) -> str | None:
    try:
        return folder.checksum(name)
    except OSError:
        return None
