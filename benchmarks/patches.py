"""Measure how many patches one core extracts per second, compared with cv2.remap on precomputed maps.

    python benchmarks/patches.py [--image PHOTO] [--out results/patches.json]

`extract_patches` includes building the pyramid; keypoint detection is excluded. Times are CPU times over all threads,
so a thread pool does not help. All variants are timed in turn in one process.
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

WIDTH, HEIGHT, SIZE, KEYPOINTS, ROUNDS = 800, 600, 32, 4000, 25


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument(
        "--image", type=Path, action="append", help="photo; may be repeated (default: photos of skimage)"
    )
    options = parser.parse_args()
    cv2.setNumThreads(1)
    photos = {path.name: read_grey(path) for path in options.image or []} or bundled()
    rows = [measure(name, image) for name, image in photos.items()]
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    record.write(options.out, options.seed, {"patches_per_second_of_a_core": rows})


def bundled() -> dict[str, np.ndarray]:
    """Return photos that come with skimage."""
    from skimage import data

    photos = {"astronaut": data.astronaut(), "coffee": data.coffee(), "rocket": data.rocket()}
    return {name: cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY) for name, photo in photos.items()}


def measure(name: str, photo: np.ndarray) -> dict[str, object]:
    """Return patches per second of each variant on one photo."""
    image = cv2.resize(photo, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)
    frames = frames_from_keypoints(cv2.SIFT_create(KEYPOINTS, contrastThreshold=0.01).detect(image))
    maps = compute_maps(frames)
    pyramid = Pyramid(image)
    variants: dict[str, Callable[[], object]] = {
        "extract_patches": lambda: extract_patches(image, frames, SIZE),
        "pyramid_ready": lambda: extract_patches(pyramid, frames, SIZE),
        "bare_remap": lambda: [cv2.remap(image, x, y, cv2.INTER_LINEAR) for x, y in maps],
    }
    times: dict[str, list[float]] = {variant: [] for variant in variants}
    for _ in range(ROUNDS):
        for variant, run in variants.items():
            start = time.process_time()
            run()
            times[variant].append(time.process_time() - start)
    speeds = {variant: round(len(frames) / median(taken)) for variant, taken in times.items()}
    share = round(speeds["extract_patches"] / speeds["bare_remap"], 3)
    return {"photo": name, "patches": len(frames), **speeds, "share_of_bare_remap": share}


def compute_maps(frames: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the image positions of all samples, 128 patches per map."""
    u = (2 * np.arange(SIZE, dtype=np.float32) + 1) / SIZE - 1
    right, down = np.meshgrid(u, u)
    grid = np.stack([right.ravel(), down.ravel(), np.ones(SIZE**2, np.float32)])
    positions = [(frames[first : first + 128] @ grid).transpose(1, 0, 2) for first in range(0, len(frames), 128)]
    return [
        (np.ascontiguousarray(x).reshape(-1, SIZE), np.ascontiguousarray(y).reshape(-1, SIZE)) for x, y in positions
    ]


if __name__ == "__main__":
    main()
