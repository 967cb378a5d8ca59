"""Train for some minutes and extract thousands of images, and state how memory and open files develop.

    python benchmarks/soak.py --minutes 30 --images 20000 --out results/soak.json

`doap train` and `doap extract` run as commands, one after the other. The images are generated: 160 × 120 pixels, in
many folders. Memory (RSS) and open files of the process and its children are read from /proc. The slopes are those of
a line through all samples after the warm-up, the first fifth of a run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import psutil
import record

from doap.collection import FeatureSet
from doap.data import SetWriter, UnitGroups
from doap.descriptor import Descriptor
from doap.training import read_log

HEIGHT, WIDTH = 120, 160
WARM_UP = 0.2
"""Share of a run whose samples do not count for the slopes."""
PER_FOLDER = 1000
RECIPE = """
[schedule]
minutes = {minutes}
[data]
batch_size = 64
[network]
name = "fast"
dim = 32
[run]
log_every = 5
validate_every = 50
checkpoint_every = 25
"""


class Sample(NamedTuple):
    """State of a command: seconds since its start, memory in MB, open files, and units of work done."""

    seconds: float
    memory: float
    files: int
    done: int


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="duration of training")
    parser.add_argument("--images", type=int, default=20000, help="number of images to extract")
    parser.add_argument("--seconds", type=float, default=2, help="interval of the samples")
    parser.add_argument("--only", choices=["train", "extract"], help="run one of the two")
    options = parser.parse_args()
    figures: dict[str, Any] = {"sample interval, s": options.seconds, "warm-up, share": WARM_UP}
    with tempfile.TemporaryDirectory() as folder:
        for name, run in {"train": soak_training, "extract": soak_extraction}.items():
            if options.only in (None, name):
                figures[name] = run(Path(folder), options)
                print(name, figures[name], flush=True)
                record.write(options.out, options.seed, figures)


def soak_training(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Train a small network on random patches."""
    random = np.random.default_rng(options.seed)
    with SetWriter(folder / "set", 32, {}, []) as writer:
        for scene in "abcd":
            groups = UnitGroups(
                np.full(500, 2), scene, np.zeros((500, 3), np.float32), scene, np.empty((0, 2), np.int64)
            )
            writer.add(scene, random.integers(0, 256, (1000, 32, 32), np.uint8), groups)
        writer.finish()
    (folder / "recipe.toml").write_text(RECIPE.format(minutes=options.minutes))
    out = folder / "run"
    words = ["train", folder / "recipe.toml", "--data", folder / "set", "--out", out, "--device", "cpu"]
    log = out / "log.jsonl"
    samples, code = watch(words, lambda: read_log(log)[-1]["step"] if log.exists() and read_log(log) else 0, options)
    return summarise(samples, code, "steps", 1000)


def soak_extraction(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Generate images and extract their features."""
    write_images(folder / "images", options.images, options.seed)
    Descriptor.build("fast", dim=32).save(folder / "fast.safetensors")
    out = folder / "features"
    words = ["extract", folder / "images", "--out", out, "--descriptor", folder / "fast.safetensors", "--workers", "1"]
    rows = {"parts": 0, "rows": 0}

    def count() -> int:
        # Rows reach the disk in parts. Only new parts are opened.
        import pyarrow.parquet as pq

        parts = sorted(out.glob("part-*"), key=lambda part: part.stat().st_mtime_ns)
        rows["rows"] += sum(pq.read_metadata(part).num_rows for part in parts[rows["parts"] :])
        rows["parts"] = len(parts)
        return rows["rows"]

    samples, code = watch([*words, "--max-keypoints", "16"], count, options)
    stored = FeatureSet(out)
    found = {"images requested": options.images, "images stored": len(stored), "images failed": len(stored.failed)}
    return found | summarise(samples, code, "images", 1000)


def write_images(folder: Path, count: int, seed: int) -> None:
    """Write small textured images: crops of one texture, turned upside down or mirrored."""
    random = np.random.default_rng(seed)
    texture = cv2.GaussianBlur(random.normal(size=(1000, 1000)).astype(np.float32), (0, 0), 3)
    texture = np.clip(127 + 40 * texture / texture.std(), 0, 255).astype(np.uint8)
    for number in range(count):
        path = folder / f"{number // PER_FOLDER:03}" / f"{number:06}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        row, column = random.integers(0, 1000 - HEIGHT), random.integers(0, 1000 - WIDTH)
        crop = texture[row : row + HEIGHT, column : column + WIDTH]
        cv2.imwrite(str(path), cv2.flip(crop, int(random.integers(-1, 2))), [cv2.IMWRITE_PNG_COMPRESSION, 1])


def watch(words: list[Any], count: Callable[[], int], options: argparse.Namespace) -> tuple[list[Sample], int]:
    """Run a command and sample it; return the samples and the exit code."""
    command = [sys.executable, "-m", "doap", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    start, samples = time.perf_counter(), []
    while True:
        try:
            code = process.wait(options.seconds)
            return samples, code
        except subprocess.TimeoutExpired:
            now = time.perf_counter() - start
            memory, files = measure(process.pid)
            if files:
                samples.append(Sample(now, memory, files, count()))


def measure(parent: int) -> tuple[float, int]:
    """Return the memory in MB and the number of open files of a process and its children; 0 if it has ended."""
    memory, files = 0.0, 0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(parent)
        for one in [process, *process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                memory += one.memory_info().rss / 1e6
                files += one.num_fds()
    return memory, files


def summarise(samples: list[Sample], code: int, unit: str, per: int) -> dict[str, Any]:
    """Return the slopes after the warm-up, and the values at its end and at the end of the run."""
    steady = [sample for sample in samples if sample.seconds >= WARM_UP * samples[-1].seconds]
    first, last = steady[0], steady[-1]
    done = last.done - first.done
    hourly = float(np.polyfit([one.seconds / 3600 for one in steady], [one.memory for one in steady], 1)[0])
    hours = (last.seconds - first.seconds) / 3600
    return {
        "exit code": code,
        "minutes": round(samples[-1].seconds / 60, 1),
        unit: last.done,
        "samples": len(samples),
        "memory at the first sample, MB": round(samples[0].memory, 1),
        "memory after warm-up, MB": round(first.memory, 1),
        "memory at the end, MB": round(last.memory, 1),
        "memory at most, MB": round(max(one.memory for one in samples), 1),
        "slope, MB per hour": round(hourly, 2),
        f"slope, MB per {per:,} {unit}": round(hourly * hours / done * per, 3) if done else None,
        "open files after warm-up": first.files,
        "open files at the end": last.files,
        "open files at most": max(one.files for one in samples),
        "curve (s, MB, files, done)": [
            [round(one.seconds), round(one.memory, 1), one.files, one.done]
            for one in samples[:: max(1, len(samples) // 40)]
        ],
    }


if __name__ == "__main__":
    main()
