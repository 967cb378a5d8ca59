"""Compare the time of `doap.extract` with its parts: the detector, and the network on patches that are already cut.

Extraction is also timed with the network in bfloat16.

    python benchmarks/extract.py PHOTO --weights my.safetensors --out results/extract.json

The photo is resized to one megapixel. All variants are timed in turn; ratios are ratios of medians.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import record
import torch

import doap
from doap.descriptor import Descriptor
from doap.images import extract_patches, frames_from_keypoints, read_grey

PIXELS, KEYPOINTS = 1_000_000, 2048


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("photo", type=Path, help="image file")
    parser.add_argument("--weights", help="descriptor (default: random weights, which take the same time)")
    parser.add_argument("--rounds", type=int, default=9, help="number of timed repetitions")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    descriptor = Descriptor.load(options.weights) if options.weights else Descriptor.build().eval()
    record.write(options.out, options.seed, compare(options.photo, descriptor, options.rounds))


def compare(photo: Path, descriptor: Descriptor, rounds: int) -> dict[str, Any]:
    """Return the median seconds of extraction and of its parts, and their ratios."""
    descriptor.precision = "float32"
    fast = copy.deepcopy(descriptor)
    fast.precision = "bfloat16"
    grey = read_grey(photo)
    scale = (PIXELS / grey.size) ** 0.5
    image = np.asarray(cv2.resize(grey, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA), np.uint8)
    # The settings of `doap.detectors.sift`.
    engine = cv2.SIFT.create(contrastThreshold=0.02, enable_precise_upscale=True)
    found = sorted(engine.detect(image, None), key=lambda point: -point.response)[:KEYPOINTS]
    patches = torch.from_numpy(extract_patches(image, frames_from_keypoints(found), 32)).unsqueeze(1).float() / 255
    parts: dict[str, Callable[[], object]] = {
        "detector": lambda: engine.detect(image, None),
        "network": lambda: descriptor.describe_patches(patches),
        "extract": lambda: doap.extract(image, descriptor, detector="sift", max_keypoints=KEYPOINTS),
        "extract, bfloat16": lambda: doap.extract(image, fast, detector="sift", max_keypoints=KEYPOINTS),
    }
    times: dict[str, list[float]] = {name: [] for name in parts}
    for number in range(rounds + 1):
        for name, part in parts.items():
            start = time.perf_counter()
            part()
            if number:
                times[name].append(time.perf_counter() - start)
    seconds = {name: statistics.median(one) for name, one in times.items()}
    ratio = seconds["extract"] / (seconds["detector"] + seconds["network"])
    shape = f"{image.shape[1]} × {image.shape[0]} pixels, {len(patches)} keypoints"
    speedup = seconds["extract"] / seconds["extract, bfloat16"]
    print(shape, {name: round(one, 3) for name, one in seconds.items()}, f"ratio {ratio:.3f}, bfloat16 {speedup:.2f}")
    return {"image": shape, "seconds": seconds, "ratio": ratio, "bfloat16 is faster by": speedup}


if __name__ == "__main__":
    main()
