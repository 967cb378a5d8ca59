"""How wide should patches be? On sequences of planes, and on real pairs of photos, that may be chosen on.

    python benchmarks/val_sequences.py PHOTOS SEQUENCES
    python benchmarks/extent.py PHOTOS SEQUENCES rootsift a.safetensors --extents 1 1.5 --out results/extent.json

A plane rewards whatever is seen around a keypoint; in a real scene what is around may lie at another depth. So two
figures stand side by side: mAP on the sequences, by the protocol of Oxford, and the inliers of a fundamental matrix
over pairs of photos of the places of the split `val` that have more than one. All see COLMAP's keypoints.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import record
import torch

from doap.cli.names import open_descriptors
from doap.describer import Describer
from doap.detectors import colmap
from doap.evaluation.image_pair import score_pair
from doap.evaluation.oxford import OxfordBenchmark, open_oxford
from doap.geometry import estimate_geometry
from doap.images import Pyramid, centres, read_grey, resize_frames
from doap.matching import match_descriptors
from doap.pipeline import describe_frames

MOST = 2000


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("photos", type=Path)
    parser.add_argument("sequences", type=Path)
    parser.add_argument("descriptors", nargs="+")
    parser.add_argument("--extents", nargs="+", type=float, default=[1.0], help="over what the descriptor wants itself")
    options = parser.parse_args()
    torch.set_num_threads(1)
    planes = open_oxford(options.sequences, detector=colmap(), max_keypoints=MOST)
    pairs = real_pairs(options.photos, options.seed)
    looked = {path: look(path) for pair in pairs for path in pair}
    rows = []
    for name, describer in open_descriptors(options.descriptors)[0].items():
        for extent in options.extents:
            row = {"descriptor": name, "extent": extent, **on_planes(planes, describer, extent)}
            row |= on_pairs(pairs, looked, describer, extent)
            rows.append(row)
            print(row, flush=True)
            record.write(options.out, options.seed, {"pairs": len(pairs), "rows": rows})


def on_planes(planes: OxfordBenchmark, describer: Describer, extent: float) -> dict[str, Any]:
    """mAP over all pairs of images, and by the kind of change."""
    kinds: dict[str, list[float]] = defaultdict(list)
    for photo, pairs in groupby(planes.pairs, key=lambda pair: pair.photos[0]):
        first = described(photo.image, photo.frames, describer, extent)
        for pair in pairs:
            other = pair.photos[1]
            found = score_pair(pair, first, described(other.image, other.frames, describer, extent)).found
            if found:
                kinds[pair.sequence.rstrip("0123456789")].append(found.average_precision)
    means = {kind: float(np.mean(values)) for kind, values in kinds.items()}
    return {"mAP": float(np.mean([value for values in kinds.values() for value in values])), "by kind": means}


def on_pairs(
    pairs: list[tuple[Path, Path]], looked: dict[Path, Any], describer: Describer, extent: float
) -> dict[str, Any]:
    """Mean inliers of mutual nearest neighbours, and how many pairs have 30 or more."""
    descriptors = {path: described(*seen, describer, extent) for path, seen in looked.items()}
    inliers = []
    for one, other in pairs:
        matches = match_descriptors(descriptors[one], descriptors[other])[0].numpy()
        points = [
            centres(looked[path][1])[matches[:, side]].astype(np.float64) for side, path in enumerate((one, other))
        ]
        inliers.append(int(estimate_geometry(*points, "fundamental", threshold=1.5).inliers.sum()))
    return {"inliers": float(np.mean(inliers)), "pairs with 30 inliers": int(np.sum(np.array(inliers) >= 30))}


def described(image: Any, frames: Any, describer: Describer, extent: float) -> torch.Tensor:
    return describe_frames(image, resize_frames(frames, extent), describer)


def look(path: Path) -> tuple[Pyramid, Any]:
    image = read_grey(path)
    return Pyramid(image), colmap().detect(image, MOST)[0]


def real_pairs(photos: Path, seed: int, each: int = 12) -> list[tuple[Path, Path]]:
    """Up to twelve pairs of each place, neighbours or up to four apart in the order of names."""
    places: dict[str, list[Path]] = defaultdict(list)
    with (photos / "LEDGER.csv").open() as ledger:
        for row in csv.DictReader(ledger):
            if row["split"] == "val" and row["place"] != "single":
                places[row["place"]].append(photos / row["file"])
    random = np.random.default_rng(seed)
    pairs = set()
    for files in map(sorted, places.values()):
        for _ in range(each):
            first = int(random.integers(len(files) - 1))
            pairs.add((files[first], files[min(len(files) - 1, first + int(random.integers(1, 5)))]))
    return sorted(pairs)


if __name__ == "__main__":
    main()
