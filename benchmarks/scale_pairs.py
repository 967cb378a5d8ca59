"""Reconstruct scenes from the pairs that `doap pairs` selects, and from all pairs.

    python benchmarks/scale_pairs.py PHOTOS WORK --split test --out results/scale/pairs.json

All photos of the split form one collection, as if the scenes were unknown. Keypoints, descriptors, matcher, seed and
mapper are the same for both. Resumable: rerun the same command to continue; databases and models stay in WORK.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pycolmap
import record
from ledger import read_ledger

import doap
from doap.collection import extract_folder, select_pairs, write_pairs
from doap.export.colmap import write_colmap


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("photos", type=Path, help="folder with LEDGER.csv and the photos")
    parser.add_argument("work", type=Path, help="folder of intermediate files")
    parser.add_argument("--split", default="test", help="split of the photos")
    parser.add_argument("--descriptor", default="doap-128", help="descriptor")
    parser.add_argument("--top", type=int, default=20, help="candidates per image")
    parser.add_argument("--max-keypoints", type=int, default=1000, help="maximum number of keypoints per image")
    options = parser.parse_args()
    pycolmap.logging.minloglevel = pycolmap.logging.FATAL.value
    images, work = options.work / "images", options.work
    copy_split(options.photos, images, options.split)
    descriptor = doap.load(options.descriptor)
    extract_folder(images, work / "features", descriptor, max_keypoints=options.max_keypoints)
    write_pairs(select_pairs(work / "features", top=options.top), work / "pairs.txt")
    figures: dict[str, Any] = {"top": options.top, "max_keypoints": options.max_keypoints}
    for name, pairs in {"selected": work / "pairs.txt", "all": "exhaustive"}.items():
        database = work / f"{name}.db"
        # Both use the same features, which are extracted once.
        features = work / "all.db.features"
        if name == "all" and not features.exists():
            shutil.copytree(work / "selected.db.features", features)
        written = write_colmap(
            images, database, descriptor, max_keypoints=options.max_keypoints, pairs=pairs, ratio=0.8
        )
        registered = reconstruct(images, database, work / f"{name} models", options.seed)
        figures[name] = {"pairs": written.pairs, "registered": registered, "images": sum(registered.values())}
        print(name, figures[name], flush=True)
    figures["share of pairs"] = figures["selected"]["pairs"] / figures["all"]["pairs"]
    figures["share of images"] = figures["selected"]["images"] / max(1, figures["all"]["images"])
    print(figures["share of pairs"], figures["share of images"])
    record.write(options.out, options.seed, figures)


def copy_split(photos: Path, images: Path, split: str) -> None:
    """Copy the photos of a split."""
    for name in [row["file"] for row in read_ledger(photos) if row["split"] == split]:
        (images / name).parent.mkdir(parents=True, exist_ok=True)
        if not (images / name).exists():
            shutil.copy(photos / name, images / name)


def reconstruct(images: Path, database: Path, models: Path, seed: int) -> dict[str, int]:
    """Return the number of registered photos per scene, in the model that has most of them."""
    if not models.exists():
        unfinished = models.with_name(models.name + ".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        options = pycolmap.IncrementalPipelineOptions(
            num_threads=os.cpu_count(), random_seed=seed, extract_colors=False
        )
        pycolmap.incremental_mapping(database, images, unfinished, options)
        unfinished.rename(models)
    best: dict[str, int] = defaultdict(int)
    for folder in models.iterdir():
        counts: dict[str, int] = defaultdict(int)
        for image in pycolmap.Reconstruction(folder).images.values():
            counts[image.name.split("/")[0]] += image.has_pose
        for scene, count in counts.items():
            best[scene] = max(best[scene], count)
    return dict(sorted(best.items()))


if __name__ == "__main__":
    main()
