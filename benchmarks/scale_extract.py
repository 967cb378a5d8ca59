"""Compare the extraction engines with bare loops over the same stages, images and settings.

    python benchmarks/scale_extract.py PHOTOS --images 200 --out results/scale/extract.json

    one process      read, detect, cut, describe and write, four images at a time, one thread
    two processes    two such loops with half of the images each, in processes like those of the engines
    local, ray       `doap extract --engine`, two workers
    local, bfloat16  the same with the network in bfloat16

`--ways local ray` measures only these beside the two bare processes.

Times run from the call to the last byte on disk and include process start-up. Starting and stopping Ray is timed
separately, because it does not depend on the number of images and a cluster is already running. One process is measured
once, the other variants in turn in every round; ratios are ratios of medians.
"""

from __future__ import annotations

import multiprocessing
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import ray
import record

from doap._support.device import Precision
from doap._support.processes import tune_allocator
from doap.collection import Engine, FeatureSet, extract_folder
from doap.collection.extractor import open_extractor
from doap.collection.features import PartWriter
from doap.collection.image_folder import ImageFolder, Source
from doap.collection.stages import IMAGES_PER_BATCH, make_stages, prepare_worker
from doap.images import list_images
from doap.images.read import read_grey, shrink

WORKERS = 2
WAYS = ["local", "local, bfloat16", "ray"]


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("photos", type=Path, help="folder of images")
    parser.add_argument("--descriptor", default="doap-128", help="descriptor")
    parser.add_argument("--images", type=int, default=200, help="number of images, taken at regular intervals")
    parser.add_argument("--max-keypoints", type=int, default=1000, help="maximum number of keypoints per image")
    parser.add_argument("--rounds", type=int, default=3, help="number of timed repetitions")
    parser.add_argument(
        "--without-one",
        action="store_true",
        help="skip the single process, which takes as long as the other variants together",
    )
    parser.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS, help="what to compare with two processes")
    parser.add_argument("--longest-side", type=int, help="shrink larger photos to this many pixels")
    options = parser.parse_args()
    # As in the command: the local engine runs the network in this process.
    tune_allocator()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        available = list_images(options.photos)
        for path in available[:: max(1, len(available) // options.images)][: options.images]:
            copy_photo(path, work / "images" / path.relative_to(options.photos), options.longest_side)
        common = {"images": work / "images", "name": options.descriptor, "max_keypoints": options.max_keypoints}
        ways: dict[str, Callable[[Path], object]] = {
            "one process": lambda out: in_processes(1, out=out, **common),
            "two processes": lambda out: in_processes(WORKERS, out=out, **common),
            "local": lambda out: by_engine("local", "float32", out=out, **common),
            "local, bfloat16": lambda out: by_engine("local", "bfloat16", out=out, **common),
            "start of Ray": lambda _: ray.init(
                "local", num_cpus=WORKERS, include_dashboard=False, logging_level="ERROR"
            ),
            "ray": lambda out: by_engine("ray", "float32", out=out, **common),
            "stop of Ray": lambda _: ray.shutdown(),
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(options.rounds):
            for name, way in ways.items():
                if name == "one process" and (number or options.without_one):
                    continue
                unused = name in WAYS and name not in options.ways
                if unused or ("Ray" in name and "ray" not in options.ways):
                    continue
                start = time.perf_counter()
                way(work / f"{name} {number}")
                seconds[name].append(time.perf_counter() - start)
                print(f"{number} {name:16} {seconds[name][-1]:6.1f} s", flush=True)
        images, descriptors = totals(work / f"{options.ways[0]} 0")
    medians = {name: statistics.median(times) for name, times in seconds.items() if times and "Ray" not in name}
    figures = {
        "images": images,
        "descriptors": descriptors,
        "descriptor": options.descriptor,
        "max_keypoints": options.max_keypoints,
        "longest side": options.longest_side,
        "seconds": seconds,
        "images/s": {name: images / median for name, median in medians.items()},
        "descriptors/s": {name: descriptors / median for name, median in medians.items()},
        "speed over two bare processes": {name: medians["two processes"] / median for name, median in medians.items()},
    }
    print(figures["images/s"], figures["speed over two bare processes"])
    record.write(options.out, options.seed, figures)


def copy_photo(path: Path, target: Path, longest_side: int | None) -> None:
    """Copy a photo, shrunk if it is larger."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if longest_side is None:
        shutil.copy(path, target)
        return
    pixels, _ = shrink(read_grey(path), longest_side)
    target.with_suffix(".png").write_bytes(cv2.imencode(".png", pixels)[1].tobytes())


def in_processes(count: int, *, images: Path, out: Path, name: str, max_keypoints: int) -> None:
    """Run bare loops in separate processes, each with a share of the images and its own folder."""
    paths = [path.relative_to(images).as_posix() for path in list_images(images)]
    context = multiprocessing.get_context("spawn")
    loops = [
        context.Process(target=bare_loop, args=(images, paths[one::count], out / str(one), name, max_keypoints))
        for one in range(count)
    ]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join()
        assert not loop.exitcode


def bare_loop(images: Path, names: list[str], out: Path, name: str, max_keypoints: int) -> None:
    """Run the two stages and the writer on some images."""
    prepare_worker()
    extractor = open_extractor(name, max_keypoints=max_keypoints, device="cpu", precision="float32")
    detect, describe = make_stages(ImageFolder.open(images), extractor)
    out.mkdir(parents=True)
    with PartWriter(out, extractor.info) as writer:
        for first in range(0, len(names), IMAGES_PER_BATCH):
            writer.add(describe([detect(Source(one)) for one in names[first : first + IMAGES_PER_BATCH]]))


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


def totals(out: Path) -> tuple[int, int]:
    """Return the numbers of images and descriptors in a feature set."""
    counts = [len(image.features) for image in FeatureSet(out).stream()]
    return len(counts), sum(counts)


if __name__ == "__main__":
    main()
