"""Compare the time of mutual nearest neighbours with a matrix product, FAISS and OpenCV; measure memory.

    python benchmarks/matching.py --out results/matching.json
    python benchmarks/matching.py --large --out results/matching-large.json

All variants are timed in turn, from descriptors in memory to matches. A ratio is the median over rounds of doap's time
divided by the other time in the same round: below 1, doap is faster. FAISS has to fill an index for each direction,
which copies the descriptors. The matrix product stops after its two arg-maxes. `--large` also matches 100,000 with
100,000 descriptors (10¹⁰ distances), each kind in its own process.
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
    parser.add_argument("--rows", type=int, default=8192, help="descriptors per set")
    parser.add_argument("--rounds", type=int, default=9, help="number of timed repetitions")
    parser.add_argument("--large", action="store_true", help="also match 100,000 with 100,000 descriptors")
    options = parser.parse_args()

    figures: dict[str, object] = {"rows": options.rows, "threads": torch.get_num_threads()}
    for kind, ways in ("real", real_ways), ("binary", binary_ways):
        queries, gallery = descriptors(kind, options.rows, options.seed)
        figures[kind] = compare(ways(queries, gallery), options.rounds)
    if options.large:
        # One process per kind, so that their peaks of memory are independent.
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            figures["large"] = [pool.apply(large, (kind, 100_000, options.seed)) for kind in ("real", "binary")]
    record.write(options.out, options.seed, figures)


def descriptors(kind: str, rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return two sets of unit rows (N, 128) or of 256 random bits."""
    generator = torch.Generator().manual_seed(seed)
    if kind == "real":
        pair = [normalize(torch.randn(rows, 128, generator=generator)) for _ in range(2)]
    else:
        pair = [torch.randint(0, 256, (rows, 32), dtype=torch.uint8, generator=generator) for _ in range(2)]
    return pair[0], pair[1]


def real_ways(queries: Tensor, gallery: Tensor) -> dict[str, Way]:
    """Return the matchers of real-valued descriptors."""

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
    """Return the matchers of binary descriptors."""
    return {
        "doap": lambda: match_descriptors(queries, gallery)[0].numpy(),
        "FAISS IndexBinaryFlat, both ways": lambda: both_ways(faiss.IndexBinaryFlat, queries, gallery),
        "OpenCV BFMatcher, cross-checked": lambda: crosschecked(cv2.NORM_HAMMING, queries, gallery),
        "doap, ratio 0.8": lambda: match_descriptors(queries, gallery, ratio=0.8),
    }


def both_ways(flat: Callable[[int], faiss.Index], queries: Tensor, gallery: Tensor) -> np.ndarray:
    """Return (M, 2) mutual nearest neighbours from two FAISS searches."""
    width = 8 * queries.shape[1] if queries.dtype == torch.uint8 else queries.shape[1]
    nearest = []
    for searched, indexed in (queries, gallery), (gallery, queries):
        index = flat(width)
        index.add(indexed.numpy())
        nearest.append(index.search(searched.numpy(), 1)[1][:, 0])
    rows = np.flatnonzero(nearest[1][nearest[0]] == np.arange(len(queries)))
    return np.stack([rows, nearest[0][rows]], 1)


def crosschecked(norm: int, queries: Tensor, gallery: Tensor) -> np.ndarray:
    """Return (M, 2) mutual nearest neighbours from OpenCV's brute-force matcher."""
    matches = cv2.BFMatcher(norm, crossCheck=True).match(queries.numpy(), gallery.numpy())
    return np.array([(match.queryIdx, match.trainIdx) for match in matches])


def compare(ways: dict[str, Way], rounds: int) -> list[dict[str, object]]:
    """Return one row per matcher: time, doap's time divided by it, and whether the matches are identical."""
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
    """Return time and increase of peak memory for rows² distances."""
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
