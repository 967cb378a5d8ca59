"""How much accuracy does each byte of a descriptor buy? Train the small network with outputs of several sizes.

    python benchmarks/descriptor_size.py TRAIN.patches VAL.patches SCENES SEQUENCES --runs RUNS \\
        --out results/descriptor-size.json

Each output trains `recipes/weights/6-fast.toml` for the same number of batches, and is scored on the relative poses of
the two validation scenes (SCENES) and on planar sequences of validation photos (SEQUENCES, from
`tools/validation_sequences.py`). Bits are trained through their signs, with the loss of `doap-256bit`. One more
descriptor of 256 bits starts from 128 floats: both are trained for half of the batches, so the total is the same.
RootSIFT and TEBLID are scored in the same way.

With several seeds, a row has the mean and the standard deviation of the runs that are finished. Finished runs are not
repeated: rerun the same command to continue, also with more seeds.
"""

from __future__ import annotations

import statistics
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import record
import training_runs
from training_runs import Recipe

import doap
from doap.data.store import check_set
from doap.training import read_recipe
from doap.types import Kind

RECIPE = Path(__file__).parents[1] / "recipes" / "weights" / "6-fast.toml"
REFERENCES = ("rootsift", "teblid")
BITS_LOSS = {"bins": 8, "straight_through": True}


class Output(NamedTuple):
    """Kind and size of a descriptor, and the output that its network is first trained with, if any."""

    kind: Kind
    dim: int
    first: Output | None = None

    @property
    def name(self) -> str:
        """Name of the descriptor, and of the folder of its runs."""
        name = f"{self.dim} {'bits' if self.kind == 'binary' else 'floats'}"
        return f"{name}, from {self.first.name}" if self.first else name


FLOATS = Output("real", 128)
OUTPUTS = (
    Output("binary", 128),
    Output("binary", 256),
    Output("binary", 512),
    Output("real", 32),
    Output("real", 64),
    FLOATS,
    Output("binary", 256, FLOATS),
)


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("train", type=Path, help="training set")
    parser.add_argument("validation", type=Path, help="validation set")
    parser.add_argument("scenes", type=Path, help="validation scenes with camera poses")
    parser.add_argument("sequences", type=Path, help="planar validation sequences")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--steps", type=int, default=2000, help="number of batches")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="seeds of the runs")
    parser.add_argument("--parallel", type=int, default=1, help="number of runs that are active at a time")
    options = parser.parse_args()
    recipe: Recipe = read_recipe(RECIPE).model_dump(mode="json", exclude_unset=True, exclude={"about"})
    contents = check_set(options.train)
    settings = {
        "training_set": {"groups from tracks": contents.from_tracks, "groups from photos": contents.from_photos},
        "steps": options.steps,
        "recipe": recipe,
        "bits_loss": BITS_LOSS,
    }
    scorer = training_runs.Scorer(options.scenes, options.sequences)
    references = [
        {"descriptor": name, "bytes": size_of(name), **scorer.score(options.runs / name, name)} for name in REFERENCES
    ]
    train = partial(train_output, recipe, options.steps, options.train, options.validation, options.runs)
    planned = [*product(options.seeds, OUTPUTS)]
    finished: dict[Output, list[dict[str, Any]]] = {}
    with ThreadPoolExecutor(options.parallel) as pool:
        for (seed, output), run in zip(planned, pool.map(lambda one: train(*one), planned), strict=True):
            finished.setdefault(output, []).append({"seed": seed, **run["end"], **scorer.score(run["folder"])})
            print(output.name, finished[output][-1], flush=True)
            rows = [*references, *(summarise(one, runs) for one, runs in finished.items())]
            record.write(options.out, options.seed, {**settings, "rows": rows})


def train_output(
    recipe: Recipe, steps: int, training_set: Path, validation_set: Path, folder: Path, seed: int, output: Output
) -> dict[str, Any]:
    """Train one output with one seed, unless it is finished; return its folder and its mAP and FPR95 of patches."""
    network = {**recipe["network"], "kind": output.kind, "dim": output.dim}
    run = folder / f"{output.name} {seed}".replace(",", "").replace(" ", "-")
    if output.first:
        steps //= 2
        first = train_output(recipe, steps, training_set, validation_set, run / "first", seed, output.first)
        network["init"] = str(first["folder"] / "last.safetensors")
    loss = BITS_LOSS if output.kind == "binary" else recipe["loss"]
    sections = {**recipe, "network": network, "loss": loss, "schedule": {"steps": steps}}
    end = training_runs.train(sections, seed, training_set, validation_set, run)
    return {"folder": run, "end": {"map": end["map"], "fpr95": end["fpr95"]}}


def summarise(output: Output, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean and, with several seeds, the standard deviation of each figure, and the runs."""
    columns = {name: [run[name] for run in runs] for name in runs[0] if name != "seed"}
    means = {name: statistics.mean(column) for name, column in columns.items()}
    deviations = {name: statistics.stdev(column) for name, column in columns.items()} if len(runs) > 1 else {}
    size = output.dim // 8 if output.kind == "binary" else 4 * output.dim
    return {"descriptor": output.name, "bytes": size, **means, "deviations": deviations, "runs": runs}


def size_of(name: str) -> int:
    """Return the bytes of a descriptor, with four per float."""
    descriptor = doap.load(name)
    return descriptor.dim // 8 if descriptor.kind == "binary" else 4 * descriptor.dim


if __name__ == "__main__":
    main()
