"""Does optimising Average Precision win? Losses, tuned alike, compared with scenes as the unit; and ablations.

    for set in train evaluation; do recipes/scenes.sh DATA $set SCENES; done
    for experiment in tune losses l2net tune-batches batches bins transformer mining binary extent; do
        python benchmarks/losses.py DATA/photos SCENES WORK --experiment $experiment --out results/losses.json
    done

`training_runs.py` has the scenes, the folds and the figures. The experiments are

    tune          For each loss nine configurations, three learning rates × three values of a parameter of its own, with
                  four patches per group, and then the best one with two and with eight. The one with the highest mean
                  mAP on the tuning scenes is used in all other experiments.
    losses        All losses, with and without the second-order term, two seeds.
    l2net         The two losses with the best pose again, with the larger network, two seeds.
    tune-batches, batches   `BASE` and the triplet loss with other batch sizes and the same number of patches, as in the
                  paper's figure 4; first the learning rate of each on the tuning scenes.
    bins          AP with Euclidean distances, as in the paper, with other numbers of bins.
    transformer   L2Net with and without the spatial transformer, with two strengths of frame jitter.
    mining        Batches of two scenes: all patches are distractors, those of distant clusters, or those of the other
                  scene.
    binary        256 bits: tanh with one bin per bit, or signs with eight bins.
    extent        Patches of 9, 12, 15 and 18 σ.

The rule, fixed before the first run: seeds are averaged, and two names of an experiment are compared by their
differences in the eleven scenes: mean, 95 % interval of Student's t, and the exact sign-flip test, corrected by Holm
for all comparisons of the experiment with its first name (`BASE` in `losses`) in one figure. One wins over the other in
a figure if the corrected p is below 0.05. `BASE` stays the default unless another loss wins over it in pose and loses
in no other figure. With a standard deviation of 2 points between the scenes' differences, an interval has ±1.4 points.

Every finished run is stored at once: rerun the same command to continue. Two runs are active at a time, one per core.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import record
import torch
from comparison import compare
from torch import Tensor
from torch.nn.functional import softplus
from training_runs import FIGURES, FOLDS, TUNE, Cut, Recipe, Run, finish, key, merge

from doap._support.settings import StrictModel
from doap.loss import Loss
from doap.loss.gathered_batch import relax
from doap.metrics.pairs import QueryPairs
from doap.types import Relation

LOSSES: dict[str, tuple[dict[str, Any], str, Sequence[float], Sequence[float]]] = {
    "AP, Euclidean bins": ({"name": "listwise-ap", "distance": "euclidean"}, "bins", (10, 25, 40), (3, 10, 30)),
    "AP, squared bins": ({"name": "listwise-ap"}, "bins", (5, 8, 16), (3, 10, 30)),
    "AP with margin": ({"name": "listwise-ap"}, "margin", (0.05, 0.1, 0.2), (3, 10, 30)),
    "FastAP": ({"name": "listwise-ap", "form": "fastap"}, "bins", (8, 16, 25), (3, 10, 30)),
    "InfoNCE": ({"name": "losses:InfoNCE"}, "temperature", (0.05, 0.1, 0.2), (0.3, 1, 3)),
    "hardest triplet": ({"name": "hardest-triplet"}, "margin", (0.5, 1.0, 1.5), (3, 10, 30)),
}
"""Section of the recipe, own parameter with its values, and learning rates of each loss."""
BASE, TRIPLET = "AP, squared bins", "hardest triplet"
BATCH_SIZES = (256, 512, 1024, 2048, 4096)
SECOND_ORDER: Recipe = {"loss": {"second_order": 0.1}}
L2NET: Recipe = {"network": {"name": "l2net"}}
SHARED: Recipe = {
    "data": {"batch_size": 512, "per_group": 4},
    "augmentation": {"frame_jitter": 0.05},
    "network": {"name": "fast"},
    "schedule": {"steps": 800},
    "run": {"validate_every": 1_000_000, "checkpoint_every": 1_000_000, "log_every": 100},
}


class InfoNCE(Loss):
    """Multi-positive InfoNCE: −log of the softmax of each matching pair against all distractors of its query."""

    class Settings(StrictModel):
        temperature: float = 0.1

    settings: Settings

    def forward(self, descriptors: Tensor, groups: Tensor | Relation) -> Tensor:
        relation = groups if isinstance(groups, Relation) else Relation(groups)
        unit, queries = relax(descriptors, "euclidean"), QueryPairs(relation, 0, len(descriptors))
        rows = queries.rows
        logits = unit[rows] @ unit.T / self.settings.temperature
        same = relation.groups[rows, None] == relation.groups
        distractor = torch.ones_like(same)
        queries.fill_ignored(distractor, rows, False)
        against = logits.masked_fill(~distractor | same, -torch.inf).logsumexp(1, keepdim=True)
        # −log(eᵖ / (eᵖ + eᵈ)) = softplus(d − p)
        return softplus(against - logits)[same.scatter(1, rows[:, None], False)].mean()


Rows = Sequence[dict[str, Any]]


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("photos", type=Path, help="folder of the photos")
    parser.add_argument("scenes", type=Path, help="posed scenes: train and evaluation of recipes/scenes.sh")
    parser.add_argument("work", type=Path, help="folder of patch sets and runs")
    parser.add_argument("--experiment", choices=EXPERIMENTS, required=True)
    parser.add_argument("--minutes", type=float, default=140, help="start no run later than this")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    rows = read_rows(options.out)
    # A stage of an experiment begins when the runs that it depends on are finished.
    while time.monotonic() < end and (runs := remaining(EXPERIMENTS[options.experiment](rows), rows)):
        for row in finish(runs, options.photos, options.scenes, options.work, end):
            rows.append(row)
            print({name: row[name] for name in ("experiment", "name", "fold", "seed", "scenes")}, flush=True)
            record.write(options.out, options.seed, {"runs": rows, "differences": differences(rows)})


def remaining(runs: Iterable[Run], rows: Rows) -> list[Run]:
    """Return the runs that are not finished."""
    done = {key(row) for row in rows}
    return [run for run in runs if run.key not in done]


def read_rows(out: Path | None) -> list[dict[str, Any]]:
    """Return the finished runs of a file of results."""
    return json.loads(out.read_text())["runs"] if out and out.exists() else []


def tune(rows: Rows) -> Iterator[Run]:
    """Yield the configurations of all losses with four patches per group, and the best ones with two and eight."""
    for loss, (section, parameter, values, rates) in LOSSES.items():
        for rate, value in itertools.product(rates, values):
            recipe = merge(SHARED, {"loss": {**section, parameter: value}, "optimiser": {"learning_rate": rate}})
            yield Run("tune", f"{loss}; rate {rate:g}, {parameter} {value:g}, 4 per group", recipe, TUNE)
        if len(found := of(rows, "tune", loss)) >= len(rates) * len(values):
            best = max((row for row in found if row["name"].endswith("4 per group")), key=tuning_score)
            for size in (2, 8):
                recipe = merge(best["recipe"], {"data": {"per_group": size}})
                yield Run("tune", best["name"].replace("4 per group", f"{size} per group"), recipe, TUNE)


def of(rows: Rows, experiment: str, name: str) -> list[dict[str, Any]]:
    """Return the configurations of one name in an experiment."""
    return [row for row in rows if row["experiment"] == experiment and row["name"].startswith(f"{name};")]


def tuning_score(row: dict[str, Any]) -> float:
    """Return the mean mAP on the tuning scenes."""
    return mean([float(figures["mAP"]) for figures in row["scenes"].values()])


def best(rows: Rows, name: str, experiment: str = "tune") -> Recipe:
    """Return the recipe with the highest score among the configurations of one name."""
    recipe: Recipe = max(of(rows, experiment, name), key=tuning_score)["recipe"]
    return recipe


def losses(rows: Rows) -> Iterator[Run]:
    """Yield the runs of all losses; all losses of one fold and seed before the next one."""
    recipes = {loss: best(rows, loss) for loss in LOSSES}
    recipes |= {f"{loss} + second order": merge(recipe, SECOND_ORDER) for loss, recipe in recipes.items()}
    for seed in (0, 1):
        yield from variants("losses", recipes, seed)


def l2net(rows: Rows) -> Iterator[Run]:
    """Yield the runs of the two losses with the best pose, with the larger network."""
    scores = {name: mean(one["pose"] for one in found.values()) for name, found in averages(rows, "losses").items()}
    recipes = {row["name"]: row["recipe"] for row in rows if row["experiment"] == "losses"}
    first = sorted(scores, key=scores.__getitem__)[-2:]
    for seed in (0, 1):
        yield from variants("l2net", {name: merge(recipes[name], L2NET) for name in first}, seed)


def variants(experiment: str, recipes: dict[str, Recipe], seed: int = 0, cut: Cut = Cut()) -> Iterator[Run]:  # noqa: B008
    """Yield a run of each recipe in each fold."""
    for fold, (name, recipe) in itertools.product(range(FOLDS), recipes.items()):
        yield Run(experiment, name, recipe, fold, seed, cut)


def tune_batches(rows: Rows) -> Iterator[Run]:
    """Yield three learning rates for each loss and batch size."""
    for loss, size in itertools.product((BASE, TRIPLET), BATCH_SIZES):
        recipe = best(rows, loss)
        for factor in (1 / 3, 1, 3):
            rate = recipe["optimiser"]["learning_rate"] * factor
            changed = {"data": {"batch_size": size}, "optimiser": {"learning_rate": rate}}
            steps = {"schedule": {"steps": recipe["schedule"]["steps"] * recipe["data"]["batch_size"] // size}}
            yield Run("tune-batches", f"{loss}, {size:,}; rate {rate:g}", merge(recipe, changed, steps), TUNE)


def batches(rows: Rows) -> Iterator[Run]:
    """Yield both losses with each batch size at its best learning rate."""
    names = [f"{loss}, {size:,}" for size in BATCH_SIZES for loss in (BASE, TRIPLET)]
    yield from variants("batches", {name: best(rows, name, "tune-batches") for name in names})


def bins(rows: Rows) -> Iterator[Run]:
    """Yield AP with Euclidean distances and several numbers of bins."""
    recipe = best(rows, "AP, Euclidean bins")
    yield from variants(
        "bins", {f"{number} bins": merge(recipe, {"loss": {"bins": number}}) for number in (25, 5, 8, 10, 100)}
    )


def transformer(rows: Rows) -> Iterator[Run]:
    """Yield L2Net with and without the spatial transformer, half as long as other runs."""
    recipe = merge(best(rows, BASE), {"schedule": {"steps": 400}})
    for jitter in (0.05, 0.2):
        for name, cut in (("l2net", Cut()), ("l2net-st", Cut(patch_size=42))):
            changes: Recipe = {"network": {"name": name}, "augmentation": {"frame_jitter": jitter}}
            yield from variants("transformer", {f"{name}, jitter {jitter:g}": merge(recipe, changes)}, cut=cut)


def mining(rows: Rows) -> Iterator[Run]:
    """Yield the three sets of distractors within a scene."""
    recipe = merge(best(rows, BASE), {"sampler": {"name": "scenes"}})
    choices = {"all": {}, "mined": {"mining": True}, "none in the scene": {"scene_distractors": False}}
    yield from variants("mining", {name: merge(recipe, {"data": data}) for name, data in choices.items()})


def binary(rows: Rows) -> Iterator[Run]:
    """Yield both relaxations of binary codes, each with two learning rates."""
    recipe = merge(best(rows, BASE), {"network": {"kind": "binary", "dim": 256}})
    relaxations = {"tanh, 256 bins": {"bins": 256}, "signs, 8 bins": {"straight_through": True, "bins": 8}}
    yield from variants(
        "binary",
        {
            f"{name}, rate {rate:g}": merge(recipe, {"loss": loss, "optimiser": {"learning_rate": rate}})
            for name, loss in relaxations.items()
            for rate in (3, 10)
        },
    )


def extent(rows: Rows) -> Iterator[Run]:
    """Yield several widths of the patches."""
    for width in (1.0, 0.75, 1.25, 1.5):
        yield from variants("extent", {f"{12 * width:g} σ": best(rows, BASE)}, cut=Cut(extent=width))


EXPERIMENTS: dict[str, Callable[[Rows], Iterator[Run]]] = {
    "tune": tune,
    "losses": losses,
    "l2net": l2net,
    "tune-batches": tune_batches,
    "batches": batches,
    "bins": bins,
    "transformer": transformer,
    "mining": mining,
    "binary": binary,
    "extent": extent,
}


def averages(rows: Rows, experiment: str) -> dict[str, dict[str, dict[str, float]]]:
    """Return the figures of each name in an experiment by scene, averaged over the seeds."""
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for row in rows:
        if row["experiment"] == experiment:
            for scene, figures in row["scenes"].items():
                found.setdefault(row["name"], {}).setdefault(scene, []).append(figures)
    return {
        name: {
            scene: {figure: mean(one[figure] for one in several) for figure in several[0]}
            for scene, several in scenes.items()
        }
        for name, scenes in found.items()
    }


def differences(rows: Rows) -> dict[str, Any]:
    """Compare all names of each experiment with its first one, or with `BASE`, by figure."""
    found: dict[str, Any] = {}
    for experiment in dict.fromkeys(row["experiment"] for row in rows if row["fold"] != TUNE):
        scores = averages(rows, experiment)
        base = BASE if BASE in scores else next(iter(scores))
        for figure in FIGURES:
            by_scene = {name: {scene: one[figure] for scene, one in scenes.items()} for name, scenes in scores.items()}
            for name, difference in compare(by_scene, base).items():
                found.setdefault(experiment, {}).setdefault(f"{name} − {base}", {})[figure] = difference
    return found


if __name__ == "__main__":
    main()
