"""Extract photos from and to an object store with a Ray cluster of three nodes, while parts of it fail.

    python benchmarks/scale_cluster.py PHOTOS --out results/scale/cluster.json

Each node has its own network namespace and address on this machine (this needs root and the program `ip`). The head has
no processors. The object store is `rclone serve s3`; images and features are only accessed through it. The photos
include twenty damaged files. During the run

1. all processes of one node are killed,
2. the object store is killed and restarted after ten seconds,
3. the driver is interrupted as with Ctrl-C.

A new node then joins, and the same command runs again. The features are compared with those of an undisturbed local
run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import record
import scale_faults
from scale_faults import DAMAGED, compare, copy_photos, damage, rows_of

from doap.images import list_images
from doap.scale.storage import open_storage

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from oracles.object_store import Server, environment

HEAD, PORT = "10.77.0.1", 6379
BRIDGE = "doap-bridge"
OUTAGE_SECONDS = 10


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("photos", type=Path, help="folder of images")
    parser.add_argument("--descriptor", default="doap-128", help="descriptor")
    parser.add_argument("--max-keypoints", type=int, default=32, help="maximum number of keypoints per image")
    parser.add_argument("--limit", type=int, help="use only this many photos")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        work = Path(folder)
        copy_photos(options.photos, work / "images", options.limit)
        damaged = damage(work / "images", options.seed)
        names = [path.relative_to(work / "images").as_posix() for path in list_images(work / "images")]
        settings = ["--descriptor", options.descriptor, "--max-keypoints", str(options.max_keypoints), "--json"]
        scale_faults.run([str(work / "images"), "--out", str(work / "local"), *settings])
        expected = rows_of(work / "local")
        print(f"local: {len(expected):,} images", flush=True)
        stack.enter_context(network())
        server = Server(work / "s3", HEAD)
        stack.callback(server.kill)
        os.environ |= environment(server.port, HEAD)
        store = open_storage("s3://bucket/images")
        for name in names:
            store.write(name, (work / "images" / name).read_bytes())
        shutil.rmtree(work / "images")
        stack.callback(ray, "stop", "--force")
        ray("start", "--head", f"--node-ip-address={HEAD}", f"--port={PORT}", "--num-cpus=0")
        for number in (1, 2, 3):
            start_node(number)
        arguments = ["s3://bucket/images", "--out", "s3://bucket/features", *settings]
        arguments += ["--engine", "ray", "--address", f"{HEAD}:{PORT}"]
        events = disturb(arguments, server, len(names))
        again = scale_faults.run(arguments)
        figures = {
            "photos": len(names) - DAMAGED,
            "damaged": DAMAGED,
            "nodes": "3 network namespaces with one processor each, and a head without processors",
            "object store": "rclone serve s3",
            "events": events,
            "second run": {key: again[key] for key in ("extracted", "reused", "seconds")},
            **compare("s3://bucket/features", expected, damaged),
        }
    print(json.dumps(figures, indent=1))
    record.write(options.out, options.seed, figures)


def disturb(arguments: list[str], server: Server, images: int) -> list[dict[str, Any]]:
    """Run the extraction, and disturb it at a quarter, half and three quarters of the images; return what happened."""
    start, events = time.perf_counter(), []

    def log(event: str) -> None:
        events.append({"after, s": round(time.perf_counter() - start, 1), "event": event, "images": stored_images()})
        print(events[-1], flush=True)

    process = subprocess.Popen(scale_faults.command_of(arguments), stdout=subprocess.DEVNULL)
    wait_for(process, images // 4)
    kill_node(2)
    log("killed node 2")
    wait_for(process, images // 2)
    server.kill()
    time.sleep(OUTAGE_SECONDS)
    server.start()
    log(f"restarted the object store after {OUTAGE_SECONDS} s")
    wait_for(process, images * 3 // 4)
    process.send_signal(signal.SIGINT)
    code = process.wait(180)
    log(f"interrupted the driver: exit code {code}")
    start_node(4)
    log("added node 4")
    return events


def wait_for(process: subprocess.Popen[bytes], images: int) -> None:
    """Wait until this many images are stored."""
    while stored_images() < images:
        assert process.poll() is None, f"the extraction ended with {process.returncode}"
        time.sleep(1)


def stored_images() -> int:
    """Return the number of rows in all parts."""
    import pyarrow.parquet as pq

    storage = open_storage("s3://bucket/features")
    parts = [file.name for file in storage.list() if file.name.startswith("part-")]
    return sum(pq.ParquetFile(storage.open(part)).metadata.num_rows for part in parts)


@contextmanager
def network() -> Iterator[None]:
    """Create a bridge with the address of the head."""
    ip("link", "add", BRIDGE, "type", "bridge")
    try:
        ip("addr", "add", f"{HEAD}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        yield
    finally:
        for number in (1, 2, 3, 4):
            kill_node(number)
            subprocess.run(["ip", "netns", "delete", f"doap-{number}"], capture_output=True)
        ip("link", "delete", BRIDGE)


def start_node(number: int) -> None:
    """Create a network namespace with an address of its own, and start a node of Ray in it."""
    name, address = f"doap-{number}", f"10.77.0.{10 + number}"
    ip("netns", "add", name)
    ip(*f"link add doap-v{number} type veth peer name eth0 netns {name}".split())
    ip("link", "set", f"doap-v{number}", "master", BRIDGE, "up")
    inside = ("netns", "exec", name)
    ip(*inside, "ip", "addr", "add", f"{address}/24", "dev", "eth0")
    ip(*inside, "ip", "link", "set", "eth0", "up")
    ip(*inside, "ip", "link", "set", "lo", "up")
    words = ["start", f"--address={HEAD}:{PORT}", f"--node-ip-address={address}", "--num-cpus=1"]
    ray(*words, "--object-store-memory=1000000000", before=["ip", *inside])


def kill_node(number: int) -> None:
    """Kill all processes of a node."""
    found = subprocess.run(["ip", "netns", "pids", f"doap-{number}"], capture_output=True, text=True)
    for process in map(int, found.stdout.split()):
        os.kill(process, signal.SIGKILL)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def ray(*words: str, before: list[str] | None = None) -> None:
    program = str(Path(sys.executable).with_name("ray"))
    subprocess.run([*(before or []), program, *words], check=True, capture_output=True, env=os.environ)


if __name__ == "__main__":
    main()
