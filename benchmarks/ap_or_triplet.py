"""Does optimising Average Precision win? Compare the two losses under equal conditions, and the levers of AP.

    for experiment in losses levers batches; do
        python benchmarks/ap_or_triplet.py $experiment TRAIN VALIDATION SCENES SEQUENCES --runs RUNS \\
            --out results/ap-$experiment.json
    done

TRAIN and VALIDATION are sets of tracks of different scenes, SCENES has the validation scenes with camera poses
(`doap data from-poses`), and SEQUENCES planar sequences of validation photos (`scripts/validation_sequences.py`).

`losses`: a condition is the number of patches per group and the sampler. In each condition, each loss is trained with
each learning rate of `RATES` and each of `TUNING_SEEDS`. The rate with the highest mean validation mAP is selected, and
the loss is trained with it and each of the other seeds. `levers`: each lever changes one setting of `BASE`. `batches`:
`BASE` with other batch sizes, as in the paper's figure 4, and the same number of patches in total.

All other runs have the same network, batch size and number of steps. Two runs with the same seed see the same batches
if they have the same sampler, so differences are paired by seed; their 95 % intervals are Student's t intervals over
the seeds.

The rule, fixed before the runs: a loss or lever wins if the intervals of its difference in validation mAP and in pose
AUC@10 are both above zero, and it is adopted if the first one is above zero and neither pose AUC@10 nor homography
AUC@1 has an interval below zero. All other differences are inconclusive.

Finished runs are not repeated: rerun the same command to continue. Two runs are active at a time, one per core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import record
import training_runs
from training_runs import Recipe

LOSSES: dict[str, dict[str, Any]] = {
    "AP": {"name": "listwise-ap"},
    "triplet": {"name": "hardest-triplet"},
    "AP with second-order similarity": {"name": "listwise-ap", "second_order": 0.1},
}
SAMPLERS: dict[str, dict[str, Any]] = {
    "random groups": {"name": "groups"},
    "few scenes": {"name": "sources", "sources_per_batch": 2},
}
PER_GROUP = [4, 8, 2]
# A pilot with 200 steps had its best results at 3 to 30, and seeds that differ by 0.005 in mAP. With 800 steps and four
# patches per group, the three rates differ by less than 0.002 for both losses.
RATES = (3.0, 10.0, 30.0)
TUNING_SEEDS = [100]
SHARED: Recipe = {
    "data": {"batch_size": 512},
    "augmentation": {"frame_jitter": 0.05},
    "network": {"name": "fast"},
}
BASE: Recipe = {
    "data": {"per_group": 4},
    "sampler": SAMPLERS["random groups"],
    "loss": LOSSES["AP"],
    "optimiser": {"learning_rate": 10.0},
}
LEVERS: dict[str, Recipe] = {
    "base": {},
    "margin 0.2": {"loss": {"margin": 0.2}},
    "second-order similarity": {"loss": {"second_order": 0.1}},
}
BATCH_SIZES = (512, 256, 1024, 2048)
FIGURES = ("map", "fpr95", "pose AUC@10", *training_runs.HOMOGRAPHY)


@dataclass(frozen=True)
class Run:
    """One run: the name of what is compared, its recipe and its seed."""

    name: str
    recipe: Recipe
    seed: int


def merge(*recipes: Recipe) -> Recipe:
    """Return the sections of all recipes; later ones override earlier ones key by key."""
    return {
        section: {key: value for recipe in recipes for key, value in recipe.get(section, {}).items()}
        for section in dict.fromkeys(name for recipe in recipes for name in recipe)
    }


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("experiment", choices=["losses", "levers", "batches"])
    parser.add_argument("train", type=Path, help="training set of tracks")
    parser.add_argument("validation", type=Path, help="validation set of tracks")
    parser.add_argument("scenes", type=Path, help="validation scenes with camera poses")
    parser.add_argument("sequences", type=Path, help="planar validation sequences")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--steps", type=int, default=800, help="steps per run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument(
        "--per-group", type=int, nargs="+", default=PER_GROUP, help="patches per group of the conditions"
    )
    parser.add_argument(
        "--losses", nargs="+", choices=LOSSES, default=["AP", "triplet"], help="losses to compare with each other"
    )
    parser.add_argument(
        "--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS), help="samplers of the conditions"
    )
    parser.add_argument(
        "--levers", nargs="+", choices=LEVERS, default=list(LEVERS), help="levers to compare with the base"
    )
    options = parser.parse_args()

    def train_all(runs: Iterable[Run]) -> list[dict[str, Any]]:
        def train(run: Run) -> dict[str, Any]:
            recipe = merge(SHARED, {"schedule": {"steps": options.steps}}, run.recipe)
            rate = recipe["optimiser"]["learning_rate"]
            words = f"{run.name} rate {rate:g} seed{run.seed} {options.steps}"
            out = options.runs / words.replace(",", "").replace(" ", "-")
            end = training_runs.train(recipe, run.seed, options.train, options.validation, out)
            print(
                f"{run.name:40} rate {rate:2g} seed {run.seed:3}  mAP {end['map']:.4f}  FPR95 {end['fpr95']:.4f}",
                flush=True,
            )
            return {"name": run.name, "seed": run.seed, **end, "run": out.name}

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(train, runs))

    experiments = {
        "losses": lambda: conditions(train_all, options.losses, options.samplers, options.per_group, options.seeds),
        "levers": lambda: variants({name: LEVERS[name] for name in options.levers}, options.seeds),
        "batches": lambda: variants(batches(options.steps), options.seeds),
    }
    scorer = training_runs.Scorer(options.scenes, options.sequences)
    recipes: dict[str, Recipe] = {}
    rows: list[dict[str, Any]] = []
    # One condition or lever after the other: each that is finished is a result.
    for runs in experiments[options.experiment]():
        recipes |= {run.name: merge(SHARED, run.recipe) for run in runs}
        for row in train_all(runs):
            row |= scorer.score(options.runs / row["run"])
            print({key: row[key] for key in ("name", "seed", *FIGURES)}, flush=True)
            rows.append(row)
        figures = {"steps": options.steps, "recipes": recipes, "runs": rows, "differences": differences(rows)}
        record.write(options.out, options.seed, figures)


def conditions(
    train_all: Callable[[Iterable[Run]], list[dict[str, Any]]],
    losses: list[str],
    samplers: list[str],
    sizes: list[int],
    seeds: list[int],
) -> Iterator[list[Run]]:
    """For each condition, tune the learning rate of each loss; yield the runs with the best rates."""
    for sampler, per_group in product(samplers, sizes):
        best = []
        for loss in losses:
            name = f"{loss}, {per_group} per group, {sampler}"
            cell: Recipe = {
                "data": {"per_group": per_group},
                "sampler": SAMPLERS[sampler],
                "loss": LOSSES[loss],
            }
            recipes = [{**cell, "optimiser": {"learning_rate": rate}} for rate in RATES]
            rows = train_all(Run(name, recipe, seed) for recipe in recipes for seed in TUNING_SEEDS)
            scores = np.array([row["map"] for row in rows]).reshape(len(RATES), len(TUNING_SEEDS)).mean(axis=1)
            best.append((name, recipes[int(scores.argmax())]))
        yield [Run(name, recipe, seed) for seed in seeds for name, recipe in best]


def variants(changes: dict[str, Recipe], seeds: list[int]) -> Iterator[list[Run]]:
    """Yield the runs of each change of the base recipe."""
    for name, change in changes.items():
        yield [Run(name, merge(BASE, change), seed) for seed in seeds]


def batches(steps: int) -> dict[str, Recipe]:
    """Return the changes that give each batch size the same number of patches; the first one is the base."""
    base = BATCH_SIZES[0]
    return {
        "base" if size == base else f"batches of {size:,}": {
            "data": {"batch_size": size},
            "schedule": {"steps": steps * base // size},
        }
        for size in BATCH_SIZES
    }


def differences(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return AP minus triplet in each condition, or each lever minus the base, of the seeds that both have."""
    values = {(row["name"], row["seed"]): row for row in rows}
    names = list(dict.fromkeys(name for name, _ in values))
    found = {}
    for name in names:
        loss, separator, condition = name.partition(", ")
        other = f"triplet{separator}{condition}" if loss in LOSSES else "base"
        seeds = [seed for one, seed in values if one == name and (other, seed) in values]
        if other == name or len(seeds) < 2:
            continue
        found[f"{name} − {other}"] = {
            figure: training_runs.paired(
                [values[name, seed][figure] for seed in seeds], [values[other, seed][figure] for seed in seeds]
            )
            for figure in FIGURES
        }
    return found


if __name__ == "__main__":
    main()
