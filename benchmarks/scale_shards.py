"""Compare sharded and single indexes, measure codes on disk, and build a large sharded index.

    python benchmarks/scale_shards.py WORK equal --descriptors 1000000 --shards 4 --out results/scale/sharded.json
    python benchmarks/scale_shards.py WORK disk --descriptors 1000000 --out results/scale/on-disk.json
    python benchmarks/scale_shards.py WORK large --descriptors 50000000 --shards 10 --out results/scale/large.json

WORK is a folder for features and indexes. Existing ones are used again.

- `equal` builds the shards, each from its own features, and one index of all images with the same quantiser. It counts
  the queries and photos with different results, and times our search, bare FAISS and the shards in turn.
- `disk` searches one index in memory, on disk, and on disk in a control group whose memory holds the heap of the
  process and a quarter of the index. This needs root.
- `large` builds the shards one after the other with RLIMIT_DATA at `--gib`, searches them side by side, and compares
  with brute force. Memory is the peak of each build, and the proportional set size of all search processes. It then
  searches one shard after the other in one thread, by turns with bare FAISS and with our search.

Descriptors are synthetic: 24 Gaussian variables, mapped linearly to 128 dimensions, with noise, normalised. Queries are
stored descriptors with noise of norm 0.5, the median distance of matches between two photos. *With a match* are queries
whose nearest neighbour is at most 0.8 times as far as the tenth. Searches use one thread per process.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
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

from doap.images import frames_from_arrays
from doap.scale import Index, ShardedIndex, add_images, build_index, search_images, train_index
from doap.scale.extractor import ExtractorInfo
from doap.scale.features import PartWriter, StoredImage, make_table
from doap.scale.index.engine import faiss_library, set_probes
from doap.types import Features

DIM, LATENT, NOISE, QUERY_NOISE = 128, 24, 0.3, 0.5
PER_IMAGE, PHOTO = 1000, 300
ROUNDS, PHOTOS, NEIGHBOURS = 5, 10, 32
EXTRACTOR = ExtractorInfo("synthetic", "synthetic", "synthetic", 6.0, PER_IMAGE, "real", DIM, "float16")
CONTROL_GROUPS = Path("/sys/fs/cgroup/memory")


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("work", type=Path, help="folder of features and indexes")
    parser.add_argument("part", choices=("equal", "disk", "large"))
    parser.add_argument("--descriptors", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--kinds", nargs="+", default=["ivf", "ivf-pq"], help="for equal and disk")
    parser.add_argument("--gib", type=float, default=12, help="limit of memory, for large")
    options = parser.parse_args()
    images = options.descriptors // PER_IMAGE
    shards = [range(images * s // options.shards, images * (s + 1) // options.shards) for s in range(options.shards)]
    work = options.work / f"{options.descriptors}-{options.shards}"
    work.mkdir(parents=True, exist_ok=True)
    run = {"equal": measure_equality, "disk": measure_disk, "large": measure_large}[options.part]
    figures = run(options, work, shards)
    common = {"descriptors": images * PER_IMAGE, "shards": len(shards), "queries": options.queries}
    record.write(options.out, options.seed, common | figures)


def descriptors_of(seed: int, image: int) -> np.ndarray:
    """Return the descriptors (N, D) of an image, rounded as they are stored."""
    basis = np.random.default_rng(seed).normal(size=(LATENT, DIM)).astype(np.float32) / LATENT**0.5
    random = np.random.default_rng([seed, image])
    rows = random.standard_normal((PER_IMAGE, LATENT), np.float32) @ basis
    return normalise(rows + NOISE * random.standard_normal((PER_IMAGE, DIM), np.float32)).astype(np.float16)


def normalise(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def queries_of(seed: int, images: int, count: int) -> np.ndarray:
    """Return noisy copies (Q, D) of random descriptors of all shards."""
    random = np.random.default_rng([seed, images, count])
    chosen = [descriptors_of(seed, image)[random.integers(PER_IMAGE)] for image in random.integers(images, size=count)]
    return noisy(np.stack(chosen), random)


def noisy(rows: np.ndarray, random: np.random.Generator) -> np.ndarray:
    noise = random.standard_normal(rows.shape, np.float32) * (QUERY_NOISE / DIM**0.5)
    return normalise(rows.astype(np.float32) + noise)


def photos_of(seed: int, images: int) -> list[Features]:
    """Return photos, each with noisy copies of some descriptors of one image."""
    random = np.random.default_rng([seed, images])
    photos = []
    for image in random.integers(images, size=PHOTOS):
        rows = noisy(descriptors_of(seed, int(image))[:PHOTO], random)
        photos.append(with_frames(torch.from_numpy(rows), int(image)))
    return photos


def with_frames(descriptors: torch.Tensor, image: int) -> Features:
    random = np.random.default_rng(image)
    xy, sizes = random.uniform(0, 1000, (len(descriptors), 2)), random.uniform(2, 9, len(descriptors))
    responses = np.linspace(1, 0.5, len(descriptors), dtype=np.float32)
    return Features(frames_from_arrays(xy, sizes), responses, descriptors, (1000, 1000))


def write_features(folder: Path, images: range, seed: int) -> Path:
    """Write the features of a shard, unless they exist."""
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


def measure_equality(options: Any, work: Path, shards: list[range]) -> dict[str, Any]:
    features = [write_features(work / f"features-{s}", images, options.seed) for s, images in enumerate(shards)]
    total = shards[-1].stop * PER_IMAGE
    results = []
    for kind in options.kinds:
        trained, one = work / f"{kind}-trained", work / f"{kind}-one"
        if not trained.exists():
            train_index(features[0], trained, kind=kind, descriptors=total, seed=options.seed)
        folders = [work / f"{kind}-shards" / f"{number:03}.index" for number in range(len(shards))]
        for part, folder in zip(features, folders, strict=True):
            if not folder.exists():
                build_index(part, folder, quantiser=trained)
        if not one.exists():
            build_index(features[0], one, quantiser=trained)
            for part in features[1:]:
                add_images(one, part)
        with ShardedIndex(folders) as sharded:
            figures = compare(Index(one), sharded, options, shards[-1].stop)
        results.append({"kind": kind, **figures})
        print(results[-1], flush=True)
    return {"indexes": results}


def compare(one: Index, sharded: ShardedIndex, options: Any, images: int) -> dict[str, Any]:
    """Compare the results of both, and time them and FAISS in turn."""
    faiss_library().omp_set_num_threads(1)
    queries, photos = queries_of(options.seed, images, options.queries), photos_of(options.seed, images)
    expected, found = (index.search(queries, NEIGHBOURS) for index in (one, sharded))
    different = sum(
        search_images(sharded, photo, verify=verify) != search_images(one, photo, verify=verify)
        for photo in photos
        for verify in (False, True)
    )
    set_probes(one._engine, one.plan.probes)
    ways: dict[str, Callable[[], Any]] = {
        "FAISS": lambda: one._engine.search(queries, 1),
        "one index": lambda: one.search(queries, 1, candidates=0),
        "shards": lambda: sharded.search(queries, 1, candidates=0),
    }
    ms = time_in_turn(ways, len(queries))
    return {
        "lists": one.plan.lists,
        "probes": one.plan.probes,
        "neighbours": NEIGHBOURS,
        "queries with other distances": int((expected[0] != found[0]).any(axis=1).sum()),
        "queries with other neighbours": int((expected[1] != found[1]).any(axis=1).sum()),
        "photo searches": 2 * len(photos),
        "photo searches with other results": different,
        "ms of a query": ms,
        "our search over FAISS's": ms["one index"] / ms["FAISS"],
    }


def time_in_turn(ways: dict[str, Callable[[], Any]], queries: int) -> dict[str, float]:
    """Return the median of ms per query of each way."""
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, search in ways.items():
            start = time.perf_counter()
            search()
            seconds[way].append(time.perf_counter() - start)
    return {way: statistics.median(times) / queries * 1000 for way, times in seconds.items()}


def measure_disk(options: Any, work: Path, shards: list[range]) -> dict[str, Any]:
    images = range(shards[-1].stop)
    features = write_features(work / "features", images, options.seed)
    results = []
    for kind in options.kinds:
        folder = work / f"{kind}-disk"
        if not folder.exists():
            build_index(features, folder, kind=kind, seed=options.seed)
        queries = queries_of(options.seed, len(images), options.queries)
        figures = {
            mode: in_own_process(search_on_disk, folder, queries, mode) for mode in ("memory", "disk", "quarter")
        }
        in_memory = figures["memory"].pop("found")
        for mode in ("disk", "quarter"):
            found = figures[mode].pop("found")
            figures[mode]["same results"] = all(np.array_equal(*both) for both in zip(found, in_memory, strict=True))
            figures[mode]["slowdown"] = figures[mode]["ms of a query"] / figures["memory"]["ms of a query"]
        results.append({"kind": kind, **figures})
        print(results[-1], flush=True)
    return {"limit": "memory control group", "indexes": results}


def search_on_disk(folder: Path, queries: np.ndarray, mode: str) -> dict[str, Any]:
    """Search an index in batches of the size of a photo; `quarter` limits the memory."""
    faiss_library().omp_set_num_threads(1)
    segments = Index(folder, in_memory=False).meta["segments"]
    files = [folder / segment[role] for segment in segments for role in ("index", "rows") if segment.get(role)]
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


def measure_large(options: Any, work: Path, shards: list[range]) -> dict[str, Any]:
    limit, total = int(options.gib * 2**30), shards[-1].stop * PER_IMAGE
    queries = queries_of(options.seed, shards[-1].stop, options.queries)
    folders, builds, best = [work / "shards" / f"{number:03}.index" for number in range(len(shards))], [], None
    for number, (images, folder) in enumerate(zip(shards, folders, strict=True)):
        features = work / f"features-{number}"
        if not folder.exists():
            write_features(features, images, options.seed)
            if not (work / "trained").exists():
                builds.append(in_own_process(train_limited, features, work / "trained", total, limit))
                print(builds[-1], flush=True)
            builds.append(in_own_process(build_limited, features, folder, work / "trained", limit))
            print(builds[-1], flush=True)
        shutil.rmtree(features, ignore_errors=True)
        best = exact(folder, queries, best, images.start * PER_IMAGE)
        print(f"shard {number}", flush=True)
    assert best is not None
    clear = best[0][:, 0] <= 0.8 * best[0][:, 9]
    figures = {"limit, GiB": options.gib, "builds": builds, "with a match": float(clear.mean())}
    for mode in ("in memory", "on disk"):
        figures[mode] = in_own_process(search_large, folders, queries, best[1][:, 0], clear, mode == "in memory")
    figures["one shard after the other"] = in_own_process(search_in_turn, folders, queries)
    return figures


def train_limited(features: Path, out: Path, total: int, limit: int) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    start = time.perf_counter()
    train_index(features, out, kind="ivf-pq", descriptors=total)
    return {"step": "train", "seconds": time.perf_counter() - start, "GiB": peak()}


def build_limited(features: Path, out: Path, trained: Path, limit: int) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    start = time.perf_counter()
    build_index(features, out, quantiser=trained)
    return {"step": out.name, "seconds": time.perf_counter() - start, "GiB": peak()}


def exact(
    folder: Path, queries: np.ndarray, best: tuple[np.ndarray, np.ndarray] | None, first_id: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return distances (Q, 10) and ids (Q, 10) of the nearest descriptors of a shard and of earlier ones."""
    faiss = faiss_library()
    found = [] if best is None else [best]
    for segment in Index(folder).meta["segments"]:
        # The stored descriptors, as of an ivf-pq index.
        rows = np.memmap(folder / segment["rows"], np.float16, "r", shape=(segment["count"], DIM))
        for start in range(0, len(rows), 500_000):
            squared, ids = faiss.knn(queries, rows[start : start + 500_000].astype(np.float32), 10)
            found.append((np.sqrt(squared), ids + first_id + segment["first_id"] + start))
    distances, ids = (np.concatenate(part, axis=1) for part in zip(*found, strict=True))
    order = np.argsort(distances, axis=1, kind="stable")[:, :10]
    return np.take_along_axis(distances, order, 1), np.take_along_axis(ids, order, 1)


def search_large(
    folders: list[Path], queries: np.ndarray, nearest: np.ndarray, clear: np.ndarray, in_memory: bool
) -> dict[str, Any]:
    start = time.perf_counter()
    with ShardedIndex(folders, in_memory=in_memory) as index:
        index.search(queries[:1], 1)
        opening = time.perf_counter() - start
        batches = [queries[start : start + PHOTO] for start in range(0, len(queries), PHOTO)]
        ms = time_in_turn({"shards": lambda: [index.search(batch, 1) for batch in batches]}, len(queries))
        right = index.search(queries, 1)[1][:, 0] == nearest
        return {
            "seconds to open": opening,
            "ms of a query": ms["shards"],
            "recall@1": float(right.mean()),
            "recall@1 of queries with a match": float(right[clear].mean()) if clear.any() else None,
            **memory_of_processes(),
        }


def search_in_turn(folders: list[Path], queries: np.ndarray) -> dict[str, Any]:
    """Search all shards in one thread, without re-ranking, by turns with FAISS and with ours."""
    faiss_library().omp_set_num_threads(1)
    indexes = [Index(folder) for folder in folders]
    for index in indexes:
        set_probes(index._engine, index.plan.probes)
    ways: dict[str, Callable[[], Any]] = {
        "FAISS": lambda: [index._engine.search(queries, 1) for index in indexes],
        "ours": lambda: [index.search(queries, 1, candidates=0) for index in indexes],
    }
    ms = time_in_turn(ways, len(queries))
    plan = indexes[0].plan
    return {
        "lists": plan.lists,
        "probes": plan.probes,
        "ms of a query": ms,
        "our search over FAISS's": ms["ours"] / ms["FAISS"],
    }


def memory_of_processes() -> dict[str, float]:
    """Return the memory of this process and its children: proportional set size, and the anonymous part of it."""
    children = [process.pid for process in multiprocessing.active_children()]
    figures = {"GiB": 0.0, "GiB, without files": 0.0}
    for pid in (os.getpid(), *children):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in ("Pss", "Pss_Anon"):
                figures["GiB" if name == "Pss" else "GiB, without files"] += int(value.split()[0]) / 2**20
    return figures


def in_own_process(function: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Call a function in a new process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def status(name: str) -> str:
    """Return a value of /proc/self/status, in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))


def peak() -> float:
    """Return the peak memory of this process in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    main()
