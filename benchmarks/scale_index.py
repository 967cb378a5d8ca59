"""Measure build time, search time, recall and memory of indexes from 10⁴ to 10⁶ descriptors.

    python benchmarks/scale_index.py WORK doap-128 doap-256bit --out results/scale/index.json

WORK contains features of all photos, written by `benchmarks/scale_retrieval.py`. The descriptors of some held-out
photos are the queries. An index contains real descriptors as far as the photos provide them, and beyond that noisy
copies, at the distance that descriptors of the same point have from each other. Recall counts the exact nearest
neighbour, found by brute force over the same descriptors: over all queries, and over the queries that have a match in
the collection (nearest neighbour at most 0.8 times as far as the tenth).

Each index is built and searched in its own process, and peak memory is that of the process. Searches use one thread,
builds use all; our search, FAISS's own and a search of the lists on disk, in the page cache, are timed in turn. Results
that are already in the output file are not measured again.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import record
import torch

from doap.collection import FeatureSet, StoredImage
from doap.collection.features import PartWriter, make_table
from doap.collection.index import Index, IndexKind, build_index, choose_lists
from doap.collection.index.folder import faiss_library
from doap.types import Features

HELD_OUT, QUERIES, ROUNDS = 100, 2000, 5
SIZES = [10_000, 100_000, 1_000_000]
# Median difference between matches of two photos: a distance, and a share of the bits.
NOISE = {"real": 0.5, "binary": 0.15}


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("work", type=Path, help="folder of features and indexes")
    parser.add_argument("descriptors", nargs="+", help="names of the feature sets")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="numbers of descriptors")
    options = parser.parse_args()
    results = json.loads(options.out.read_text())["indexes"] if options.out and options.out.exists() else []
    known = {(one["descriptor"], one["descriptors"], one["kind"]) for one in results}
    for name in options.descriptors:
        features = FeatureSet(options.work / name)
        random = np.random.default_rng(options.seed)
        order = [features.names[number] for number in random.permutation(len(features))]
        queries = some_rows(features, order[:HELD_OUT], QUERIES, random)
        for size in options.sizes:
            kind: IndexKind = "ivf" if choose_lists(size, features.kind, None) else "flat"
            if (name, size, kind) in known:
                continue
            folder = options.work / f"{name} {size}"
            real = collect(features, order[HELD_OUT:], folder, size, options.seed)
            nearest, clear = exact(FeatureSet(folder), queries)
            case = {"descriptor": name, "descriptors": size, "real": real, "kind": kind}
            case |= in_own_process(folder, kind, queries, nearest, clear)
            results.append(case)
            print(case, flush=True)
            record.write(options.out, options.seed, {"queries": QUERIES, "noise": NOISE, "indexes": results})


def some_rows(features: FeatureSet, names: list[str], count: int, random: np.random.Generator) -> np.ndarray:
    """Return random descriptors of some images."""
    rows = torch.cat([image.features.descriptors for image in features.stream(names)]).numpy()
    return rows[random.choice(len(rows), count, replace=False)]


def collect(features: FeatureSet, names: list[str], out: Path, size: int, seed: int) -> int:
    """Write a set of `size` descriptors, with noisy copies if there are too few; return the number of real ones."""
    real, left = 0, size
    if not out.exists():
        unfinished = out.with_name(out.name + ".unfinished")
        with PartWriter(unfinished, features.extractor) as writer:
            for image in copies(features, names, seed):
                rows = image.features
                kept = Features(rows.frames[:left], rows.responses[:left], rows.descriptors[:left], rows.image_size)
                writer.add(make_table([StoredImage(image.name, image.checksum, kept)], features.extractor))
                left -= len(kept)
                if not left:
                    break
        unfinished.rename(out)
    opened = FeatureSet(out)
    for image in opened.stream([name for name in opened.names if not name.startswith("copy-")]):
        real += len(image.features)
    return real


def copies(features: FeatureSet, names: list[str], seed: int) -> Iterator[StoredImage]:
    """Yield the photos, then noisy copies of them without end."""
    yield from features.stream(names)
    random = torch.Generator().manual_seed(seed)
    number = 0
    while True:
        number += 1
        for image in features.stream(names):
            rows = noisy(image.features.descriptors, random)
            changed = Features(image.features.frames, image.features.responses, rows, image.features.image_size)
            yield StoredImage(f"copy-{number}/{image.name}", image.checksum, changed)


def noisy(rows: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Return descriptors at a distance of about `NOISE`."""
    if rows.dtype == torch.uint8:
        flipped = torch.rand(len(rows), rows.shape[1], 8, generator=random) < NOISE["binary"]
        return rows ^ (flipped * 2 ** torch.arange(8)).sum(2).to(torch.uint8)
    moved = rows + torch.randn(rows.shape, generator=random) * NOISE["real"] / rows.shape[1] ** 0.5
    return torch.nn.functional.normalize(moved)


def exact(features: FeatureSet, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (Q,) ids of the nearest neighbours, and (Q,) whether they are much nearer than the tenth (brute force)."""
    faiss = faiss_library()
    best = np.full((len(queries), 10), np.inf), np.full((len(queries), 10), -1)
    first, pending = 0, []
    for number, image in enumerate(features.stream(), start=1):
        pending.append(image.features.descriptors.numpy())
        if number % 200 and number < len(features):
            continue
        rows = np.concatenate(pending)
        pending = []
        if len(rows):
            k = min(10, len(rows))
            engine = (
                faiss.IndexBinaryFlat(8 * rows.shape[1]) if rows.dtype == np.uint8 else faiss.IndexFlatL2(rows.shape[1])
            )
            engine.add(rows)
            distances, ids = engine.search(queries, k)
            both = np.concatenate([best[0], distances], 1), np.concatenate([best[1], ids + first], 1)
            order = np.argsort(both[0], 1, kind="stable")[:, :10]
            best = np.take_along_axis(both[0], order, 1), np.take_along_axis(both[1], order, 1)
            first += len(rows)
    # FAISS returns squared Euclidean distances.
    distances = best[0] if queries.dtype == np.uint8 else np.sqrt(best[0])
    return best[1][:, 0], distances[:, 0] <= 0.8 * distances[:, 9]


def in_own_process(
    features: Path, kind: IndexKind, queries: np.ndarray, nearest: np.ndarray, clear: np.ndarray
) -> dict[str, Any]:
    """Run `measure` in a new process."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=measure, args=(queue, features, kind, queries, nearest, clear))
    process.start()
    result: dict[str, Any] = queue.get()
    process.join()
    return result


def measure(
    queue: Any, features: Path, kind: IndexKind, queries: np.ndarray, nearest: np.ndarray, clear: np.ndarray
) -> None:
    """Build, open and search an index; put the figures into the queue."""
    faiss = faiss_library()
    out = features.with_name(f"{features.name} {kind}")
    shutil.rmtree(out, ignore_errors=True)
    built = time.perf_counter()
    build_index(FeatureSet(features), out, kind=kind)
    built = time.perf_counter() - built
    building = peak()
    index, on_disk = Index(out), Index(out, in_memory=False)
    faiss.omp_set_num_threads(1)
    for one in (index, on_disk):
        one.search(queries[:1], 1)
    ways: dict[str, Callable[[], Any]] = {
        "ours": lambda: index.search(queries, 1),
        "FAISS": lambda: index._engine.search(queries, 1),
        "on disk": lambda: on_disk.search(queries, 1),
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, search in ways.items():
            start = time.perf_counter()
            _, ids = search()
            seconds[way].append(time.perf_counter() - start)
    hits = ids[:, 0] == nearest
    medians = {way: statistics.median(times) for way, times in seconds.items()}
    info = index.info()
    queue.put(
        {
            "lists": info.lists,
            "probes": info.probes,
            "seconds to build": built,
            "GiB to build": building,
            "GiB to build and search": peak(),
            "bytes of a descriptor": info.bytes / info.descriptors,
            "our search over FAISS's": medians["ours"] / medians["FAISS"],
            "on disk over in memory": medians["on disk"] / medians["ours"],
            "with a match": float(clear.mean()),
            "ms of a query": medians["ours"] / len(queries) * 1000,
            "recall@1": float(hits.mean()),
            "recall@1 of queries with a match": float(hits[clear].mean()),
        }
    )


def peak() -> float:
    """Return the peak memory of this process in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    main()
