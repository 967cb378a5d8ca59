"""The Ray engine: every task extracts some images and writes their part, on one machine or a cluster.

Features never pass through the calling process: it starts tasks, keeps a bounded number of them waiting, and receives
one row of the manifest per image. Tasks of many images keep its work per image small. With GPUs, tasks only detect, and
one actor per GPU describes and writes. Ray repeats a task whose process or machine is lost, and restarts actors.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import cycle, islice
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa

from doap._support.device import resolve_device
from doap._support.errors import ArgumentError, DoapError, import_extra, is_out_of_memory
from doap.collection.features import FailedImage, PartTarget
from doap.collection.image_folder import Source
from doap.collection.stages import IMAGES_PER_BATCH, Describe, Detect, ImageResult, prepare_worker

RETRIES = 3
"""Number of times that Ray repeats a task whose process crashed."""
IMAGES_PER_PART = 128
"""Maximum number of images of a task and its part: 74 MB at 2,048 keypoints per image."""
IMAGES_PER_GPU_PART = 32
"""The same with GPUs. The patches of waiting tasks, 67 MB each at 2,048 keypoints, are in the memory of Ray."""
TASKS_PER_WORKER = 2
"""Number of tasks that run or wait, per processor of the cluster."""
_WAIT_SECONDS = 1.0
_CONNECT_SECONDS = 10.0
_CHECK_CLUSTER = "Check the address and that the cluster runs (`ray status`)."
_LOG = logging.getLogger(__name__)


class Plan(NamedTuple):
    """Where the network runs.

    Attributes:
        device: Device of the network.
        workers: Number of tasks or actors that describe at the same time.
        request: Resources that each of them requests.
    """

    device: str
    workers: int
    request: dict[str, int]


class Stages(NamedTuple):
    """What a worker process does with images."""

    detect: Detect
    describe: Describe
    target: PartTarget


def extract_with_ray(
    sources: Sequence[Source],
    target: PartTarget,
    detect: Detect,
    describe: Describe,
    workers: int,
    address: str | None,
    device: str,
) -> Generator[pa.Table]:
    """Write the rows of images, and yield those of the manifest, part by part, in the order in which they are ready.

    A task processes several images. The images of a task that Ray gives up are processed again, one per task, so that
    only the image that crashes processes fails. It has no checksum, so the next run tries it again.

    Without an address, it uses the Ray that this process is connected to, or starts one with `workers` processors.
    """
    ray = import_extra("ray", "ray")
    start = not ray.is_initialized()
    if start:
        _start_ray(ray, workers, address)
    try:
        stages = Stages(detect, describe, target)
        plan = plan_workers(ray.cluster_resources(), describe, device)
        run = run_with_actors if "num_gpus" in plan.request else run_tasks
        missing = {source.name: source for source in sources}
        for together in (True, False):
            for rows in run(list(missing.values()), stages, plan, together):
                for name in rows["name"].to_pylist():
                    del missing[name]
                yield rows
            if not missing:
                return
        reason = f"its task crashed {1 + RETRIES} times or failed. See the logs of Ray."
        failed = [FailedImage(name, "", f"{detect.folder.locate(name)}: {reason}") for name in missing]
        yield target.write(describe(failed))
    finally:
        if start:
            ray.shutdown()


def _start_ray(ray: Any, workers: int, address: str | None) -> None:
    """Connect to the cluster at an address, or start Ray on this machine."""
    if address:
        _check_answer(ray, address)
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


def _check_answer(ray: Any, address: str) -> None:
    """Refuse an address that nobody listens at. Ray itself would try for minutes, and then end the process."""
    # Ray prefers the variable to a search on this machine.
    target = os.environ.get("RAY_ADDRESS") or address if address == "auto" else address
    try:
        parts = urlsplit(target if "://" in target else f"ray://{target}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ArgumentError(f"address: expected auto, HOST:PORT or ray://HOST:PORT, got {target!r}.") from error
    # Ray explains other addresses at once.
    if parts.scheme != "ray" or not host or not port:
        return
    # A cluster on this machine may listen at its network address only.
    hosts = [host, ray.util.get_node_ip_address()] if host in ("localhost", "127.0.0.1", "::1") else [host]
    reason = ""
    for one in hosts:
        try:
            socket.create_connection((one, port), _CONNECT_SECONDS).close()
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            return
    raise ArgumentError(f"address: cannot connect to Ray at {target}: {reason}. {_CHECK_CLUSTER}")


def plan_workers(cluster: Mapping[str, float], describe: Describe, device: str) -> Plan:
    """Choose the device, the number and the resource request of the workers for the resources of a cluster.

    Every GPU gets one actor. On CPUs, a task uses one processor for both stages.
    """
    gpus, processors = int(cluster.get("GPU", 0)), max(1, int(cluster.get("CPU", 1)))
    if not device.startswith(("auto", "cuda")):
        return Plan(str(resolve_device(device)), processors, {"num_cpus": 1})
    if describe.extractor.second_stage is None or (device == "auto" and not gpus):
        return Plan("cpu", processors, {"num_cpus": 1})
    if not gpus:
        raise ArgumentError(f"device: the Ray cluster has no GPU for {device}. Use auto or cpu.")
    # An actor sees only the GPU that Ray assigns to it.
    return Plan("cuda", gpus, {"num_gpus": 1})


def run_tasks(sources: Sequence[Source], stages: Stages, plan: Plan, together: bool) -> Generator[pa.Table]:
    """Run both stages in one task per part; yield the rows of the manifest of the tasks that succeeded.

    Args:
        sources: Images.
        stages: What to do with them.
        plan: Device and resources.
        together: Whether a task processes several images.
    """
    ray = import_extra("ray", "ray")
    # A list is passed on without fetching what its references refer to. A process then fetches it once.
    shared = [ray.put(stages)]
    task = ray.remote(**plan.request, max_retries=RETRIES)(_extract_part)
    parts = split_into_parts(sources, plan.workers, IMAGES_PER_PART if together else 1)
    yield from _collect(ray, parts, lambda part: task.remote(part, shared, plan.device))


def run_with_actors(sources: Sequence[Source], stages: Stages, plan: Plan, together: bool) -> Generator[pa.Table]:
    """Run the first stage in tasks and the second one in actors, otherwise like `run_tasks`."""
    ray = import_extra("ray", "ray")
    shared = [ray.put(stages)]
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(_detect_part)
    settings = {"max_restarts": -1, "max_task_retries": RETRIES}
    kind = ray.remote(**{"num_cpus": 0} | plan.request, **settings)(_Describer)
    actors = [kind.remote(stages.describe, stages.target, plan.device) for _ in range(plan.workers)]
    parts = split_into_parts(sources, _count_processors(ray), IMAGES_PER_GPU_PART if together else 1)
    turns = cycle(actors)
    try:
        yield from _collect(ray, parts, lambda part: next(turns).write.remote(task.remote(part, shared)))
    finally:
        for actor in actors:
            ray.kill(actor)


def split_into_parts(sources: Sequence[Source], workers: int, largest: int) -> Iterator[Sequence[Source]]:
    """Yield images in parts that become smaller towards the end, so that all workers finish at about the same time.

    >>> [len(part) for part in split_into_parts([Source("a.jpg")] * 100, workers=2, largest=20)]
    [20, 20, 15, 12, 9, 6, 5, 4, 4, 4, 1]
    """
    start = 0
    while start < len(sources):
        share = -(-(len(sources) - start) // (2 * workers))
        size = min(largest, max(IMAGES_PER_BATCH, share))
        yield sources[start : start + size]
        start += size


def _collect(
    ray: Any, parts: Iterable[Sequence[Source]], submit: Callable[[Sequence[Source]], Any]
) -> Generator[pa.Table]:
    """Submit parts as earlier ones finish; yield their results, except for those of tasks that Ray gave up."""
    waiting = iter(parts)
    running: list[Any] = []
    try:
        while True:
            # Machines may join or leave the cluster.
            free = TASKS_PER_WORKER * _count_processors(ray) - len(running)
            running += [submit(part) for part in islice(waiting, max(0, free))]
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


def _extract_part(sources: Sequence[Source], shared: list[Any], device: str) -> pa.Table:
    """Run both stages on some images; return the rows of the manifest."""
    detect, describe, target = _fetch(shared[0], device)
    tables = [describe([detect(source) for source in batch]) for batch in _batches(sources)]
    return target.write(pa.concat_tables(tables))


def _detect_part(sources: Sequence[Source], shared: list[Any]) -> list[ImageResult]:
    detect = _fetch(shared[0], "cpu").detect
    return [detect(source) for source in sources]


@lru_cache(maxsize=1)
def _fetch(stages: Any, device: str) -> Stages:
    """Fetch the stages, once per process and run."""
    prepare_worker()
    fetched: Stages = import_extra("ray", "ray").get(stages)
    return fetched._replace(describe=fetched.describe.to(device))


class _Describer:
    """An actor with a network, which writes parts."""

    def __init__(self, describe: Describe, target: PartTarget, device: str) -> None:
        prepare_worker()
        self._describe, self._target = describe.to(device), target

    def write(self, results: Sequence[ImageResult]) -> pa.Table:
        """Describe and write some images; return the rows of the manifest."""
        return self._target.write(pa.concat_tables([self._describe(batch) for batch in _batches(results)]))


def _batches(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), IMAGES_PER_BATCH):
        yield items[start : start + IMAGES_PER_BATCH]
