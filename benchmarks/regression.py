"""Compare ratios of times with the committed ones, and fail if one is larger beyond a tolerance.

    python benchmarks/regression.py --out regression.json

| ratio | committed in |
|---|---|
| listwise loss over a bare matrix product | results/loss.json |
| extraction over detector and network | results/extract.json |
| search of a flat index over FAISS | results/scale/index.json |

Both sides of a ratio are timed in turn in one run, so it depends little on the machine. A ratio may be `--tolerance`
times the committed one. The photos are the samples of the package; nothing else is needed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import extract
import numpy as np
import record
import scale_index
import torch

import doap
import loss
from doap.collection import FeatureSet
from doap.descriptor import Descriptor

RESULTS = Path(__file__).resolve().parents[1] / "results"
SAMPLES = Path(doap.__file__).parent / "samples"
SIZE, WAY = 1024, "doap, 25 bins"
DESCRIPTORS, QUERIES = 10_000, 1000


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("--tolerance", type=float, default=1.5, help="largest accepted factor over a committed ratio")
    parser.add_argument("--rounds", type=int, default=9, help="number of timed repetitions")
    parser.add_argument("--only", choices=RATIOS, help="measure only one ratio")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    rows = []
    for name in [options.only] if options.only else RATIOS:
        measure, committed = RATIOS[name]
        rows.append(compare(name, measure(options.rounds, options.seed), committed(), options.tolerance))
        print(rows[-1], flush=True)
    record.write(options.out, options.seed, {"tolerance": options.tolerance, "ratios": rows})
    if slower := [row["ratio"] for row in rows if not row["passed"]]:
        sys.exit(f"slower than committed beyond a factor of {options.tolerance}: {', '.join(slower)}")


def compare(name: str, measured: float, committed: float, tolerance: float) -> dict[str, Any]:
    """Return a row of the report."""
    passed = measured <= tolerance * committed
    return {"ratio": name, "measured": round(measured, 3), "committed": round(committed, 3), "passed": passed}


def measure_loss(rounds: int, _seed: int) -> float:
    """Return the time of the loss, forward and backward, over that of the matrix product."""
    return pick_loss(loss.compare(SIZE, 2, rounds))


def pick_loss(rows: list[dict[str, Any]]) -> float:
    """Return the ratio of the row for the loss of the paper."""
    (found,) = (row["times_bare"] for row in rows if (row["M"], row["group"], row["way"]) == (SIZE, 2, WAY))
    return float(found)


def measure_extract(rounds: int, _seed: int) -> float:
    """Return the time of `doap.extract` over that of detector and network."""
    return float(extract.compare(SAMPLES / "photo.jpg", Descriptor.load("doap-128"), rounds)["ratio"])


def measure_search(_rounds: int, seed: int) -> float:
    """Return the time of a search of an index over that of FAISS on the same index."""
    random = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        doap.extract_folder(SAMPLES, work / "features", "doap-128", workers=1)
        features = FeatureSet(work / "features")
        queries = scale_index.some_rows(features, features.names, QUERIES, random)
        folder = work / "collection"
        scale_index.collect(features, features.names, folder, DESCRIPTORS, seed)
        nearest, clear = scale_index.exact(FeatureSet(folder), queries)
        figures = scale_index.in_own_process(folder, "flat", queries, nearest, clear, seed)
    return float(figures["our search over FAISS's"])


def committed_search() -> float:
    """Return the committed ratio of the same index."""
    indexes = read("scale/index.json")["indexes"]
    wanted = ("doap-128", DESCRIPTORS, "flat")
    (found,) = (one for one in indexes if (one["descriptor"], one["descriptors"], one["kind"]) == wanted)
    return float(found["our search over FAISS's"])


def read(name: str) -> dict[str, Any]:
    """Read a committed result."""
    content: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return content


RATIOS: dict[str, tuple[Callable[[int, int], float], Callable[[], float]]] = {
    "loss": (measure_loss, lambda: pick_loss(read("loss.json")["table"])),
    "extract": (measure_extract, lambda: float(read("extract.json")["ratio"])),
    "search": (measure_search, committed_search),
}


if __name__ == "__main__":
    main()
