"""Train for some minutes and extract thousands of images, and state how memory and open files develop.

    python benchmarks/soak.py --minutes 30 --images 20000 --out results/soak.json

`doap train` and `doap extract` run as commands, one after the other, on random patches and on small generated images.
Memory (RSS) and open files of the process and its children are sampled. The slope is that of a line through the samples
after the warm-up, the first fifth of a run; the work is taken as even over the run.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

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


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="duration of training")
    parser.add_argument("--images", type=int, default=20000, help="number of images to extract")
    parser.add_argument("--seconds", type=float, default=2, help="interval of the samples")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        out = write_training(folder, options.minutes, options.seed)
        words = ["train", folder / "recipe.toml", "--data", folder / "set", "--out", out, "--device", "cpu"]
        samples = watch(words, options.seconds)
        figures = {"train": summarise(samples, "steps", read_log(out / "log.jsonl")[-1]["step"])}
        record.write(options.out, options.seed, figures)
        write_images(folder / "images", options.images, options.seed)
        Descriptor.build("fast", dim=32).save(folder / "fast.safetensors")
        words = ["extract", folder / "images", "--out", folder / "features", "--workers", "1", "--max-keypoints", "16"]
        samples = watch([*words, "--descriptor", folder / "fast.safetensors"], options.seconds)
        figures["extract"] = summarise(samples, "images", len(FeatureSet(folder / "features")))
    print(figures)
    record.write(options.out, options.seed, figures)


def write_training(folder: Path, minutes: float, seed: int) -> Path:
    """Write random patches and the recipe; return the folder of the run."""
    random = np.random.default_rng(seed)
    with SetWriter(folder / "set", 32, {}, []) as writer:
        for scene in "abcd":
            groups = UnitGroups(np.full(500, 2), scene, scene, np.empty((0, 2), np.int64))
            writer.add(scene, random.integers(0, 256, (1000, 32, 32), np.uint8), groups)
        writer.finish()
    (folder / "recipe.toml").write_text(RECIPE.format(minutes=minutes))
    return folder / "run"


def write_images(folder: Path, count: int, seed: int) -> None:
    """Write small textured images: crops of one texture, turned upside down or mirrored."""
    random = np.random.default_rng(seed)
    texture = cv2.GaussianBlur(random.normal(size=(1000, 1000)).astype(np.float32), (0, 0), 3)
    texture = np.clip(127 + 40 * texture / texture.std(), 0, 255).astype(np.uint8)
    for number in range(count):
        path = folder / f"{number // 1000:03}" / f"{number:06}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        row, column = random.integers(0, 1000 - HEIGHT), random.integers(0, 1000 - WIDTH)
        crop = texture[row : row + HEIGHT, column : column + WIDTH]
        cv2.imwrite(str(path), cv2.flip(crop, int(random.integers(-1, 2))), [cv2.IMWRITE_PNG_COMPRESSION, 1])


def watch(words: list[Any], seconds: float) -> np.ndarray:
    """Run a command; return samples (N, 3): seconds since its start, memory in MB and open files."""
    samples, start = [], time.perf_counter()
    process = psutil.Popen([sys.executable, "-m", "doap", *map(str, words)], stdout=subprocess.DEVNULL)
    while process.poll() is None:
        memory = files = 0.0
        with suppress(psutil.NoSuchProcess):
            for one in [process, *process.children(recursive=True)]:
                memory += one.memory_info().rss / 1e6
                files += one.num_fds()
            samples.append((time.perf_counter() - start, memory, files))
        time.sleep(seconds)
    if process.returncode:
        raise SystemExit(f"doap {words[0]}: exit code {process.returncode}")
    return np.array(samples)


def summarise(samples: np.ndarray, unit: str, done: int) -> dict[str, Any]:
    """Return the slope after the warm-up, and the values at its end and at the end of the run."""
    seconds, memory, files = samples[samples[:, 0] >= WARM_UP * samples[-1, 0]].T
    per_second = float(np.polyfit(seconds, memory, 1)[0])
    return {
        "minutes": round(samples[-1, 0] / 60, 1),
        unit: done,
        "memory after warm-up, MB": round(memory[0], 1),
        "memory at the end, MB": round(memory[-1], 1),
        "memory at most, MB": round(memory.max(), 1),
        f"slope, MB per 1,000 {unit}": round(per_second * samples[-1, 0] / done * 1000, 3),
        "open files after warm-up": int(files[0]),
        "open files at the end": int(files[-1]),
        "open files at most": int(files.max()),
    }


if __name__ == "__main__":
    main()
