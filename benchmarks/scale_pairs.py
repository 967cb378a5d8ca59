"""Reconstruct scenes from the pairs that `doap pairs` selects, and from all pairs.

    python benchmarks/scale_pairs.py PHOTOS WORK --split test --out results/scale/pairs.json

All photos of the split form one collection, as if the scenes were unknown. Keypoints, descriptors, matcher, seed and
mapper are the same for both. Resumable: rerun the same command to continue; databases stay in WORK.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pycolmap
import record
from ledger import read_ledger

import doap
from doap.collection import extract_folder, select_pairs, write_pairs
from doap.evaluation.mapping import map_database, registered_poses
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
        with tempfile.TemporaryDirectory() as models:
            found = registered(map_database(database, images, Path(models) / "models", options.seed))
        figures[name] = {"pairs": written.pairs, "registered": found, "images": sum(found.values())}
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


def registered(models: list[pycolmap.Reconstruction]) -> dict[str, int]:
    """Return the number of registered photos per scene, in the model that has most of them."""
    counts = [Counter(name.split("/")[0] for name in registered_poses(model)) for model in models]
    return {scene: max(one[scene] for one in counts) for scene in sorted({name for one in counts for name in one})}


if __name__ == "__main__":
    main()
