"""Measure the effect of the patch width on planar sequences and on real image pairs of the split `val`.

    python tools/validation_sequences.py PHOTOS SEQUENCES
    python benchmarks/extent.py PHOTOS SEQUENCES rootsift a.safetensors --extents 1 1.5 --out results/extent.json

On planes, larger patches always add information. In real scenes, the surroundings of a keypoint may lie at another
depth. Therefore there are two figures: mAP on the sequences with the Oxford protocol, and the number of inliers of a
fundamental matrix over pairs of photos of the same scene. All descriptors use COLMAP keypoints.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import record
import torch
from ledger import read_ledger

from doap.describer import Describer
from doap.detectors import colmap
from doap.evaluation.descriptors import open_describers
from doap.evaluation.image_pair import score_pair
from doap.evaluation.oxford import OxfordBenchmark
from doap.geometry import estimate_geometry
from doap.images import Pyramid, centres, read_grey, resize_frames
from doap.matching import match_descriptors
from doap.pipeline import describe_frames

MAX_KEYPOINTS = 2000


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("photos", type=Path, help="folder with LEDGER.csv and the photos")
    parser.add_argument("sequences", type=Path, help="folder of tools/validation_sequences.py")
    parser.add_argument("descriptors", nargs="+", help="names or files")
    parser.add_argument(
        "--extents", nargs="+", type=float, default=[1.0], help="patch widths, relative to the descriptor's own"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    planes = OxfordBenchmark(options.sequences, detector=colmap(), max_keypoints=MAX_KEYPOINTS)
    pairs = real_pairs(options.photos, options.seed)
    photos = {path: detect(path) for pair in pairs for path in pair}
    rows = []
    for name, opened in open_describers(options.descriptors).items():
        describer = opened.describer
        for extent in options.extents:
            row = {"descriptor": name, "extent": extent, **on_planes(planes, describer, extent)}
            row |= on_pairs(pairs, photos, describer, extent)
            rows.append(row)
            print(row, flush=True)
            record.write(options.out, options.seed, {"pairs": len(pairs), "rows": rows})


def on_planes(planes: OxfordBenchmark, describer: Describer, extent: float) -> dict[str, Any]:
    """Return mAP over all image pairs, and by kind of change."""
    kinds: dict[str, list[float]] = defaultdict(list)
    for photo, pairs in groupby(planes.pairs, key=lambda pair: pair.photos[0]):
        first = described(photo.image, photo.frames, describer, extent)
        for pair in pairs:
            other = pair.photos[1]
            found = score_pair(pair, first, described(other.image, other.frames, describer, extent)).matches
            if found:
                kinds[pair.sequence.rstrip("0123456789")].append(found.average_precision)
    means = {kind: float(np.mean(values)) for kind, values in kinds.items()}
    return {"mAP": float(np.mean([value for values in kinds.values() for value in values])), "by kind": means}


def on_pairs(
    pairs: list[tuple[Path, Path]], photos: dict[Path, Any], describer: Describer, extent: float
) -> dict[str, Any]:
    """Return the mean number of inliers of mutual nearest neighbours, and the number of pairs with 30 or more."""
    descriptors = {path: described(*photo, describer, extent) for path, photo in photos.items()}
    inliers = []
    for path0, path1 in pairs:
        matches = match_descriptors(descriptors[path0], descriptors[path1])[0].numpy()
        points = [
            centres(photos[path][1])[matches[:, side]].astype(np.float64) for side, path in enumerate((path0, path1))
        ]
        inliers.append(int(estimate_geometry(*points, "fundamental", threshold=1.5).inliers.sum()))
    return {"inliers": float(np.mean(inliers)), "pairs with 30 inliers": int(np.sum(np.array(inliers) >= 30))}


def described(image: Any, frames: Any, describer: Describer, extent: float) -> torch.Tensor:
    """Return the descriptors of frames that are widened by `extent`."""
    return describe_frames(image, resize_frames(frames, extent), describer)


def detect(path: Path) -> tuple[Pyramid, Any]:
    """Return an image and its COLMAP frames."""
    image = read_grey(path)
    return Pyramid(image), colmap().detect(image, MAX_KEYPOINTS)[0]


def real_pairs(photos: Path, seed: int, each: int = 12) -> list[tuple[Path, Path]]:
    """Return up to `each` pairs per scene, at most four files apart in the order of file names."""
    scenes: dict[str, list[Path]] = defaultdict(list)
    for row in read_ledger(photos):
        if row["split"] == "val" and row["scene"] != "single":
            scenes[row["scene"]].append(photos / row["file"])
    random = np.random.default_rng(seed)
    pairs = set()
    for files in map(sorted, scenes.values()):
        for _ in range(each):
            first = int(random.integers(len(files) - 1))
            pairs.add((files[first], files[min(len(files) - 1, first + int(random.integers(1, 5)))]))
    return sorted(pairs)


if __name__ == "__main__":
    main()
