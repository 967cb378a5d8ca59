"""Measure how well an index retrieves photos of the same scene, exact and in lists, real-valued and binary.

    python benchmarks/scale_retrieval.py PHOTOS WORK --out results/scale/retrieval.json

PHOTOS contains LEDGER.csv and the photos. Each photo of the `val` and `test` scenes queries an index of all photos; the
query itself is not counted. The figure is the share of the ten best images that show the same scene. Features are
stored in WORK and reused.

The voting settings were selected on `train`. An early trial with another exponent included 16 photos of sacre_coeur
(`test`) and 16 of taj_mahal (`val`).
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import record
from ledger import read_ledger

from doap.collection import FeatureSet, Index, IndexKind, build_index, extract_folder, search_images
from doap.collection.pairs import VOTING_KEYPOINTS
from doap.detectors import sift

TOP = 10


class Way(NamedTuple):
    """Descriptor, index type, number of voting keypoints per photo, geometric verification, order of keypoints."""

    descriptor: str
    kind: IndexKind = "flat"
    voters: int = VOTING_KEYPOINTS
    verify: bool = False
    largest_first: bool = True


WAYS = {
    "doap-128, exact": Way("doap-128"),
    "doap-128, exact, verified": Way("doap-128", verify=True),
    "doap-128, IVF": Way("doap-128", "ivf"),
    "doap-128, IVF, all 1,000 vote": Way("doap-128", "ivf", 1000),
    "doap-256bit, exact": Way("doap-256bit"),
    "doap-fast, exact": Way("doap-fast"),
    "doap-fast, exact, strongest instead of largest keypoints": Way("doap-fast", largest_first=False),
    "RootSIFT, exact": Way("rootsift"),
}


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("photos", type=Path, help="folder with LEDGER.csv and the photos")
    parser.add_argument("work", type=Path, help="folder of features and indexes")
    parser.add_argument("--max-keypoints", type=int, default=1000, help="maximum number of keypoints per image")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS), help="variants to measure")
    options = parser.parse_args()
    scene_of = {row["file"]: (row["split"], row["scene"]) for row in read_ledger(options.photos)}
    figures: dict[str, Any] = {}
    for way in options.ways:
        name, kind, voters, verify, largest_first = WAYS[way]
        order = name if largest_first else f"{name} strongest"
        detector = replace(sift(), ranks_by_size=largest_first)
        extract_folder(
            options.photos, options.work / order, name, detector=detector, max_keypoints=options.max_keypoints
        )
        features, folder = FeatureSet(options.work / order), options.work / f"{order} {kind} {voters}"
        if not folder.exists():
            build_index(features, folder, kind=kind, max_keypoints=voters)
        index, info = Index(folder), Index(folder).info()
        figures[way] = query_all(index, features, voters, scene_of, verify=verify) | {
            "bytes of a descriptor": info.bytes / info.descriptors,
            "descriptors": len(index),
        }
        print(way, figures[way], flush=True)
    record.write(options.out, options.seed, {"max_keypoints": options.max_keypoints, "top": TOP, "ways": figures})


def query_all(
    index: Index, features: FeatureSet, voters: int, scene_of: dict[str, tuple[str, str]], *, verify: bool
) -> dict[str, Any]:
    """Return the share of the ten best images that show the scene of the query, by split and by scene."""
    shares: dict[tuple[str, str], list[float]] = defaultdict(list)
    seconds = []
    for photo in features.stream([name for name in features.names if scene_of[name][0] in ("val", "test")]):
        start = time.perf_counter()
        query = photo.features.strongest(voters)
        found = search_images(index, query, top=TOP + 1, features=features if verify else None)
        seconds.append(time.perf_counter() - start)
        others = [one.name for one in found if one.name != photo.name][:TOP]
        shares[scene_of[photo.name]].append(sum(scene_of[one] == scene_of[photo.name] for one in others) / TOP)
    splits = {
        split: float(np.mean([share for (of, _), some in shares.items() if of == split for share in some]))
        for split in ("val", "test")
    }
    scenes = {scene: float(np.mean(some)) for (_, scene), some in sorted(shares.items())}
    return {**splits, "scenes": scenes, "queries": len(seconds), "seconds of a query": float(np.median(seconds))}


if __name__ == "__main__":
    main()
