"""Does optimising Average Precision win? Compare the two losses under equal conditions, with five seeds each.

    python benchmarks/ap_or_triplet.py TRAIN VALIDATION SCENES --runs RUNS --out results/ap-or-triplet.json

TRAIN and VALIDATION are sets of tracks of different scenes; SCENES contains the validation scenes with camera poses
(`doap data from-poses`). A condition is the number of patches per group and the sampler. In each condition, each loss

1. is trained with each learning rate of `RATES` and the seed `TUNING_SEED`; the rate with the highest validation mAP is
   selected,
2. is trained with that rate and each of the other seeds.

All runs have the same network, batch size, number of steps and augmentation. Two runs with the same seed see the same
batches, so differences between the losses are paired by seed. Their 95 % intervals are Student's t intervals over the
seeds. A difference counts as a win only if the intervals of validation mAP and of pose AUC@10 are both above zero.

Finished runs are not repeated: rerun the same command to continue. Two runs are active at a time, one per core.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import record
import torch
from scipy.stats import t as student

import doap
import losses
from doap.detectors import colmap
from doap.evaluation.cached_describer import CachedDescriber
from doap.evaluation.homography import area_under_recall
from doap.evaluation.pair_matcher import RATIOS, PairMatcher, SharedKeypoints
from doap.evaluation.pose import PoseBenchmark, pose_errors
from doap.evaluation.scenes import mean_of_scenes

LOSSES = {"AP": {"name": "listwise-ap"}, "triplet": {"name": "hardest-triplet"}}
SAMPLERS: dict[str, dict[str, Any]] = {
    "random groups": {"name": "groups"},
    "few models": {"name": "sources", "sources_per_batch": 4},
}
PER_GROUP = (2, 4, 8)
RATES = (1.0, 3.0, 10.0)
TUNING_SEED = 100
BATCH_SIZE = 512
POSE_KEYPOINTS = 1024


@dataclass(frozen=True)
class Cell:
    """One loss in one condition."""

    loss: str
    per_group: int
    sampler: str

    def recipe(self, rate: float, steps: int) -> losses.Recipe:
        """Return the recipe of this cell."""
        return {
            "data": {"batch_size": BATCH_SIZE, "per_group": self.per_group},
            "sampler": SAMPLERS[self.sampler],
            "augmentation": {"frame_jitter": 0.05},
            "network": {"dropout": 0.0},
            "loss": LOSSES[self.loss],
            "optimiser": {"learning_rate": rate},
            "schedule": {"steps": steps},
        }

    def folder(self, rate: float, seed: int, steps: int) -> str:
        """Return the name of the folder of a run."""
        return f"{self.loss}-{self.per_group}-{self.sampler.replace(' ', '-')}-rate{rate:g}-seed{seed}-{steps}"


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("train", type=Path, help="training set of tracks")
    parser.add_argument("validation", type=Path, help="validation set of tracks")
    parser.add_argument("scenes", type=Path, help="validation scenes with camera poses")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--steps", type=int, default=400, help="steps per run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--per-group", type=int, nargs="+", default=PER_GROUP, choices=PER_GROUP)
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS), choices=list(SAMPLERS))
    options = parser.parse_args()
    conditions = list(product(options.per_group, options.samplers))
    cells = [Cell(loss, *condition) for condition in conditions for loss in LOSSES]
    rows: dict[str, dict[str, Any]] = {}

    def train(cell: Cell, rate: float, seed: int) -> dict[str, Any]:
        out = options.runs / cell.folder(rate, seed, options.steps)
        recipe = cell.recipe(rate, options.steps)
        end = losses.train_on_one_core(recipe, seed, options.train, options.validation, out)
        return {**vars(cell), "rate": rate, "seed": seed, **end, "run": out.name}

    with ThreadPoolExecutor(2) as pool:
        tuned = list(pool.map(lambda one: train(*one, TUNING_SEED), product(cells, RATES)))
        rates = {cell: best_rate(tuned, cell) for cell in cells}
        wanted = [(cell, rates[cell], seed) for seed in options.seeds for cell in cells]
        for row in pool.map(lambda one: train(*one), wanted):
            rows[row["run"]] = row
            print(json.dumps({key: row[key] for key in ("run", "map", "fpr95")}), flush=True)
    add_pose(list(rows.values()), options.scenes, options.runs)
    final = list(rows.values())
    figures = {
        "steps": options.steps,
        "batch size": BATCH_SIZE,
        "tuning": tuned,
        "rates": {f"{cell.loss}, {cell.per_group}, {cell.sampler}": rate for cell, rate in rates.items()},
        "runs": final,
        "differences": [difference(final, *condition) for condition in conditions],
    }
    record.write(options.out, options.seed, figures)


def best_rate(tuned: Sequence[dict[str, Any]], cell: Cell) -> float:
    """Return the learning rate with the highest validation mAP of the tuning runs of a cell."""
    own = [row for row in tuned if all(row[key] == value for key, value in vars(cell).items())]
    return float(max(own, key=lambda row: row["map"])["rate"])


def add_pose(rows: Sequence[dict[str, Any]], scenes: Path, runs: Path) -> None:
    """Add the pose AUC@10 on the validation scenes to each run; it is stored beside the run."""
    torch.set_num_threads(2)
    benchmark = PoseBenchmark(scenes, test="taj_mahal,fountain")
    shared = SharedKeypoints(colmap(), POSE_KEYPOINTS)
    for row in rows:
        stored = runs / row["run"] / "pose.json"
        if not stored.exists():
            descriptor = doap.load(runs / row["run"] / "last.safetensors")
            matcher = PairMatcher(CachedDescriber(descriptor, None), shared)
            stored.write_text(json.dumps(best_area(matcher, benchmark)))
        row["pose"] = json.loads(stored.read_text())


def best_area(matcher: PairMatcher, benchmark: PoseBenchmark) -> float:
    """Return the AUC@10 at the ratio threshold that suits the descriptor best."""
    labels = [pair.scene for pair in benchmark.test]

    def area(ratio: float) -> float:
        errors = pose_errors(matcher, benchmark.test, ratio, benchmark.settings, [0])
        return mean_of_scenes(labels, errors, lambda some: area_under_recall(some.ravel(), 10))

    return max(area(ratio) for ratio in RATIOS)


def difference(rows: Sequence[dict[str, Any]], per_group: int, sampler: str) -> dict[str, Any]:
    """Return AP minus triplet in one condition, paired by seed, with a 95 % interval."""
    result: dict[str, Any] = {"per_group": per_group, "sampler": sampler}
    for figure in ("map", "pose"):
        values = {
            (row["loss"], row["seed"]): row[figure]
            for row in rows
            if (row["per_group"], row["sampler"]) == (per_group, sampler)
        }
        paired = [values["AP", seed] - values["triplet", seed] for loss, seed in values if loss == "AP"]
        mean = statistics.mean(paired)
        half = float(student.ppf(0.975, len(paired) - 1)) * statistics.stdev(paired) / len(paired) ** 0.5
        result[figure] = {
            "AP": statistics.mean(value for (loss, _), value in values.items() if loss == "AP"),
            "triplet": statistics.mean(value for (loss, _), value in values.items() if loss == "triplet"),
            "difference": mean,
            "low": mean - half,
            "high": mean + half,
        }
    return result


if __name__ == "__main__":
    main()
