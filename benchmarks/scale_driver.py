"""What passes through the process that starts an extraction with Ray: processor time and bytes per image.

    python benchmarks/scale_driver.py PHOTOS --out results/scale/driver.json

The runs are in a process of their own (`scale_driver_run.py`). Its processor time is that of all its threads, without
starting and stopping Ray. It hardly depends on how busy the machine is, unlike images per second.

- *Constant share*: all workers sleep in the detector. The processor time per second is that of an idle driver.
- *Cheap images*: a detector and a descriptor return arrays of the usual size at once. The difference of two runs with
  different numbers of images, less the constant share of the time that they take, is the cost per image. With tasks of
  one image, and as many tasks waiting as for `--waiting` workers, it is the cost of a task.
- *Photos*: RootSIFT of real photos with different numbers of workers.

The driver limits a run to W = (1 − constant share) / (cost per image × images per second of a worker) workers. The cost
per image is that of a task divided by its number of images, plus that of an image in a task of many. This assumes that
the cost of a task does not depend on the number of machines.

`--only-total` measures the cost per image with the tasks of the installed version only. Versions before the present
engine have no tasks that can be configured.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import record

from doap.images import list_images

KEYPOINTS = 1000
SLEEP_SECONDS, SLEEPING = 12, 8


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("photos", type=Path, help="folder of images")
    parser.add_argument("--descriptor", default="rootsift", help="descriptor of the photos")
    parser.add_argument("--images", type=int, default=120, help="number of photos")
    parser.add_argument("--cheap", type=int, nargs=2, default=[400, 2000], help="numbers of cheap images")
    parser.add_argument("--tasks", type=int, nargs=2, default=[400, 2000], help="numbers of tasks of one cheap image")
    parser.add_argument("--waiting", type=int, default=1000, help="number of waiting tasks per worker")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4], help="numbers of worker processes")
    parser.add_argument("--address", default="local", help="a Ray that is running, for all but the photos")
    parser.add_argument("--only-total", action="store_true", help="do not separate tasks and images")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        figures = measure_cheap_images(work, options)
        copy_photos(options.photos, work / "photos", options.images)
        rows = [measure_photos(work, options.descriptor, workers) for workers in options.workers]
    record.write(options.out, options.seed, {**figures, "descriptor": options.descriptor, "photos": rows})


def measure_cheap_images(work: Path, options: Any) -> dict[str, Any]:
    """Measure the constant share, and the costs of images and tasks."""
    # Tasks of one image, in a queue of the length that a large cluster has.
    single = {"images_per_task": 1, "tasks_per_worker": options.waiting}
    counts, tasks = options.cheap, [] if options.only_total else options.tasks
    # The first run starts the workers.
    first: dict[str, Any] = {"images": tiny_images(work, SLEEPING)}
    runs = [first, first | {"sleep": SLEEP_SECONDS}]
    runs += [{"images": tiny_images(work, count)} for count in counts]
    runs += [{"images": tiny_images(work, count), **single} for count in tasks]
    _, idle, *others = run(work, runs, "--address", options.address)
    share = idle["idle share"]
    figures = {"constant share": share, "keypoints": KEYPOINTS, "ms per image": cost(*others[:2], share)}
    if tasks:
        figures["images per task"] = others[1]["images"] / others[1]["parts"]
        figures |= {"waiting tasks": min(tasks[1], 2 * options.waiting), "ms per task": cost(*others[2:], share)}
    return figures | {"runs": [idle, *others]}


def cost(few: dict[str, Any], many: dict[str, Any], share: float) -> float:
    """Return the processor time of the driver per image in ms, without the constant share."""
    seconds = [one["driver seconds"] - share * one["seconds"] for one in (few, many)]
    return 1000 * (seconds[1] - seconds[0]) / (many["images"] - few["images"])


def tiny_images(work: Path, count: int) -> str:
    """Write copies of a small image."""
    folder = work / f"tiny-{count}"
    folder.mkdir(exist_ok=True)
    pixels = np.random.default_rng(0).integers(0, 255, (16, 16), dtype=np.uint8)
    content = cv2.imencode(".png", pixels)[1].tobytes()
    for number in range(count):
        (folder / f"{number:06}.png").write_bytes(content)
    return str(folder)


def copy_photos(photos: Path, out: Path, count: int) -> None:
    """Copy some photos to one folder."""
    out.mkdir()
    for number, path in enumerate(list_images(photos)[:count]):
        shutil.copyfile(path, out / f"{number:05}{path.suffix}")


def measure_photos(work: Path, descriptor: str, workers: int) -> dict[str, Any]:
    """Extract photos with some workers."""
    (one,) = run(work, [{"images": str(work / "photos"), "descriptor": descriptor}], "--workers", workers)
    return {
        "workers": workers,
        "images/s": one["images/s"],
        "driver share of a processor": one["driver seconds"] / one["seconds"],
        "bytes per image": one["bytes"] / one["images"],
    }


def run(work: Path, runs: list[dict[str, Any]], *arguments: object) -> list[dict[str, Any]]:
    """Extract in a new process; return the figures of the runs."""
    program = Path(__file__).with_name("scale_driver_run.py")
    plans = [json.dumps({"max_keypoints": KEYPOINTS} | one) for one in runs]
    words = [program, work / "features", *plans, *arguments]
    process = subprocess.Popen([sys.executable, *map(str, words)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    figures = []
    for line in process.stdout:
        print(line, end="", flush=True)
        if line.startswith("{"):
            figures.append(json.loads(line))
    assert not process.wait(), f"the run ended with {process.returncode}"
    return figures


if __name__ == "__main__":
    main()
