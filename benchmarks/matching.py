"""Time of mutual nearest neighbours beside the bare product, FAISS and OpenCV, and memory at 100,000 × 100,000.

    python benchmarks/matching.py --out results/matching.json
    python benchmarks/matching.py --large --out results/matching-large.json

All ways take turns in rounds within one run; a ratio is the median over rounds of (doap's time / its time in the same
round), so that below 1 doap is faster. Each starts from descriptors in memory and ends with the matches; FAISS has to
fill an index for each direction, which is a copy. The bare product stops at its two arg-maxes. `--large` adds the table
of 10¹⁰ distances, each kind in a process of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import faiss
import numpy as np
import record
import torch
from torch import Tensor
from torch.nn.functional import normalize

from doap.matching import match_descriptors

Way = Callable[[], object]
GIB = 2**30


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--large", action="store_true", help="also match 100,000 with 100,000 descriptors")
    options = parser.parse_args()

    figures: dict[str, object] = {"rows": options.rows, "threads": torch.get_num_threads()}
    for kind, ways in ("real", real_ways), ("binary", binary_ways):
        queries, gallery = descriptors(kind, options.rows, options.seed)
        figures[kind] = compare(ways(queries, gallery), options.rounds)
    if options.large:
        # Memory of one kind must not show in that of the other.
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            figures["large"] = [pool.apply(large, (kind, 100_000, options.seed)) for kind in ("real", "binary")]
    record.write(options.out, options.seed, figures)


def descriptors(kind: str, rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Two sets of unit rows (N, 128), or of 256 random bits."""
    generator = torch.Generator().manual_seed(seed)
    if kind == "real":
        made = [normalize(torch.randn(rows, 128, generator=generator)) for _ in range(2)]
    else:
        made = [torch.randint(0, 256, (rows, 32), dtype=torch.uint8, generator=generator) for _ in range(2)]
    return made[0], made[1]


def real_ways(queries: Tensor, gallery: Tensor) -> dict[str, Way]:
    def bare() -> tuple[Tensor, Tensor]:
        table = queries @ gallery.T
        return table.argmax(1), table.argmax(0)

    return {
        "doap": lambda: match_descriptors(queries, gallery)[0].numpy(),
        "bare x @ y.T and two arg-maxes": bare,
        "FAISS IndexFlatL2, both ways": lambda: both_ways(faiss.IndexFlatL2, queries, gallery),
        "FAISS IndexFlatIP, both ways": lambda: both_ways(faiss.IndexFlatIP, queries, gallery),
        "OpenCV BFMatcher, cross-checked": lambda: crosschecked(cv2.NORM_L2, queries, gallery),
        "doap, ratio 0.8": lambda: match_descriptors(queries, gallery, ratio=0.8),
    }


def binary_ways(queries: Tensor, gallery: Tensor) -> dict[str, Way]:
    return {
        "doap": lambda: match_descriptors(queries, gallery)[0].numpy(),
        "FAISS IndexBinaryFlat, both ways": lambda: both_ways(faiss.IndexBinaryFlat, queries, gallery),
        "OpenCV BFMatcher, cross-checked": lambda: crosschecked(cv2.NORM_HAMMING, queries, gallery),
        "doap, ratio 0.8": lambda: match_descriptors(queries, gallery, ratio=0.8),
    }


def both_ways(flat: Callable[[int], faiss.Index], queries: Tensor, gallery: Tensor) -> np.ndarray:
    """(M, 2) mutual nearest neighbours by two searches."""
    width = 8 * queries.shape[1] if queries.dtype == torch.uint8 else queries.shape[1]
    nearest = []
    for sought, filled in (queries, gallery), (gallery, queries):
        index = flat(width)
        index.add(filled.numpy())
        nearest.append(index.search(sought.numpy(), 1)[1][:, 0])
    rows = np.flatnonzero(nearest[1][nearest[0]] == np.arange(len(queries)))
    return np.stack([rows, nearest[0][rows]], 1)


def crosschecked(norm: int, queries: Tensor, gallery: Tensor) -> np.ndarray:
    matches = cv2.BFMatcher(norm, crossCheck=True).match(queries.numpy(), gallery.numpy())
    return np.array([(match.queryIdx, match.trainIdx) for match in matches])


def compare(ways: dict[str, Way], rounds: int) -> list[dict[str, object]]:
    """One row per way: its time, doap's time as a share of it, and whether the matches are the same."""
    found = {name: way() for name, way in ways.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - start)
    rows = []
    for name, times in seconds.items():
        ratios = [ours / theirs for ours, theirs in zip(seconds["doap"], times, strict=True)]
        row: dict[str, object] = {
            "way": name,
            "milliseconds": round(1e3 * statistics.median(times), 1),
            "doap_takes": round(statistics.median(ratios), 3),
        }
        if isinstance(found[name], np.ndarray):
            row["same_matches"] = bool(np.array_equal(found[name], found["doap"]))
        rows.append(row)
        print(row, flush=True)
    return rows


def large(kind: str, rows: int, seed: int) -> dict[str, object]:
    """Time of one table of rows² distances, and by how much it raises resident memory at its peak."""
    queries, gallery = descriptors(kind, rows, seed)
    before = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    start = time.perf_counter()
    pairs, _ = match_descriptors(queries, gallery)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    row: dict[str, object] = {
        "kind": kind,
        "rows": rows,
        "matches": len(pairs),
        "seconds": round(seconds, 1),
        "gained_gib": round((peak - before) / GIB, 3),
        "process_gib": round(peak / GIB, 3),
    }
    print(row, flush=True)
    return row


if __name__ == "__main__":
    main()
