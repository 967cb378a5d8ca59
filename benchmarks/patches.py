"""How many patches a core extracts in a second, beside bare cv2.remap on maps that are ready.

    python benchmarks/patches.py [--image PHOTO] [--out results/patches.json]

The pyramid is built anew in each run of `extract_patches` and counts; finding the keypoints does not. Time is that of
the processor, all threads together, so a pool of threads cannot flatter it. All take turns in one process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import cv2
import numpy as np
import record

from doap.images import Pyramid, extract_patches, frames_from_keypoints, read_grey

WIDTH, HEIGHT, SIZE, KEYPOINTS, TURNS = 800, 600, 32, 4000, 25


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("--image", type=Path, action="append", help="a photo; may be repeated; skimage's by default")
    options = parser.parse_args()
    cv2.setNumThreads(1)
    photos = {path.name: read_grey(path) for path in options.image or []} or bundled()
    rows = [measure(name, image) for name, image in photos.items()]
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    record.write(options.out, options.seed, {"patches_per_second_of_a_core": rows})


def bundled() -> dict[str, np.ndarray]:
    from skimage import data

    photos = {"astronaut": data.astronaut(), "coffee": data.coffee(), "rocket": data.rocket()}
    return {name: cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY) for name, photo in photos.items()}


def measure(name: str, photo: np.ndarray) -> dict[str, object]:
    image = cv2.resize(photo, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)
    frames = frames_from_keypoints(cv2.SIFT_create(KEYPOINTS, contrastThreshold=0.01).detect(image))
    maps = ready_maps(frames)
    pyramid = Pyramid(image)
    contenders: dict[str, Callable[[], object]] = {
        "extract_patches": lambda: extract_patches(image, frames, SIZE),
        "pyramid_ready": lambda: extract_patches(pyramid, frames, SIZE),
        "bare_remap": lambda: [cv2.remap(image, x, y, cv2.INTER_LINEAR) for x, y in maps],
    }
    times: dict[str, list[float]] = {contender: [] for contender in contenders}
    for _ in range(TURNS):
        for contender, run in contenders.items():
            start = time.process_time()
            run()
            times[contender].append(time.process_time() - start)
    speeds = {contender: round(len(frames) / median(taken)) for contender, taken in times.items()}
    share = round(speeds["extract_patches"] / speeds["bare_remap"], 3)
    return {"photo": name, "patches": len(frames), **speeds, "share_of_bare_remap": share}


def ready_maps(frames: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Positions of all samples in the image itself, 128 patches to a map."""
    u = (2 * np.arange(SIZE, dtype=np.float32) + 1) / SIZE - 1
    right, down = np.meshgrid(u, u)
    grid = np.stack([right.ravel(), down.ravel(), np.ones(SIZE**2, np.float32)])
    positions = [(frames[first : first + 128] @ grid).transpose(1, 0, 2) for first in range(0, len(frames), 128)]
    return [
        (np.ascontiguousarray(x).reshape(-1, SIZE), np.ascontiguousarray(y).reshape(-1, SIZE)) for x, y in positions
    ]


if __name__ == "__main__":
    main()
