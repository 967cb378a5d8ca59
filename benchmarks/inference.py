"""Measure patches per second with torch and ONNX Runtime, and of OpenCV's SIFT and TEBLID, on one photo.

    python benchmarks/inference.py PHOTO --set val.patches --out results/inference.json

torch and ONNX Runtime receive patches that are already cut; cutting them is timed separately. OpenCV's descriptors
include blurring the photo. All variants are timed in turn for each number of threads; figures are medians.
"""

from __future__ import annotations

import copy
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import record
import torch

from doap.baselines import OnnxDescriber
from doap.data.store import open_set
from doap.describer import cut_patches
from doap.descriptor import Descriptor
from doap.detectors import sift
from doap.detectors.opencv import contrib
from doap.export.onnx import write_onnx
from doap.images import frames_from_keypoints, read_grey

# The batch size of `Descriptor.describe` on a CPU. A remainder of another size would be compiled again.
BATCH = 128
# OpenCV's recommendation for SIFT keypoints.
TEBLID_SCALE = 6.75


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("photo", type=Path, help="image file")
    parser.add_argument("--descriptor", default="doap-128", help="descriptor to time")
    parser.add_argument("--set", type=Path, help="patch set for int8 calibration (default: skip int8)")
    parser.add_argument(
        "--max-keypoints", type=int, default=2048, help="maximum number of keypoints, rounded down to whole batches"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads")
    parser.add_argument("--rounds", type=int, default=9, help="number of timed repetitions")
    options = parser.parse_args()
    descriptor = Descriptor.load(options.descriptor, precision="float32")
    image = read_grey(options.photo)
    found = sift().keypoints(image, options.max_keypoints)
    keypoints = list(found[: len(found) // BATCH * BATCH])
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        files = {"onnx float32": write_onnx(descriptor, Path(folder) / "float32.onnx").out}
        if options.set:
            int8 = write_onnx(descriptor, Path(folder) / "int8.onnx", calibration=open_set(options.set))
            files["onnx int8"] = int8.out
        for threads in options.threads:
            torch.set_num_threads(threads)
            cv2.setNumThreads(threads)
            seconds = measure(variants(descriptor, files, image, keypoints), options.rounds)
            figures[threads] = {name: len(keypoints) / one for name, one in seconds.items()}
            print(f"{threads} threads, patches per second:")
            for name, speed in figures[threads].items():
                print(f"  {name:16}{speed:10,.0f}  {speed / figures[threads]['torch float32']:6.2f} × torch float32")
    shape = f"{image.shape[1]} × {image.shape[0]} pixels, {len(keypoints)} keypoints"
    results = {"descriptor": options.descriptor, "image": shape, "patches_per_second": figures}
    record.write(options.out, options.seed, results)


def variants(
    descriptor: Descriptor, files: dict[str, Path], image: np.ndarray, keypoints: list[cv2.KeyPoint]
) -> dict[str, Callable[[], object]]:
    """Return everything that is timed, created with the current number of threads."""
    frames = frames_from_keypoints(keypoints)
    patches = cut_patches(image, frames, descriptor.patch_size, descriptor.extent).unsqueeze(1).float() / 255
    # A compiled graph keeps the number of threads that it was compiled for.
    torch.compiler.reset()
    compiled = copy.deepcopy(descriptor)
    compiled.compile()
    fast = copy.deepcopy(descriptor)
    fast.precision = "bfloat16"
    sessions = {name: OnnxDescriber(path) for name, path in files.items()}
    opencv = {
        "opencv sift": cv2.SIFT.create(enable_precise_upscale=True),
        "opencv teblid": contrib("TEBLID_create", needed_by="teblid")(TEBLID_SCALE),
    }
    return {
        "torch float32": lambda: descriptor.describe_patches(patches),
        "torch bfloat16": lambda: fast.describe_patches(patches),
        "torch compiled": lambda: compiled.describe_patches(patches),
        **{name: lambda one=one: one.describe_patches(patches) for name, one in sessions.items()},
        "cutting patches": lambda: cut_patches(image, frames, descriptor.patch_size, descriptor.extent),
        **{name: lambda one=one: one.compute(image, keypoints) for name, one in opencv.items()},
    }


def measure(variants: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each variant, timed in turn; the first round compiles and does not count."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(rounds + 1):
        for name, variant in variants.items():
            start = time.perf_counter()
            variant()
            if number:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(one) for name, one in times.items()}


if __name__ == "__main__":
    main()
