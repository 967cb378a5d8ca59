"""Measure the peak memory of extracting a large image: downscaled, in tiles, and as a whole.

    python benchmarks/tiles.py --out results/tiles.json

The image is synthetic: smooth noise of three scales, 10,000 × 10,000 pixels by default, stored as PNG. Every extraction
runs in a process of its own, which reports its peak resident memory. As a whole, the image is extracted at a sixteenth
of its area, because the memory grows with the number of pixels and 100 megapixels do not fit into the memory of most
machines.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import record

MAX_KEYPOINTS = 2048


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("--side", type=int, default=10_000, help="width and height of the image in pixels")
    parser.add_argument("--tiles", type=int, nargs="*", default=[2048], help="sides of the tiles")
    parser.add_argument("--descriptor", default="doap-128")
    parser.add_argument("--measure", nargs=3, help="image, tile and maximum image size; 0 is none")
    options = parser.parse_args()
    if options.measure:
        image, *sizes = options.measure
        print(json.dumps(measure(Path(image), options.descriptor, *(int(size) or None for size in sizes))))
        return
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "large.png"
        write_image(image, options.side, options.seed)
        part, side = Path(folder) / "part.png", options.side // 4
        cv2.imwrite(str(part), cv2.imread(str(image), cv2.IMREAD_GRAYSCALE)[:side, :side])
        cases = [("downscaled to 3,200 pixels", image, 0, 3200)]
        cases += [(f"tiles of {tile:,} pixels", image, tile, 0) for tile in options.tiles]
        cases += [("a sixteenth of the image, as a whole", part, 0, options.side)]
        rows = []
        for name, path, tile, size in cases:
            rows.append({"case": name, **run(path, tile, size, options.descriptor)})
            print(rows[-1], flush=True)
            settings = {"side": options.side, "descriptor": options.descriptor, "max_keypoints": MAX_KEYPOINTS}
            record.write(options.out, options.seed, {**settings, "table": rows})


def run(image: Path, tile: int, size: int, descriptor: str) -> dict[str, Any]:
    """Extract an image in a process of its own."""
    words = [sys.executable, __file__, "--descriptor", descriptor, "--measure", str(image), str(tile), str(size)]
    ran = subprocess.run(words, check=True, capture_output=True, text=True)
    figures: dict[str, Any] = json.loads(ran.stdout)
    return figures


def measure(image: Path, descriptor: str, tile: int | None, size: int | None) -> dict[str, Any]:
    """Extract an image and return the number of its keypoints and the peak memory, without and with the extraction."""
    import doap

    doap.extract(np.zeros((64, 64), np.uint8), describer := doap.load(descriptor, device="cpu"))
    before = peak_mib()
    features = doap.extract(image, describer, max_keypoints=MAX_KEYPOINTS, max_image_size=size or 3200, tile=tile)
    after = peak_mib()
    pixels = features.image_size[0] * features.image_size[1]
    return {
        "megapixels": round(pixels / 1e6, 1),
        "keypoints": len(features),
        "smallest_patch_side": round(float(2 * np.sqrt(np.abs(np.linalg.det(features.frames[:, :, :2]))).min()), 1),
        "peak_mib": after,
        "mib_of_the_extraction": after - before,
    }


def peak_mib() -> int:
    """Return the peak resident memory of this process. `getrusage` would include the process that started it."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return round(int(found[1]) / 1024)


def write_image(path: Path, side: int, seed: int) -> None:
    """Write smooth noise of three scales."""
    random = np.random.default_rng(seed)
    image = np.zeros((side, side), np.float32)
    for coarseness in (32, 128, 512):
        cells = -(-side // coarseness)
        noise = cv2.resize(random.normal(size=(cells, cells)).astype(np.float32), (side, side))
        image += noise / noise.std()
    cv2.imwrite(str(path), np.clip(127 + 25 * image, 0, 255).astype(np.uint8))


if __name__ == "__main__":
    main()
