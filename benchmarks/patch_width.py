"""Which patch width suits real scenes? Train the small network on the same tracks, cut at several widths.

    recipes/track-sets.sh DATA TRACKS
    python benchmarks/patch_width.py TRACKS SEQUENCES --runs RUNS --out results/patch-width.json

Each width trains `recipes/tracks-fast.toml` with the same seeds, and is scored on the relative poses of the two
validation scenes and on planar sequences of validation photos (`scripts/validation_sequences.py`), at the width it was
trained with, or at each width of `--used-at`. RootSIFT is scored in the same way at SIFT's own width. The mAP of
validation patches does not compare widths, because their patches differ.

Finished runs are not repeated: rerun the same command to continue.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import record
import training_runs
from training_runs import Recipe

from doap.descriptor import Descriptor
from doap.training import read_recipe

RECIPE = Path(__file__).parents[1] / "recipes" / "tracks-fast.toml"
SCENES = {
    "train": (
        "brandenburg_gate",
        "piazza_san_marco",
        "lizard",
        "trevi_fountain",
        "british_museum",
        "kyiv_puppet_theater",
    ),
    "val": ("taj_mahal", "fountain"),
}


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("tracks", type=Path, help="folder written by recipes/track-sets.sh")
    parser.add_argument("sequences", type=Path, help="planar validation sequences")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the patch sets and runs")
    parser.add_argument("--extents", type=float, nargs="+", default=[1.0, 1.25, 1.5])
    parser.add_argument("--used-at", type=float, nargs="+", help="extents to score at (default: that of the training)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    recipe: Recipe = read_recipe(RECIPE).model_dump(mode="json", exclude_unset=True, exclude={"about"})
    scorer = training_runs.Scorer(options.tracks / "val" / "scenes", options.sequences)
    rows = [{"descriptor": "rootsift", "extent": 1.0, **scorer.score_descriptor("rootsift")}]
    for extent in options.extents:
        folder = options.runs / f"e{extent}"
        train, val = (cut_set(options.tracks, folder, split, extent) for split in ("train", "val"))
        for seed in options.seeds:
            run = folder / f"run{seed}"
            end = training_runs.train(recipe, seed, train, val, run)
            for used_at in options.used_at or [extent]:
                scores = scorer.score(run / f"at{used_at}", save_for_use(run, used_at))
                rows.append({"descriptor": "fast", "extent": extent, "used at": used_at, "seed": seed, **end, **scores})
                print(rows[-1], flush=True)
                record.write(options.out, options.seed, {"recipe": recipe, "scenes": SCENES, "rows": rows})


def cut_set(tracks: Path, folder: Path, split: str, extent: float) -> Path:
    """Cut the patches of a split at some width, unless they exist, and return the set."""
    merged = folder / f"{split}.patches"
    parts = [folder / split / f"{scene}.patches" for scene in SCENES[split]]
    for scene, part in zip(SCENES[split], parts, strict=True):
        built = tracks / split / "scenes" / scene
        command = ["doap", "data", "from-colmap", built / "sparse", built / "images", "--database"]
        command += [built / "database.db", "--extent", str(extent), "--scene", scene, "--out", part]
        if not part.exists():
            part.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(command, check=True)
    if not merged.exists():
        subprocess.run(["doap", "data", "merge", *parts, "--out", merged], check=True)
    return merged


def save_for_use(run: Path, extent: float) -> Path:
    """Save the last weights of a run as a descriptor that uses patches of some extent, and return the file."""
    return Descriptor.load(run / "last.safetensors").save(run / f"at{extent}.safetensors", extent=extent)


if __name__ == "__main__":
    main()
