"""Compare the listwise AP loss with the hardest-triplet loss, and training settings with each other.

    python benchmarks/losses.py TRAIN VALIDATION --steps 120 --out results/losses-sweep.json
    python benchmarks/losses.py TRAIN VALIDATION --minutes 10 --out results/losses.json \\
        --variants "AP, 8 bins, squared, rate 3" "triplet, rate 3" --seeds 0 1 2
    python benchmarks/losses.py TRAIN VALIDATION --steps 300 --levers --out results/levers.json
    python benchmarks/losses.py TRAIN VALIDATION --steps 200 --init real.safetensors --variants "bits, 16 bins" …

The third command changes one setting at a time from the default recipe (`base`); the fourth trains binary descriptors.

Each run is `doap train` on one core. Two runs are active at a time, so that disturbances affect both. Variants are
compared on the validation set, which has other scenes than the training set. Finished runs are not repeated. With
`--steps`, batches of 4,096 in micro-batches, which need a second forward pass, run 3/16 of the steps: the same work.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import record
import training_runs
from training_runs import Recipe

AP, TRIPLET = {"name": "listwise-ap", "distance": "euclidean"}, {"name": "hardest-triplet"}
SQUARED = {**AP, "distance": "squared", "bins": 8}
RATES = (0.3, 3.0, 10.0)
EIGHT_SOURCES = {"name": "sources", "sources_per_batch": 8}
SWEEP: dict[str, Recipe] = {
    "triplet": {"loss": TRIPLET},
    "AP, 25 bins": {"loss": {**AP, "bins": 25}},
    "AP, 8 bins": {"loss": {**AP, "bins": 8}},
    "AP, 4 bins": {"loss": {**AP, "bins": 4}},
    "AP, 2 bins": {"loss": {**AP, "bins": 2}},
    "AP, 8 bins, squared": {"loss": SQUARED},
    "AP, 8 bins, 8 sources": {"loss": {**AP, "bins": 8}, "sampler": EIGHT_SOURCES},
    "AP, 8 bins, M = 4,096": {"loss": {**AP, "bins": 8}, "data": {"batch_size": 4096}, "run": {"micro_batch": 1024}},
    **{f"triplet, rate {rate:g}": {"loss": TRIPLET, "optimiser": {"learning_rate": rate}} for rate in RATES},
    **{
        f"AP, 8 bins, squared, rate {rate:g}": {"loss": SQUARED, "optimiser": {"learning_rate": rate}} for rate in RATES
    },
}
FOUR: Recipe = {"data": {"per_group": 4}}
NO_DROPOUT: Recipe = {"network": {"dropout": 0.0}}
JITTER = {"frame_jitter": 0.1}
DEGRADATION = {"blur": 2.0, "noise": 0.03, "jpeg": 0.8}
DEGRADED: Recipe = {**FOUR, "augmentation": {**JITTER, **DEGRADATION}, **NO_DROPOUT}
LEVERS: dict[str, Recipe] = {
    "base": {},
    "jitter 0.05": {"augmentation": {"frame_jitter": 0.05}},
    "jitter 0.1": {"augmentation": JITTER},
    "half tracks": {"sampler": {"name": "mixed", "tracks_share": 0.5}},
    # The following variants include the jitter that helped.
    "no dropout": {"augmentation": JITTER, **NO_DROPOUT},
    "4 of a group": {**FOUR, "augmentation": JITTER},
    "degradation": DEGRADED,
    "degradation, triplet": {**DEGRADED, "loss": TRIPLET},
    "degradation, 8 of a group, jitter 0.15": {
        "data": {"per_group": 8},
        "augmentation": {**DEGRADATION, "frame_jitter": 0.15},
        **NO_DROPOUT,
    },
    "light": {"augmentation": {**JITTER, "gain": 0.3, "offset": 0.1}},
    "M = 4,096": {
        "data": {"batch_size": 4096},
        "augmentation": JITTER,
        "run": {"micro_batch": 1024},
        "optimiser": {"learning_rate": 1.5},
    },
    "two scenes": {"augmentation": JITTER, "sampler": {"name": "scenes", "scenes_per_batch": 2}},
    "rate 6": {"augmentation": JITTER, "optimiser": {"learning_rate": 6.0}},
    "FastAP": {"augmentation": JITTER, "loss": {"form": "fastap"}},
    "jitter 0.15": {"augmentation": {"frame_jitter": 0.15}},
    "16 bins": {"augmentation": JITTER, "loss": {"bins": 16}},
}
# Binary descriptors on top of a real-valued one (--init), with all settings that helped it.
BITS: dict[str, Recipe] = {
    f"bits, {name}": {
        **DEGRADED,
        "network": {"kind": "binary", "dim": 256, "inner": 128, "dropout": 0.0},
        "loss": loss,
        "optimiser": {"learning_rate": rate},
    }
    for name, loss, rate in (
        ("256 bins", {}, 1.0),
        ("16 bins", {"bins": 16}, 1.0),
        ("16 bins, straight-through", {"bins": 16, "straight_through": True}, 1.0),
    )
}
# The loss sweep uses a learning rate of 1 unless a variant sets another; levers use the default.
VARIANTS = {name: {"optimiser": {"learning_rate": 1.0}, **recipe} for name, recipe in SWEEP.items()}
VARIANTS |= LEVERS | BITS


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("train", type=Path, help="training set")
    parser.add_argument("validation", type=Path, help="validation set")
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), metavar="NAME", help="default: all losses")
    parser.add_argument("--levers", action="store_true", help="run all levers instead of all losses")
    parser.add_argument("--init", type=Path, help="binary variants: initial real-valued descriptor")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="one run per variant and seed")
    parser.add_argument("--minutes", type=float, help="wall-clock time per run")
    parser.add_argument("--steps", type=int, default=120, help="steps per run, if --minutes is not given")
    parser.add_argument("--runs", type=Path, help="folder of the runs (default: a temporary one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        runs = options.runs or Path(folder)
        variants = options.variants or list(LEVERS if options.levers else SWEEP)
        wanted = [(variant, seed) for seed in options.seeds for variant in variants]
        ends = pool.map(lambda one: run(*one, options, runs), wanted)
        rows = []
        for (variant, seed), end in zip(wanted, ends, strict=True):
            rows.append({"variant": variant, "seed": seed, **end})
            print(f"{variant:24} seed {seed}  {end['steps']:5} steps  mAP {end['map']:.4f}  FPR95 {end['fpr95']:.4f}")
            summary = {name: summarise(rows, name) for name in dict.fromkeys(row["variant"] for row in rows)}
            recipes = {name: VARIANTS[name] for name in summary}
            budget = {"minutes": options.minutes} if options.minutes else {"steps": options.steps}
            figures = {**budget, "threads": 1, "recipes": recipes, "runs": rows, "summary": summary}
            record.write(options.out, options.seed, figures)


def run(variant: str, seed: int, options: argparse.Namespace, runs: Path) -> dict[str, Any]:
    """Train a variant on one core; see `training_runs.train`."""
    length = f"{options.minutes:g}m" if options.minutes else f"{options.steps}"
    out = runs / f"{variant.replace(' ', '-').replace(',', '')}-{seed}-{length}"
    changes = VARIANTS[variant]
    defaults: Recipe = {}
    if not options.minutes:
        in_micro_batches = "micro_batch" in changes.get("run", {})
        defaults["schedule"] = {"steps": options.steps * 3 // 16 if in_micro_batches else options.steps}
    if options.init:
        defaults["network"] = {"init": str(options.init)}
    sections = {name: {**defaults.get(name, {}), **changes.get(name, {})} for name in {*defaults, *changes}}
    budget = ["--budget", f"{options.minutes}m"] if options.minutes else []
    return training_runs.train(sections, seed, options.train, options.validation, out, *budget)


def summarise(rows: list[dict[str, Any]], variant: str) -> dict[str, Any]:
    """Return mean, minimum and maximum over the seeds."""
    runs = [row for row in rows if row["variant"] == variant]
    return {
        key: {"mean": statistics.mean(values), "min": min(values), "max": max(values)}
        for key in ("map", "fpr95", "steps")
        for values in [[row[key] for row in runs]]
    }


if __name__ == "__main__":
    main()
