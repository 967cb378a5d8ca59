"""Is a newly trained descriptor better than the shipped one? Score weights on the validation scenes.

    python benchmarks/candidates.py SCENES SEQUENCES doap-128 rootsift RUN/last.safetensors --runs RUNS --out OUT.json

SCENES contains fountain and taj_mahal from `doap data from-poses`, SEQUENCES the planar sequences of
`scripts/validation_sequences.py`. Poses are estimated for more pairs than in the benchmarks of single settings, because
candidates differ by a point or two. Scores are stored in RUNS: rerun the same command to continue.
"""

from __future__ import annotations

from pathlib import Path

import record
import training_runs

import doap
from doap.descriptor import Descriptor

IMAGES, PAIRS = 60, 400


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("scenes", type=Path, help="scenes of `doap data from-poses`")
    parser.add_argument("sequences", type=Path, help="planar validation sequences")
    parser.add_argument(
        "descriptors", nargs="+", help="files of weights, and names of shipped descriptors or baselines"
    )
    parser.add_argument("--runs", type=Path, required=True, help="folder for the scores")
    options = parser.parse_args()
    scorer = training_runs.Scorer(options.scenes, options.sequences, images=IMAGES, pairs=PAIRS)
    rows = []
    for source in options.descriptors:
        describer = doap.load(source)
        recipe = describer.metadata.get("recipe") if isinstance(describer, Descriptor) else None
        # Files of different runs may have the same name.
        scores = scorer.score(options.runs / describer.fingerprint(), describer)
        rows.append({"descriptor": Path(source).stem, **scores, "recipe": recipe})
        print({name: value for name, value in rows[-1].items() if name != "recipe"}, flush=True)
        record.write(options.out, options.seed, {"images": IMAGES, "pairs": PAIRS, "rows": rows})


if __name__ == "__main__":
    main()
