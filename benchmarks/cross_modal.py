"""Train a small network on registered pairs of two modalities, and compare it with networks for plain photos.

    python benchmarks/cross_modal.py PHOTOS --out results/cross-modal.json

PHOTOS is a folder of photos with LEDGER.csv. The second modality is synthetic: intensities are inverted and remapped
with a random gamma, as between reflected and emitted light, and blurred a little. Two networks are trained from scratch
with the same recipe and photos of `train` scenes: one on synthetic views of the plain photos (`doap data from-images`),
and one on the pairs (`doap data from-pairs`). They are tested on photos of `val` scenes, on pairs and on plain photos,
next to doap-128 and RootSIFT, which see the same patches.

mAP: each patch is a query, and its only match is the other patch of its group. In pairs, both patches of a group are
cut with the same frame. The orientation of a keypoint that is detected in each modality would often differ by 180°.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import record

import doap
from doap.data import build_from_images, build_from_pairs, open_set
from doap.images import read_grey
from doap.images.synthetic_views import SyntheticViews
from doap.validation import PatchSample, validate

RECIPE = """
[data]
batch_size = 512
[network]
name = "fast"
[schedule]
steps = {steps}
[run]
validate_every = {steps}
checkpoint_every = {steps}
"""
KEYPOINTS = 250
EXTENT = 1.5
BASELINES = ("rootsift", "doap-128")


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("photos", type=Path, help="folder of photos with LEDGER.csv")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--per-split", type=int, nargs=2, default=(40, 16), help="photos of train and of val")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for split, count in zip(("train", "val"), options.per_split, strict=True):
            names = choose(options.photos / "LEDGER.csv", split, count, options.seed)
            write_pairs(options.photos, names, work / split, options.seed)
            build_sets(work / split)
        opened = {path: open_set(work / path) for path in ("train/plain", "train/pairs", "val/plain", "val/pairs")}
        tests = {name: PatchSample.draw(opened[f"val/{name}"], per_group=2) for name in ("plain", "pairs")}
        rows = [score(name, doap.load(name, device="cpu"), tests) for name in BASELINES]
        (work / "recipe.toml").write_text(RECIPE.format(steps=options.steps))
        for name in ("plain", "pairs"):
            train(work, name, options.seed)
            rows.append(score(f"fast, trained on {name}", doap.load(work / name / "best.safetensors"), tests))
    settings = {"steps": options.steps, "photos": dict(zip(("train", "val"), options.per_split, strict=True))}
    groups = {path: len(found) for path, found in opened.items()}
    record.write(options.out, options.seed, {**settings, "extent": EXTENT, "groups": groups, "map": rows})


def choose(ledger: Path, split: str, count: int, seed: int) -> list[str]:
    """Return photos of a split, from as many scenes as possible."""
    scenes: dict[str, list[str]] = {}
    with ledger.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["split"] == split:
                scenes.setdefault(row["place"], []).append(row["file"])
    random = np.random.default_rng(seed)
    shuffled = [[names[index] for index in random.permutation(len(names))] for names in scenes.values()]
    longest = max(map(len, shuffled))
    return [names[turn] for turn in range(longest) for names in shuffled if turn < len(names)][:count]


def write_pairs(photos: Path, names: list[str], out: Path, seed: int) -> None:
    """Write photos in grey, and the same photos in the synthetic second modality."""
    for number, name in enumerate(names):
        random = np.random.default_rng([seed, number])
        image = read_grey(photos / name)
        inverted = (1 - image / 255.0) ** random.uniform(0.6, 1.6)
        changed = cv2.GaussianBlur(255 * inverted, (0, 0), random.uniform(0.3, 1.0))
        for modality, pixels in (("visible", image), ("inverted", np.rint(changed).astype(np.uint8))):
            path = (out / modality / name).with_suffix(".png")
            path.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(path), pixels)


def build_sets(folder: Path) -> None:
    """Build a patch set of the pairs, and one of synthetic views of the plain photos."""
    visible, inverted = folder / "visible", folder / "inverted"
    build_from_pairs(visible, inverted, folder / "pairs", extent=EXTENT, keypoints=KEYPOINTS)
    views = SyntheticViews(count=2, keypoints=2 * KEYPOINTS)
    build_from_images(visible, folder / "plain", extent=EXTENT, views=views, tracks=False)


def train(work: Path, name: str, seed: int) -> None:
    """Train a network on a set of the `train` scenes."""
    words = [sys.executable, "-m", "doap", "train", "recipe.toml", "--data", f"train/{name}", "--out", name]
    subprocess.run([*words, "--validation", f"val/{name}", "--seed", str(seed)], check=True, cwd=work)


def score(name: str, describer: doap.Describer, tests: dict[str, PatchSample]) -> dict[str, Any]:
    """Return the mAP of a descriptor on each test."""
    row = {"descriptor": name, **{test: round(validate(describer, sample).map, 4) for test, sample in tests.items()}}
    print(row, flush=True)
    return row


if __name__ == "__main__":
    main()
