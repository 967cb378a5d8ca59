"""Compare the search of an index in memory, on disk, and on disk with a quarter of it in memory.

    python benchmarks/scale_disk.py WORK --descriptors 1000000 --out results/scale/on-disk.json

WORK is a folder for features and indexes. Existing ones are used again. A memory control group, which needs root, holds
the heap of the process and a quarter of the index.

Descriptors are synthetic: 24 Gaussian variables, mapped linearly to 128 dimensions, with noise, normalised. Queries are
stored descriptors with noise of norm 0.5, the median distance of matches between two photos. Searches use one thread.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import record
import torch

from doap.collection import Index, build_index
from doap.collection.extractor import ExtractorInfo
from doap.collection.features import PartWriter, StoredImage, make_table
from doap.collection.index.engine import faiss_library
from doap.images import frames_from_arrays
from doap.types import Features

DIM, LATENT, NOISE, QUERY_NOISE = 128, 24, 0.3, 0.5
PER_IMAGE, PHOTO = 1000, 300
ROUNDS, NEIGHBOURS = 5, 32
EXTRACTOR = ExtractorInfo("synthetic", "synthetic", "synthetic", 6.0, PER_IMAGE, "real", DIM, "float16")
CONTROL_GROUPS = Path("/sys/fs/cgroup/memory")


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("work", type=Path, help="folder of features and indexes")
    parser.add_argument("--descriptors", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--kinds", nargs="+", default=["ivf", "ivf-pq"])
    options = parser.parse_args()
    images = options.descriptors // PER_IMAGE
    work = options.work / f"{options.descriptors}"
    work.mkdir(parents=True, exist_ok=True)
    features = write_features(work / "features", range(images), options.seed)
    queries = queries_of(options.seed, images, options.queries)
    indexes = []
    for kind in options.kinds:
        folder = work / kind
        if not folder.exists():
            build_index(features, folder, kind=kind, seed=options.seed)
        indexes.append({"kind": kind, **measure(folder, queries)})
        print(indexes[-1], flush=True)
    common = {"descriptors": images * PER_IMAGE, "queries": options.queries, "limit": "memory control group"}
    record.write(options.out, options.seed, common | {"indexes": indexes})


def descriptors_of(seed: int, image: int) -> np.ndarray:
    """Return the descriptors (N, D) of an image, rounded as they are stored."""
    basis = np.random.default_rng(seed).normal(size=(LATENT, DIM)).astype(np.float32) / LATENT**0.5
    random = np.random.default_rng([seed, image])
    rows = random.standard_normal((PER_IMAGE, LATENT), np.float32) @ basis
    return normalise(rows + NOISE * random.standard_normal((PER_IMAGE, DIM), np.float32)).astype(np.float16)


def normalise(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def queries_of(seed: int, images: int, count: int) -> np.ndarray:
    """Return noisy copies (Q, D) of random descriptors."""
    random = np.random.default_rng([seed, images, count])
    chosen = [descriptors_of(seed, image)[random.integers(PER_IMAGE)] for image in random.integers(images, size=count)]
    return noisy(np.stack(chosen), random)


def noisy(rows: np.ndarray, random: np.random.Generator) -> np.ndarray:
    noise = random.standard_normal(rows.shape, np.float32) * (QUERY_NOISE / DIM**0.5)
    return normalise(rows.astype(np.float32) + noise)


def with_frames(descriptors: torch.Tensor, image: int) -> Features:
    random = np.random.default_rng(image)
    xy, sizes = random.uniform(0, 1000, (len(descriptors), 2)), random.uniform(2, 9, len(descriptors))
    responses = np.linspace(1, 0.5, len(descriptors), dtype=np.float32)
    return Features(frames_from_arrays(xy, sizes), responses, descriptors, (1000, 1000))


def write_features(folder: Path, images: range, seed: int) -> Path:
    """Write the features, unless they exist."""
    if not folder.exists():
        unfinished = folder.with_name(folder.name + ".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        with PartWriter(unfinished, EXTRACTOR) as writer:
            for image in images:
                rows = torch.from_numpy(descriptors_of(seed, image).astype(np.float32))
                stored = StoredImage(f"{image:09}.jpg", f"{image}", with_frames(rows, image))
                writer.add(make_table([stored], EXTRACTOR))
        unfinished.rename(folder)
    return folder


def measure(folder: Path, queries: np.ndarray) -> dict[str, Any]:
    """Search one index in every mode, each in a process of its own."""
    figures = {mode: in_own_process(search_on_disk, folder, queries, mode) for mode in ("memory", "disk", "quarter")}
    in_memory = figures["memory"].pop("found")
    for mode in ("disk", "quarter"):
        found = figures[mode].pop("found")
        figures[mode]["same results"] = all(np.array_equal(*both) for both in zip(found, in_memory, strict=True))
        figures[mode]["slowdown"] = figures[mode]["ms of a query"] / figures["memory"]["ms of a query"]
    return figures


def search_on_disk(folder: Path, queries: np.ndarray, mode: str) -> dict[str, Any]:
    """Search an index in batches of the size of a photo; `quarter` limits the memory."""
    faiss_library().omp_set_num_threads(1)
    listed = Index(folder, in_memory=False).meta["files"]
    files = [folder / listed[role]["name"] for role in ("descriptors", "rows") if role in listed]
    size = sum(path.stat().st_size for path in files)
    batches = [queries[start : start + PHOTO] for start in range(0, len(queries), PHOTO)]
    seconds = []
    with ControlGroup() if mode == "quarter" else nullcontext() as group:
        if group:
            for path in files:
                drop_from_cache(path)
        index = Index(folder, in_memory=mode == "memory")
        index.search(queries[:1], NEIGHBOURS)
        figures: dict[str, Any] = {"index MB": size / 1e6}
        if group:
            figures["limit MB"] = group.limit_cache(size // 4) / 1e6
        for _ in range(ROUNDS):
            start = time.perf_counter()
            found = [index.search(batch, NEIGHBOURS) for batch in batches]
            seconds.append(time.perf_counter() - start)
        if group:
            figures["cached MB"] = group.statistic("cache") / 1e6
    figures["ms of a query"] = statistics.median(seconds) / len(queries) * 1000
    figures["anonymous MB"] = int(status("RssAnon")) / 1024
    return {**figures, "found": [np.concatenate(part) for part in zip(*found, strict=True)]}


def drop_from_cache(path: Path) -> None:
    """Remove a file from the page cache. Pages that are cached already would not count for a new control group."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class ControlGroup:
    """Contains this process in a memory control group (version 1) of its own."""

    def __init__(self) -> None:
        self._folder = CONTROL_GROUPS / f"doap-{os.getpid()}"

    def __enter__(self) -> ControlGroup:
        self._folder.mkdir()
        (self._folder / "cgroup.procs").write_text(str(os.getpid()))
        return self

    def __exit__(self, *_: object) -> None:
        (CONTROL_GROUPS / "cgroup.procs").write_text(str(os.getpid()))
        self._folder.rmdir()

    def limit_cache(self, cache: int) -> int:
        """Allow as much page cache beside the present heap; return the limit of both in bytes."""
        limit = self.statistic("rss") + cache
        (self._folder / "memory.limit_in_bytes").write_text(str(limit))
        return limit

    def statistic(self, name: str) -> int:
        """Return a value of memory.stat in bytes."""
        lines = (self._folder / "memory.stat").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def in_own_process(function: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Call a function in a new process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def status(name: str) -> str:
    """Return a value of /proc/self/status, in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
