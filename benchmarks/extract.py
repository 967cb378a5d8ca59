"""What `doap.extract` costs beside its parts: the bare detector, and the bare network on patches that are ready.

Also what it costs with the network in bfloat16.

    python benchmarks/extract.py PHOTO --weights my.safetensors --out results/extract.json

The photo is resized to a million pixels. All are timed in turns, and ratios are of medians.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from pathlib import Path

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
    parser.add_argument("photo", type=Path)
    parser.add_argument("--weights", help="a descriptor's name or file; fresh weights cost the same")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    descriptor = Descriptor.load(options.weights) if options.weights else Descriptor.build().eval()
    descriptor.precision = "float32"
    fast = copy.deepcopy(descriptor)
    fast.precision = "bfloat16"
    grey = read_grey(options.photo)
    share = (PIXELS / grey.size) ** 0.5
    image = np.asarray(cv2.resize(grey, None, fx=share, fy=share, interpolation=cv2.INTER_AREA), np.uint8)
    # As `doap.detectors.sift` asks for it.
    engine = cv2.SIFT.create(contrastThreshold=0.02, enable_precise_upscale=True)
    found = sorted(engine.detect(image, None), key=lambda point: -point.response)[:KEYPOINTS]
    patches = torch.from_numpy(extract_patches(image, frames_from_keypoints(found), 32)).unsqueeze(1).float() / 255
    parts: dict[str, Callable[[], object]] = {
        "detector": lambda: engine.detect(image, None),
        "network": lambda: descriptor.describe(patches),
        "extract": lambda: doap.extract(image, descriptor, max_keypoints=KEYPOINTS),
        "extract, bfloat16": lambda: doap.extract(image, fast, max_keypoints=KEYPOINTS),
    }
    times: dict[str, list[float]] = {name: [] for name in parts}
    for turn in range(options.rounds + 1):
        for name, part in parts.items():
            start = time.perf_counter()
            part()
            if turn:
                times[name].append(time.perf_counter() - start)
    seconds = {name: statistics.median(one) for name, one in times.items()}
    ratio = seconds["extract"] / (seconds["detector"] + seconds["network"])
    shape = f"{image.shape[1]} × {image.shape[0]} pixels, {len(patches)} keypoints"
    faster = seconds["extract"] / seconds["extract, bfloat16"]
    print(shape, {name: round(one, 3) for name, one in seconds.items()}, f"ratio {ratio:.3f}, bfloat16 {faster:.2f}")
    told = {"image": shape, "seconds": seconds, "ratio": ratio, "bfloat16 is faster by": faster}
    record.write(options.out, options.seed, told)


if __name__ == "__main__":
    main()
