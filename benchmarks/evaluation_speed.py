"""Measure time and memory of the metrics at the size of the published benchmarks.

    python benchmarks/evaluation_speed.py --out results/evaluation-speed.json

- Verification: AP of one HPatches task (a million negative and 200,000 positive pairs) from distances in memory, and
  the same with scikit-learn.
- Retrieval: AP of 10,000 queries with five matches each among 20,000 distractors, from descriptors in memory, in the
  three forms and seven pool sizes of HPatches at once.

Each measurement runs in its own process. Memory is the peak of that process, libraries included.
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable

import record
import torch
from sklearn.metrics import average_precision_score
from torch import Tensor
from torch.nn.functional import normalize

from doap.evaluation.hpatches import MATLAB_DISTRACTORS, POOLS
from doap.evaluation.hpatches_pairs import pair_precision
from doap.evaluation.retrieval import AP_PROTOCOLS, APProtocol, precision_among
from doap.functional import pack_bits

GIB = 2**30


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("--pairs", type=int, default=1_200_000, help="number of pairs (verification)")
    parser.add_argument("--queries", type=int, default=10_000, help="number of queries (retrieval)")
    parser.add_argument("--distractors", type=int, default=20_000, help="number of distractors (retrieval)")
    parser.add_argument("--rounds", type=int, default=5, help="number of timed repetitions")
    options = parser.parse_args()

    figures: dict[str, object] = {"threads": torch.get_num_threads()}
    figures["verification"] = verification(options.pairs, options.rounds, options.seed)
    # One process per kind, so that their peaks of memory are independent.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        sizes = (options.queries, options.distractors, options.seed)
        figures["retrieval"] = [pool.apply(retrieval, (kind, *sizes)) for kind in ("real", "binary")]
    record.write(options.out, options.seed, figures)


def verification(pairs: int, rounds: int, seed: int) -> list[dict[str, object]]:
    """Return the seconds of AP in each form and in scikit-learn, timed in turn."""
    generator = torch.Generator().manual_seed(seed)
    positive = torch.arange(pairs) < pairs // 6
    distances = torch.rand(pairs, generator=generator) - 0.3 * positive
    ways: dict[str, Callable[[], float]] = {
        form: lambda form=form: pair_precision(distances, positive, form) for form in AP_PROTOCOLS
    }
    ways["scikit-learn"] = lambda: float(average_precision_score(positive.numpy(), -distances.double().numpy()))
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    values = {}
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            values[name] = way()
            seconds[name].append(time.perf_counter() - start)
    rows = []
    for name in ways:
        row: dict[str, object] = {
            "way": name, "pairs": pairs, "AP": values[name], "seconds": round(statistics.median(seconds[name]), 3)
        }  # fmt: skip
        print(row, flush=True)
        rows.append(row)
    return rows


def retrieval(kind: str, queries: int, distractors: int, seed: int) -> dict[str, object]:
    """Return seconds and memory of retrieval in all forms."""
    query_rows, matches, distractor_rows = descriptors(kind, queries, distractors, seed)
    ways: list[tuple[APProtocol, int]] = [("tie-aware", distractors), ("matlab", min(MATLAB_DISTRACTORS, distractors))]
    ways += [("python", min(pool - 5, distractors)) for pool in POOLS]
    start = time.perf_counter()
    precision = precision_among(query_rows, matches, distractor_rows, ways)
    row: dict[str, object] = {
        "kind": kind,
        "queries": queries,
        "distractors": distractors,
        "seconds": round(time.perf_counter() - start, 1),
        "process_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB, 2),
        "mAP": round(float(precision[..., 0].mean()), 4),
    }
    print(row, flush=True)
    return row


def descriptors(kind: str, queries: int, distractors: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries (Q, 128), five noisy copies of each (Q, 1, 5, 128) and distractors (N, 128); or packed bits."""
    generator = torch.Generator().manual_seed(seed)
    query_rows, distractor_rows = (normalize(torch.randn(n, 128, generator=generator)) for n in (queries, distractors))
    noise = torch.randn(queries, 1, 5, 128, generator=generator)
    matches = normalize(query_rows[:, None, None] + 0.2 * noise, dim=3)
    if kind == "real":
        return query_rows, matches, distractor_rows
    return pack_bits(query_rows), pack_bits(matches.flatten(0, 2)).view(queries, 1, 5, -1), pack_bits(distractor_rows)


if __name__ == "__main__":
    main()
