"""Compare the extraction engines with bare loops over the same stages, images and settings.

    python benchmarks/scale_extract.py PHOTOS --images 200 --out results/scale/extract.json

    two processes    read, detect, cut, describe and write, in two bare loops with half of the images each
    local, ray       `doap extract --engine`, two workers
    local, bfloat16  the same with the network in bfloat16

Times run from the call to the last byte on disk and include process start-up, but not the start of Ray: a cluster is
already running. The variants are measured in turn in every round; ratios are ratios of medians.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
import record

from doap._support.device import Precision
from doap._support.processes import begin_worker, tune_allocator
from doap.collection import Engine, FeatureSet, extract_folder
from doap.collection.extractor import open_extractor
from doap.collection.features import PartWriter
from doap.collection.image_folder import ImageFolder
from doap.collection.local import IMAGES_PER_BATCH, ImageExtractor
from doap.collection.storage import StoredFile
from doap.images import list_images

WORKERS = 2


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("photos", type=Path, help="folder of images")
    parser.add_argument("--descriptor", default="doap-128", help="descriptor")
    parser.add_argument("--images", type=int, default=200, help="number of images, taken at regular intervals")
    parser.add_argument("--max-keypoints", type=int, default=1000, help="maximum number of keypoints per image")
    parser.add_argument("--rounds", type=int, default=3, help="number of timed repetitions")
    options = parser.parse_args()
    # As in the command: the local engine runs the network in this process.
    tune_allocator()
    ray.init("local", num_cpus=WORKERS, include_dashboard=False, logging_level="ERROR")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        available = list_images(options.photos)
        for path in available[:: max(1, len(available) // options.images)][: options.images]:
            target = work / "images" / path.relative_to(options.photos)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        common = {"images": work / "images", "name": options.descriptor, "max_keypoints": options.max_keypoints}
        ways: dict[str, Callable[[Path], object]] = {
            "two processes": lambda out: in_processes(out=out, **common),
            "local": lambda out: by_engine("local", "float32", out=out, **common),
            "local, bfloat16": lambda out: by_engine("local", "bfloat16", out=out, **common),
            "ray": lambda out: by_engine("ray", "float32", out=out, **common),
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(options.rounds):
            for name, way in ways.items():
                start = time.perf_counter()
                way(work / f"{name} {number}")
                seconds[name].append(time.perf_counter() - start)
                print(f"{number} {name:16} {seconds[name][-1]:6.1f} s", flush=True)
        counts = [len(image.features) for image in FeatureSet(work / "local 0").stream()]
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    figures: dict[str, Any] = {
        "images": len(counts),
        "descriptors": sum(counts),
        "descriptor": options.descriptor,
        "max_keypoints": options.max_keypoints,
        "seconds": seconds,
        "images/s": {name: len(counts) / median for name, median in medians.items()},
        "descriptors/s": {name: sum(counts) / median for name, median in medians.items()},
        "speed over two bare processes": {name: medians["two processes"] / median for name, median in medians.items()},
    }
    print(figures["images/s"], figures["speed over two bare processes"])
    record.write(options.out, options.seed, figures)


def in_processes(*, images: Path, out: Path, name: str, max_keypoints: int) -> None:
    """Run bare loops in separate processes, each with a share of the images and its own folder."""
    paths = [path.relative_to(images).as_posix() for path in list_images(images)]
    context = multiprocessing.get_context("spawn")
    loops = [
        context.Process(target=bare_loop, args=(images, paths[one::WORKERS], out / str(one), name, max_keypoints))
        for one in range(WORKERS)
    ]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join()
        assert not loop.exitcode


def bare_loop(images: Path, names: list[str], out: Path, name: str, max_keypoints: int) -> None:
    """Extract some images and write their rows."""
    begin_worker(os.environ)
    opened = open_extractor(name, max_keypoints=max_keypoints, device="cpu", precision="float32")
    extract = ImageExtractor(ImageFolder.open(images), opened.extractor, opened.info)
    out.mkdir(parents=True)
    with PartWriter(out, opened.info) as writer:
        for first in range(0, len(names), IMAGES_PER_BATCH):
            writer.add(extract([StoredFile(one, "") for one in names[first : first + IMAGES_PER_BATCH]]))


def by_engine(engine: Engine, precision: Precision, *, images: Path, out: Path, name: str, max_keypoints: int) -> None:
    """Run one of the engines."""
    extract_folder(
        images,
        out,
        name,
        max_keypoints=max_keypoints,
        engine=engine,
        workers=WORKERS,
        device="cpu",
        precision=precision,
    )


if __name__ == "__main__":
    main()
