"""What passes through the process that starts an extraction with Ray: processor time and bytes per image.

    python benchmarks/scale_driver.py PHOTOS --out results/scale/driver.json

Two runs with different numbers of photos, each in a new process with a Ray of its own, give the cost per image without
that of starting and stopping. The driver limits the number of workers to the images per second that it can handle,
divided by the images per second of one worker.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import record

from doap.images import list_images

RUN = """
import json, sys, time
from doap.scale import extract_folder
from doap.scale.features import PartWriter

def count(name):
    original = getattr(PartWriter, name)
    def counted(self, rows):
        received.append(rows.nbytes)
        return original(self, rows)
    setattr(PartWriter, name, counted)

if __name__ == "__main__":
    received = []
    for name in {"add", "commit"} & set(dir(PartWriter)):
        count(name)
    images, out, descriptor, keypoints, workers = sys.argv[1:]
    begin, used = [], time.process_time()

    def report(done, total, text):
        if done:
            begin.append((time.perf_counter(), done))

    summary = extract_folder(
        images, out, descriptor, max_keypoints=int(keypoints), engine="ray", workers=int(workers), progress=report
    )
    (first, done), (last, total) = begin[0], begin[-1]
    print(json.dumps({
        "images": summary.extracted,
        "driver seconds": time.process_time() - used,
        "bytes": sum(received),
        "images/s": (total - done) / (last - first) if last > first else None,
    }))
"""


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("photos", type=Path, help="folder of images")
    parser.add_argument("--descriptor", default="rootsift", help="descriptor")
    parser.add_argument("--max-keypoints", type=int, default=2048, help="maximum number of keypoints per image")
    parser.add_argument("--images", type=int, nargs=2, default=[100, 500], help="numbers of photos of the two runs")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4], help="numbers of worker processes")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        available = list_images(options.photos)
        for count in options.images:
            for number, path in enumerate(available[:count]):
                target = work / str(count) / f"{number:05}{path.suffix}"
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(path, target)
        for workers in options.workers:
            few, many = (measure(work, count, workers, options) for count in options.images)
            images = many["images"] - few["images"]
            seconds = (many["driver seconds"] - few["driver seconds"]) / images
            rows.append(
                {
                    "workers": workers,
                    "images/s": many["images/s"],
                    "driver ms per image": 1000 * seconds,
                    "driver share of a processor": seconds * many["images/s"],
                    "bytes per image": many["bytes"] / many["images"],
                    "workers at which the driver is busy": workers / (seconds * many["images/s"]),
                }
            )
            print(rows[-1], flush=True)
    settings = {"descriptor": options.descriptor, "max_keypoints": options.max_keypoints}
    record.write(options.out, options.seed, {**settings, "table": rows})


def measure(work: Path, count: int, workers: int, options: Any) -> dict[str, Any]:
    """Run an extraction in a new process."""
    script, out = work / "run.py", work / f"features-{count}-{workers}"
    script.write_text(RUN)
    words = [work / str(count), out, options.descriptor, str(options.max_keypoints), str(workers)]
    ran = subprocess.run([sys.executable, script, *words], capture_output=True, text=True, check=True)
    figures: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return figures


if __name__ == "__main__":
    main()
