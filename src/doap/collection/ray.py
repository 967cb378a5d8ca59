"""The Ray engine: every task extracts some images and writes their part, on one machine or a cluster.

Features never pass through the calling process: it starts tasks, keeps a bounded number of them waiting, and receives
the names of their images. Tasks of many images keep its work per image small. With GPUs, every task gets a
share of one. Ray repeats a task whose process or machine is lost.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from doap._support.device import resolve_device
from doap._support.errors import ArgumentError, DoapError, import_extra, is_out_of_memory
from doap.collection.features import PartTarget
from doap.collection.local import IMAGES_PER_BATCH, WORKERS_PER_GPU, ImageExtractor, prepare_worker, split
from doap.collection.storage import StoredFile

RETRIES = 3
"""Number of times that Ray repeats a task whose process crashed."""
IMAGES_PER_PART = 128
"""Maximum number of images of a task and its part: 74 MB at 2,048 keypoints per image."""
TASKS_PER_WORKER = 2
"""Number of tasks that run or wait, per processor of the cluster."""
_WAIT_SECONDS = 1.0
_CONNECT_SECONDS = 10.0
_CHECK_CLUSTER = "Check the address and that the cluster runs (`ray status`)."
_LOG = logging.getLogger(__name__)


def extract_with_ray(
    sources: Sequence[StoredFile],
    target: PartTarget,
    extract: ImageExtractor,
    workers: int,
    address: str | None,
    device: str,
) -> Generator[pa.Table]:
    """Write the rows of images, and yield their names and errors, part by part, in the order in which they are ready.

    A task processes several images. The images of a task that Ray gives up are processed again, one per task, so that
    only the image that crashes processes fails. It has no checksum, so the next run tries it again.

    Without an address, it uses the Ray that this process is connected to, or starts one with `workers` processors.
    """
    ray = import_extra("ray", "ray")
    start = not ray.is_initialized()
    if start:
        _start_ray(ray, workers, address)
    try:
        used, request = plan_tasks(ray.cluster_resources(), extract, device)
        # A list is passed on without fetching what its references refer to. A process then fetches it once.
        shared = [ray.put((extract, target))]
        task = ray.remote(**request, max_retries=RETRIES)(_extract_part)
        missing = {source.name: source for source in sources}
        # All workers have several tasks, so that they finish at about the same time.
        size = len(sources) // (4 * _count_processors(ray))
        for largest in (min(IMAGES_PER_PART, max(IMAGES_PER_BATCH, size)), 1):
            parts = split(list(missing.values()), largest)
            for rows in _collect(ray, (partial(task.remote, part, shared, used) for part in parts)):
                for name in rows["name"].to_pylist():
                    del missing[name]
                yield rows
            if not missing:
                return
        reason = f"its task crashed {1 + RETRIES} times or failed. See the logs of Ray."
        yield target.write(pa.concat_tables([extract.fail(source, reason) for source in missing.values()]))
    finally:
        if start:
            ray.shutdown()


def _start_ray(ray: Any, workers: int, address: str | None) -> None:
    """Connect to the cluster at an address, or start Ray on this machine."""
    if address:
        _check_answer(address)
    # Ray's own log files keep everything.
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    # Without "local", Ray would connect to a cluster that happens to run on this machine.
    own = {"address": "local", "num_cpus": workers, "include_dashboard": False}
    try:
        ray.init(**({"address": address} if address else own), **quiet)
    # Ray raises exceptions of many types, also of the base class.
    except Exception as error:
        if is_out_of_memory(error):
            raise
        reason = " ".join(str(error).split()).rstrip(".")
        if address:
            raise ArgumentError(f"address: cannot connect to Ray at {address}: {reason}. {_CHECK_CLUSTER}") from error
        raise ArgumentError(
            f"engine: Ray cannot start on this machine: {reason}. Use the local engine, or the address of a cluster."
        ) from error


def _check_answer(address: str) -> None:
    """Refuse an address that nobody listens at. Ray itself would try for minutes, and then end the process."""
    if address == "auto":
        # Ray prefers the variable to a search on this machine.
        address = os.environ.get("RAY_ADDRESS") or address
    try:
        parts = urlsplit(address if "://" in address else f"ray://{address}")
        host, port = parts.hostname, parts.port
        # Ray finds its own machine at its network address, and explains other addresses at once.
        if parts.scheme == "ray" and host and port and host != "localhost":
            socket.create_connection((host, port), _CONNECT_SECONDS).close()
    except ValueError as error:
        raise ArgumentError(f"address: expected auto, HOST:PORT or ray://HOST:PORT, got {address!r}.") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise ArgumentError(f"address: cannot connect to Ray at {address}: {reason}. {_CHECK_CLUSTER}") from error


def plan_tasks(cluster: Mapping[str, float], extract: ImageExtractor, device: str) -> tuple[str, dict[str, float]]:
    """Return the device of the network and the resources that a task requests, for the resources of a cluster."""
    gpus = cluster.get("GPU", 0)
    if not device.startswith(("auto", "cuda")):
        return str(resolve_device(device)), {"num_cpus": 1}
    if extract.extractor.second_stage is None or (device == "auto" and not gpus):
        return "cpu", {"num_cpus": 1}
    if not gpus:
        raise ArgumentError(f"device: the Ray cluster has no GPU for {device}. Use auto or cpu.")
    # A task sees only the GPU that Ray assigns to it.
    return "cuda", {"num_cpus": 1, "num_gpus": 1 / WORKERS_PER_GPU}


def _collect(ray: Any, tasks: Iterable[Callable[[], Any]]) -> Generator[pa.Table]:
    """Submit tasks as earlier ones finish; yield their results, except for those of tasks that Ray gave up."""
    waiting = iter(tasks)
    running: list[Any] = []
    try:
        while True:
            # Machines may join or leave the cluster.
            free = TASKS_PER_WORKER * _count_processors(ray) - len(running)
            running += [submit() for submit in islice(waiting, max(0, free))]
            if not running:
                return
            # The cost of waiting grows with the number of tasks, so with many of them several results are awaited.
            done, running = ray.wait(running, num_returns=1 + len(running) // 100, timeout=_WAIT_SECONDS)
            for result in done:
                try:
                    yield ray.get(result)
                except ray.exceptions.RayError as error:
                    # Without the store or space in it, every other task would fail as well.
                    if isinstance(cause := getattr(error, "cause", None), DoapError | OSError):
                        raise cause from error
                    _LOG.debug("a task failed: %s", error)
    finally:
        for result in running:
            ray.cancel(result)


def _count_processors(ray: Any) -> int:
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def _extract_part(sources: Sequence[StoredFile], shared: list[Any], device: str) -> pa.Table:
    """Extract some images and write their part; return their names and errors."""
    extract, target = _fetch(shared[0], device)
    return target.write(pa.concat_tables([extract(batch) for batch in split(sources, IMAGES_PER_BATCH)]))


@lru_cache(maxsize=1)
def _fetch(shared: Any, device: str) -> tuple[ImageExtractor, PartTarget]:
    """Fetch what all tasks share, once per process and run."""
    prepare_worker()
    extract, target = import_extra("ray", "ray").get(shared)
    return extract.to(device), target
