"""Compare an index in Milvus with one in FAISS, and check that writers and a killed server lose nothing.

    python benchmarks/milvus.py WORK --out results/scale/milvus.json

WORK is a folder for features, the FAISS index and the data of the server, which this script starts. Codes have 256
random bits; a query is a stored code with 15 % of its bits flipped, so its nearest neighbour is known.

- Search: recall@1 and queries per second of processor time with the same number of probes; for Milvus, of its server
  and this process. A machine with other work changes both, so use the ratio.
- Two writers: two processes add images at the same time.
- Kill: the server is killed while a process adds images, which goes on when the server is back.
"""

from __future__ import annotations

import multiprocessing
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import record
import torch

from doap.collection import FeatureSet, Index, MilvusIndex, build_index
from doap.collection.extractor import ExtractorInfo
from doap.collection.features import PartWriter, StoredImage, make_table
from doap.types import Features

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from oracles.milvus_server import MilvusServer

PER_IMAGE, BITS, FLIPPED, QUERIES = 1000, 256, 0.15, 2000
EXTRACTOR = ExtractorInfo("synthetic", "synthetic", "synthetic", 6.0, PER_IMAGE, "binary", BITS, "bits")
PROBES, ROUNDS = (16, 64, 128), 5


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("work", type=Path, help="folder of features, indexes and the data of the server")
    parser.add_argument("--descriptors", type=int, default=1_000_000)
    options = parser.parse_args()
    images = options.descriptors // PER_IMAGE
    features = write(options.work / "features", range(images), options.seed)
    halves = [write(options.work / f"half-{n}", range(n * images // 10, (n + 1) * images // 10), 1) for n in range(2)]
    folder = options.work / "index"
    shutil.rmtree(folder, ignore_errors=True)
    seconds = {"FAISS": timed(lambda: build_index(features, folder, kind="ivf"))}
    shutil.rmtree(options.work / "milvus", ignore_errors=True)
    server = MilvusServer(options.work / "milvus")
    try:
        seconds["Milvus"] = timed(lambda: MilvusIndex.build(server.uri, "codes", features, kind="ivf"))
        stored = MilvusIndex(server.uri, "codes")
        seconds["Milvus, until all rows are in its index"] = timed(lambda: wait_for_index(stored))
        report = {"descriptors": options.descriptors, "queries": QUERIES, "seconds to build": seconds}
        report |= {"search": compare(Index(folder), stored, server, features, options.seed)}
        report |= {"two writers": two_writers(server, halves), "kill": kill(server, halves[0])}
    finally:
        server.close()
    record.write(options.out, options.seed, report)
    print(report)


def write(out: Path, images: range, seed: int) -> FeatureSet:
    """Write images of random codes."""
    shutil.rmtree(out, ignore_errors=True)
    frames, responses = np.ones((PER_IMAGE, 2, 3), np.float32), np.ones(PER_IMAGE, np.float32)
    with PartWriter(out, EXTRACTOR) as writer:
        for number in images:
            rows = np.random.default_rng([seed, number]).integers(0, 256, (PER_IMAGE, BITS // 8), np.uint8)
            image = Features(frames, responses, torch.from_numpy(rows), (1000, 1000))
            writer.add(make_table([StoredImage(f"{seed}/{number:06}.jpg", "0", image)], EXTRACTOR))
    return FeatureSet(out)


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def wait_for_index(stored: MilvusIndex) -> None:
    """Wait until the server has built the index of all rows; rows without one are compared one by one."""
    stored._client.flush("codes")
    while True:
        state = stored._client.describe_index("codes", "vector")
        if state["total_rows"] >= len(stored) and not state["pending_index_rows"]:
            return time.sleep(10)
        time.sleep(1)


def compare(index: Index, stored: MilvusIndex, server: MilvusServer, features: FeatureSet, seed: int) -> list[Any]:
    random, names = np.random.default_rng(seed), features.names
    chosen = random.integers(len(names), size=QUERIES // 10)
    rows = np.concatenate([features.read(names[n]).features.descriptors.numpy()[:10] for n in chosen.tolist()])
    owners = np.repeat([names[n] for n in chosen.tolist()], 10)
    queries = rows ^ np.packbits(random.random((len(rows), BITS)) < FLIPPED, axis=1)
    table = []
    for probes in PROBES:
        row: dict[str, Any] = {"lists": index.lists, "probes": probes}
        for name, engine, clock in (
            ("FAISS", index, time.process_time),
            ("Milvus", stored, lambda: time.process_time() + server.cpu_seconds()),
        ):
            _, ids = engine.search(queries, 1, probes=probes)
            seconds = []
            for _ in range(ROUNDS):
                before = clock()
                engine.search(queries, 1, probes=probes)
                seconds.append(clock() - before)
            used = statistics.median(seconds)
            found = [image.name for image in engine.images_at(engine.image_of(ids[:, 0]).tolist())]
            row[name] = {"recall@1": float(np.mean(found == owners)), "queries per CPU second": len(queries) / used}
        row["Milvus over FAISS"] = row["Milvus"]["queries per CPU second"] / row["FAISS"]["queries per CPU second"]
        table.append(row)
        print(row, flush=True)
    return table


def add(uri: str, name: str, folder: Path) -> None:
    MilvusIndex(uri, name).add(FeatureSet(folder))


def start_adding(uri: str, name: str, features: FeatureSet) -> Any:
    process = multiprocessing.get_context("spawn").Process(target=add, args=(uri, name, features.folder))
    process.start()
    return process


def two_writers(server: MilvusServer, halves: list[FeatureSet]) -> dict[str, Any]:
    """Add two feature sets in two processes at once to an index of one of their images."""
    start = write(Path(halves[0].folder).with_name("start"), range(1), 2)
    index = MilvusIndex.build(server.uri, "writers", start)
    writers = [start_adding(server.uri, "writers", half) for half in halves]
    for writer in writers:
        writer.join()
    expected = PER_IMAGE * (1 + sum(map(len, halves)))
    return {"rows expected": expected, "rows": len(index), "exit codes": [writer.exitcode for writer in writers]}


def kill(server: MilvusServer, features: FeatureSet) -> dict[str, Any]:
    """Kill the server while images are added; count acknowledged images that are lost."""
    start = write(Path(features.folder).with_name("start"), range(1), 2)
    index = MilvusIndex.build(server.uri, "killed", start)
    writer = start_adding(server.uri, "killed", features)
    acknowledged: list[str] = []
    while len(acknowledged) < len(features) // 3:
        located = index._locate(features.names)
        acknowledged = [name for name, (_, row) in located.items() if row and row.checksum == "0"]
    server.kill()
    server.start()
    down = timed(lambda: len(index))
    before = index._locate(acknowledged)
    lost = sum(row is None or row.checksum != "0" for _, row in before.values())
    writer.join()
    expected = PER_IMAGE * (1 + len(features))
    return {
        "acknowledged images at the kill": len(acknowledged),
        "acknowledged images lost": lost,
        "seconds from the start of the server to the first answer": down,
        "exit code of the writer": writer.exitcode,
        "rows expected": expected,
        "rows": len(index),
    }


if __name__ == "__main__":
    main()
