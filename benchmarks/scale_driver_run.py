"""The runs of `scale_driver.py`: extract folders with Ray, and print the processor time of this process as JSON.

All runs use one Ray and therefore the same worker processes. Each run is a JSON object with the keys of `extract`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import ray
import torch

import doap.scale.ray as engine
from doap.images import frames_from_arrays
from doap.scale import extract_folder
from doap.scale.features import PartWriter

IDLE_AFTER, IDLE_SECONDS = 10, 30
received: list[int] = []


@dataclass(frozen=True)
class SleepyDetector:
    """Returns the same frames for every image, after some seconds in a process of Ray."""

    seconds: float
    home: int
    name: str = "sleepy"
    magnification: float = 6.0

    def detect(self, _: Any, max_keypoints: int | None = None) -> tuple[Any, Any]:
        if os.getpid() != self.home:
            time.sleep(self.seconds)
        count = max_keypoints or 0
        frames = frames_from_arrays(np.full((count, 2), 8.0), np.full(count, 3.0))
        return frames, np.ones(count, np.float32)


class ConstantDescriber:
    """Returns the same descriptor for every frame."""

    patch_size, kind, dim, extent = 32, "real", 128, 1.0

    def describe(self, patches: torch.Tensor) -> torch.Tensor:
        return torch.full((len(patches), self.dim), self.dim**-0.5)

    def describe_frames(self, _: Any, frames: Any) -> torch.Tensor:
        return torch.full((len(frames), self.dim), self.dim**-0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder that does not exist")
    parser.add_argument("runs", nargs="+", type=json.loads)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--address", default="local", help="a Ray that is running; it determines the workers")
    options = parser.parse_args()
    count_bytes()
    own = {"num_cpus": options.workers, "include_dashboard": False} if options.address == "local" else {}
    ray.init(options.address, log_to_driver=False, logging_level="ERROR", **own)
    # The script also measures versions that use Ray Data.
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    for run in options.runs:
        figures = extract(out=options.out, **run)
        shutil.rmtree(options.out)
        print(json.dumps(figures), flush=True)


def extract(
    images: str,
    out: Path,
    max_keypoints: int,
    descriptor: str | None = None,
    sleep: float = 0,
    images_per_task: int | None = None,
    tasks_per_worker: int | None = None,
) -> dict[str, Any]:
    """Extract a folder; return the time and the processor time from the first task to the last result.

    Args:
        images: Folder of images.
        out: Folder of the features.
        max_keypoints: Number of keypoints per image.
        descriptor: Real descriptor. None returns arrays of the usual size at once.
        sleep: Seconds that the detector takes, to measure an idle driver.
        images_per_task, tasks_per_worker: Settings of the engine.
    """
    settings = {"IMAGES_PER_PART": images_per_task, "TASKS_PER_WORKER": tasks_per_worker}
    before = {name: getattr(engine, name) for name, value in settings.items() if value is not None}
    vars(engine).update({name: settings[name] for name in before})
    if descriptor:
        extractor: dict[str, Any] = {"descriptor": descriptor}
    else:
        extractor = {"descriptor": ConstantDescriber(), "detector": SleepyDetector(sleep, os.getpid())}
    # Wall time, processor time, number of images
    moments: list[tuple[float, float, int]] = []
    idle: list[float] = []
    if sleep:
        threading.Thread(target=measure_idle, args=(idle,), daemon=True).start()
    received.clear()
    summary = extract_folder(
        images,
        out,
        max_keypoints=max_keypoints,
        engine="ray",
        progress=lambda done, *_: moments.append((time.perf_counter(), time.process_time(), done)),
        **extractor,
    )
    vars(engine).update(before)
    assert not summary.skipped, next(iter(summary.skipped.values()))
    start, first, last = (moments[number] for number in (1, 2, -1))
    return {
        "images": summary.extracted,
        "seconds": last[0] - start[0],
        "driver seconds": last[1] - start[1],
        "bytes": sum(received),
        "parts": len(list(out.glob("*.parquet"))),
        "images/s": (last[2] - first[2]) / (last[0] - first[0]) if last[2] > first[2] else None,
        "idle share": idle[0] if idle else None,
    }


def count_bytes() -> None:
    """Count the bytes of the rows that reach the writer of this process."""
    for name in {"add", "commit"} & set(dir(PartWriter)):
        original = getattr(PartWriter, name)

        def counted(self: PartWriter, rows: pa.Table, original: Any = original) -> Any:
            received.append(rows.nbytes)
            return original(self, rows)

        setattr(PartWriter, name, counted)


def measure_idle(idle: list[float]) -> None:
    """Measure the processor time per second while all workers sleep."""
    time.sleep(IDLE_AFTER)
    start, used = time.perf_counter(), time.process_time()
    time.sleep(IDLE_SECONDS)
    idle.append((time.process_time() - used) / (time.perf_counter() - start))


if __name__ == "__main__":
    main()
