"""Features of a folder of images: what is missing is found out, an engine makes it, and parts are written."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa

from doap.checks import check_choice
from doap.describer import Describer, DetectsKeypoints
from doap.detectors import Detector, sift
from doap.errors import ArgumentError
from doap.files import sha256
from doap.images import list_images
from doap.scale.extractor import Stored, extractor_of
from doap.scale.features import REMOVED, FailedImage, FeatureSet, PartWriter, rows_table
from doap.scale.local import extract_locally
from doap.scale.stages import Describe, Look, make_stages
from doap.types import Progress, no_progress

Engine = Literal["local", "ray"]


@dataclass(frozen=True)
class Extracted:
    """What a run did.

    Attributes:
        out: the folder of features.
        written: images whose features this run made.
        kept: images that had been looked at before and have not changed since.
        failed: images without features, of this run or kept, and why.
        removed: images that are in the folder no more.
        seconds: of the run.
        images_per_second: that were looked at, with or without success.
    """

    out: Path
    written: int
    kept: int
    failed: dict[str, str]
    removed: int
    seconds: float
    images_per_second: float


def extract_folder(
    images: str | Path,
    out: str | Path,
    descriptor: Describer,
    *,
    descriptor_name: str,
    detector: Detector | None = None,
    max_keypoints: int = 2048,
    stored: Stored | None = None,
    engine: Engine = "local",
    workers: int | None = None,
    address: str | None = None,
    reopen: Callable[[], Describer] | None = None,
    progress: Progress = no_progress,
) -> Extracted:
    """Extract the features of a folder of images, as `doap.extract` makes them, into a `FeatureSet`.

    Only what is missing or has changed is made: images by their checksum, all of them if the descriptor, the detector
    or a setting is another. So the same call resumes a run that was interrupted or killed. An image that cannot be
    read is recorded with its reason.

    Both engines start processes of their own. A script that calls this needs `if __name__ == "__main__":`.

    Args:
        images: the folder; on a cluster, one that all machines see.
        out: the folder to write. One run to a folder at a time; a second one is not noticed.
        descriptor, most: as for `doap.extract`.
        descriptor_name: kept with the features, for those who want to describe more images in the same way.
        detector: where to look; if not given, the descriptor's own or SIFT's blobs.
        stored: what real descriptors are written as, `float16` if not given. `uint8` takes half of that.
        engine: `local` is this machine; `ray` is Ray Data, on this machine or a cluster.
        workers: processes that look at images; as many as there are processors if not given. A cluster decides itself.
        address: of a Ray cluster; else Ray is started here, and stopped at the end.
        reopen: makes the descriptor in another process, for one that cannot be pickled.
        progress: told the images done, how many there are, and how many are done in a second.
    """
    check_choice(engine, get_args(Engine), name="engine")
    if workers is not None and workers < 1:
        raise ArgumentError(f"workers: expected 1 or more, got {workers}")
    if address is not None and engine != "ray":
        raise ArgumentError(f"address: expected none without the engine ray, got {address!r}")
    begin = time.perf_counter()
    images, out = Path(images).absolute(), Path(out)
    names = [path.relative_to(images).as_posix() for path in list_images(images)]
    detector = detector or (descriptor.detector if isinstance(descriptor, DetectsKeypoints) else sift())
    extractor = extractor_of(
        descriptor, descriptor_name=descriptor_name, detector=detector, max_keypoints=max_keypoints, stored=stored
    )
    look, describe = make_stages(images, descriptor, detector, extractor, reopen, network_travels=engine == "ray")
    workers = workers or os.cpu_count() or 1
    with PartWriter(out, extractor) as writer:
        progress(0, len(names), "comparing with what is there")
        known = FeatureSet(out).checksums
        missing = _missing(images, names, known)
        removed = sorted(known.keys() - set(names))
        if removed:
            writer.add(rows_table([FailedImage(name, "", REMOVED) for name in removed], extractor))
        kept, looked_at, written, start = len(names) - len(missing), 0, 0, time.perf_counter()
        with closing(_rows(missing, look, describe, engine, workers, address)) as tables:
            for table in tables:
                writer.add(table)
                looked_at += len(table)
                written += table["error"].null_count
                speed = looked_at / (time.perf_counter() - start)
                progress(kept + looked_at, len(names), f"{speed:,.1f} images/s")
    done = FeatureSet(out)
    for part in done.superseded:
        part.unlink()
    seconds = time.perf_counter() - begin
    return Extracted(out, written, kept, done.failed, len(removed), seconds, looked_at / seconds)


def _rows(
    names: Sequence[str], look: Look, describe: Describe, engine: Engine, workers: int, address: str | None
) -> Generator[pa.Table]:
    """Rows of images, by an engine, which is not even started for none."""
    if not names:
        return
    if engine == "local":
        yield from extract_locally(names, look, describe, workers)
    else:
        from doap.scale.ray import extract_with_ray

        yield from extract_with_ray(names, look, describe, workers, address)


def _missing(images: Path, names: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """Those of the images that are new, or have other bytes than they had; one that was never read is new."""
    there = [name for name in names if known.get(name)]
    # Reading and adding up leave the interpreter to other threads.
    with ThreadPoolExecutor() as pool:
        now = dict(zip(there, pool.map(_checksum, (images / name for name in there)), strict=True))
    return [name for name in names if name not in now or now[name] != known[name]]


def _checksum(path: Path) -> str | None:
    try:
        return sha256(path)
    except OSError:
        return None
