"""Photos of one place among all others: what the index finds, exact and in little memory, as numbers and as bits.

    python benchmarks/scale_retrieval.py PHOTOS WORK --out results/scale/retrieval.json

PHOTOS holds LEDGER.csv and the photos. Each photo of the places of `val` and `test` asks an index of all photos, itself
among them but not counted; told is the share of the ten best that show its place. Features are made in WORK, or found
there.

Settings of votes were chosen on `train` alone in the end; but a first look, at another power of the votes, had 16
photos of sacre_coeur (`test`) and 16 of taj_mahal (`val`) among its images.
"""

from __future__ import annotations

import csv
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import record

import doap
from doap.scale import FeatureSet, extract_folder
from doap.scale.index import Index, IndexKind, build_index, strongest
from doap.scale.pairs import MOST
from doap.scale.search import find_images

TOP = 10
# The descriptor, the kind of index, how many keypoints of a photo vote, and whether geometry has the last word.
WAYS: dict[str, tuple[str, IndexKind, int, bool]] = {
    "doap-128, exact": ("doap-128", "flat", MOST, False),
    "doap-128, exact, verified": ("doap-128", "flat", MOST, True),
    "doap-128, IVF-PQ": ("doap-128", "ivf-pq", MOST, False),
    "doap-128, IVF-PQ, all 1,000 vote": ("doap-128", "ivf-pq", 1000, False),
    "doap-256bit, exact": ("doap-256bit", "flat", MOST, False),
    "RootSIFT, exact": ("rootsift", "flat", MOST, False),
}


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("photos", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--max-keypoints", type=int, default=1000, help="keypoints of an image")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    options = parser.parse_args()
    with (options.photos / "LEDGER.csv").open(newline="") as file:
        place_of = {row["file"]: (row["split"], row["place"]) for row in csv.DictReader(file)}
    figures: dict[str, Any] = {}
    for way in options.ways:
        name, kind, voters, verify = WAYS[way]
        features = features_of(options.photos, options.work / name, name, options.max_keypoints)
        folder = options.work / f"{name} {kind} {voters}"
        if not folder.exists():
            build_index(features, folder, kind=kind, max_keypoints=voters, seed=options.seed)
        index = Index(folder)
        figures[way] = ask(index, features, voters, place_of, verify=verify) | {
            "bytes of a descriptor": index.info().bytes_per_descriptor,
            "descriptors": len(index),
        }
        print(way, figures[way], flush=True)
    record.write(options.out, options.seed, {"max_keypoints": options.max_keypoints, "top": TOP, "ways": figures})


def features_of(photos: Path, out: Path, name: str, max_keypoints: int) -> FeatureSet:
    extract_folder(photos, out, doap.load(name), descriptor_name=name, max_keypoints=max_keypoints)
    return FeatureSet(out)


def ask(
    index: Index, features: FeatureSet, voters: int, place_of: dict[str, tuple[str, str]], *, verify: bool
) -> dict[str, Any]:
    """Share of the ten best that show the place of the photo that asks; means over places and over photos."""
    shares: dict[tuple[str, str], list[float]] = defaultdict(list)
    seconds = []
    for photo in features.stream([name for name in features.names if place_of[name][0] in ("val", "test")]):
        start = time.perf_counter()
        query = strongest(photo.features, voters)
        found = find_images(index, query, top=TOP + 1, verify=verify, features=features if verify else None)
        seconds.append(time.perf_counter() - start)
        others = [one.name for one in found if one.name != photo.name][:TOP]
        shares[place_of[photo.name]].append(sum(place_of[one] == place_of[photo.name] for one in others) / TOP)
    splits = {
        split: float(np.mean([share for (of, _), some in shares.items() if of == split for share in some]))
        for split in ("val", "test")
    }
    places = {place: float(np.mean(some)) for (_, place), some in sorted(shares.items())}
    return {**splits, "places": places, "queries": len(seconds), "seconds of a query": float(np.median(seconds))}


if __name__ == "__main__":
    main()
