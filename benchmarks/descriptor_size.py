"""How much accuracy does each byte of a descriptor buy? Train the small network with outputs of several sizes.

    python benchmarks/descriptor_size.py TRAIN.patches VAL.patches SCENES SEQUENCES --runs RUNS \\
        --out results/descriptor-size.json

Each output trains `recipes/weights/7-fast.toml` for the same number of batches, and is scored on the relative poses of
the two validation scenes (SCENES) and on planar sequences of validation photos (SEQUENCES, from
`tools/validation_sequences.py`). Bits are trained through their signs, with the loss of `doap-256bit`. RootSIFT and
TEBLID are scored in the same way.

Finished runs are not repeated: rerun the same command to continue.
"""

from __future__ import annotations

from pathlib import Path

import record
import training_runs
from training_runs import Recipe

import doap
from doap.training import read_recipe

RECIPE = Path(__file__).parents[1] / "recipes" / "weights" / "7-fast.toml"
OUTPUTS = (("real", 32), ("real", 64), ("real", 128), ("binary", 128), ("binary", 256), ("binary", 512))
BITS_LOSS = {"bins": 8, "straight_through": True}


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("train", type=Path, help="training set")
    parser.add_argument("validation", type=Path, help="validation set")
    parser.add_argument("scenes", type=Path, help="validation scenes with camera poses")
    parser.add_argument("sequences", type=Path, help="planar validation sequences")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--steps", type=int, default=2000, help="number of batches")
    options = parser.parse_args()
    recipe: Recipe = read_recipe(RECIPE).model_dump(mode="json", exclude_unset=True, exclude={"about"})
    recipe["schedule"] = {"steps": options.steps}
    scorer = training_runs.Scorer(options.scenes, options.sequences)
    rows = [{"descriptor": name, **size_of(name), **scorer.score_descriptor(name)} for name in ("rootsift", "teblid")]
    for kind, dim in OUTPUTS:
        run = options.runs / f"{kind}-{dim}"
        network = {**recipe["network"], "kind": kind, "dim": dim}
        loss = BITS_LOSS if kind == "binary" else recipe["loss"]
        sections = {**recipe, "network": network, "loss": loss}
        end = training_runs.train(sections, options.seed, options.train, options.validation, run)
        rows.append({"descriptor": f"{dim} {kind}", **size_of(run / "last.safetensors"), **end, **scorer.score(run)})
        print(rows[-1], flush=True)
        record.write(options.out, options.seed, {"recipe": recipe, "bits_loss": BITS_LOSS, "rows": rows})


def size_of(source: str | Path) -> dict[str, int]:
    """Return the bytes of a descriptor, with four per float."""
    descriptor = doap.load(source)
    return {"bytes": descriptor.dim // 8 if descriptor.kind == "binary" else 4 * descriptor.dim}


if __name__ == "__main__":
    main()
