"""Which scales does COLMAP keep at 2,048 and 8,192 keypoints, on photos of different sizes?

    python benchmarks/keypoint_scales.py DATA --out results/keypoint-scales.json

DATA has photos, wide_baseline and strecha. COLMAP keeps its largest keypoints. Scales are σ in pixels of the image in
which they are detected, which has at most 3,200 pixels on a side, as in COLMAP. No photo of the data has more than
1,536, so `mosaic` stands for large photos: aerial photos side by side at their own resolution, 4,000 pixels wide.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import record

from doap.detectors import colmap
from doap.images import read_grey, shrink

LIMITS, LONGEST_SIDE = (2048, 8192), 3200
SETS = {
    "test scenes, 800 px": ["photos/sacre_coeur/*", "photos/grand_place_brussels/*", "photos/church/*"],
    "WxBS, full size": ["wide_baseline/wxbs/*/*/0?.jpg"],
    "aerial, 1,000 px": ["photos/lewis/*", "photos/boruszyn/*", "photos/tarak_farms/*"],
    "Strecha, 1,536 px": ["strecha/*/*.jpg"],
}
ROWS, COLUMNS = 4, 4


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("data", type=Path, help="folder with photos, wide_baseline and strecha")
    parser.add_argument("--images", type=int, default=40, help="maximum number of images per set, evenly spaced")
    options = parser.parse_args()
    figures = {}
    for name, patterns in SETS.items():
        paths = sorted(path for pattern in patterns for path in options.data.glob(pattern))
        chosen = np.linspace(0, len(paths) - 1, min(options.images, len(paths))).round().astype(int)
        figures[name] = summarise([read_grey(paths[number]) for number in chosen])
        print(name, figures[name], flush=True)
    aerial = sorted(path for pattern in SETS["aerial, 1,000 px"] for path in options.data.glob(pattern))
    figures["mosaic, 4,000 px"] = summarise(list(mosaics(aerial, options.images // 8)))
    print(figures["mosaic, 4,000 px"])
    record.write(options.out, options.seed, {"unit": "σ, px", "sets": figures})


def mosaics(paths: list[Path], count: int) -> Iterator[np.ndarray]:
    """Yield photos of one size side by side."""
    photos = [photo for photo in map(read_grey, paths) if photo.shape == (750, 1000)]
    for number in range(min(count, len(photos) // (ROWS * COLUMNS))):
        part = photos[number * ROWS * COLUMNS : (number + 1) * ROWS * COLUMNS]
        yield np.vstack([np.hstack(part[row * COLUMNS : (row + 1) * COLUMNS]) for row in range(ROWS)])


def summarise(images: list[np.ndarray]) -> dict[str, Any]:
    """Return the median number of keypoints, and the 10, 50 and 90 % quantiles of σ of those that COLMAP keeps."""
    scales = [colmap().detect(shrink(image, LONGEST_SIDE)[0])[1] for image in images]
    counts = np.array(list(map(len, scales)))
    row: dict[str, Any] = {"images": len(images), "keypoints per image": int(np.median(counts))}
    for limit in LIMITS:
        kept = np.quantile(np.concatenate([one[:limit] for one in scales]), [0.1, 0.5, 0.9]).round(2).tolist()
        row[f"{limit:,}"] = {"σ": kept, "images with more": round(float((counts > limit).mean()), 2)}
    return row


if __name__ == "__main__":
    main()
