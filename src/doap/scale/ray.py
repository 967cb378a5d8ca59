"""The Ray engine: Ray Data tasks detect and actors describe, on one machine or a cluster.

Ray streams: it starts no more tasks than the actors and the reader of the rows keep up with. It repeats a task whose
process crashed and restarts actors.
"""

from __future__ import annotations

import logging
import pickle
import warnings
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from doap.device import resolve_device
from doap.errors import ArgumentError, import_extra
from doap.scale.features import FailedImage
from doap.scale.stages import IMAGES_PER_BATCH, Describe, Detect, prepare_worker

RETRIES = 3
"""Number of times that Ray repeats a task whose process crashed."""


def extract_with_ray(
    names: Sequence[str], detect: Detect, describe: Describe, workers: int, address: str | None, device: str
) -> Generator[pa.Table]:
    """Yield the rows of images in batches, in the order in which they are ready.

    A task processes several images. The images of a task that Ray gives up are processed again, one per task, so that
    only the image that crashes processes fails. It has no checksum, so the next run tries it again.

    Without an address, it uses the Ray that this process is connected to, or starts one with `workers` processors.
    """
    import_extra("ray.data", "scale")
    ray = import_extra("ray", "scale")
    start = not ray.is_initialized()
    if start:
        # Ray's own log files keep everything.
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        ray.init(address, **quiet) if address else ray.init(num_cpus=workers, include_dashboard=False, **quiet)
    try:
        missing = dict.fromkeys(names)
        for images_per_task in (IMAGES_PER_BATCH, 1):
            for table in _stream(ray, list(missing), detect, describe, images_per_task, device):
                for name in table["name"].to_pylist():
                    del missing[name]
                yield table
            if not missing:
                return
        reason = f"its task crashed {1 + RETRIES} times or failed. See the logs of Ray."
        yield describe([FailedImage(name, "", f"{detect.folder.path(name)}: {reason}") for name in missing])
    finally:
        if start:
            ray.shutdown()


def plan_actors(cluster: Mapping[str, float], describe: Describe, device: str) -> tuple[str, int, dict[str, int]]:
    """Choose the device, the number and the resource request of the actors for the resources of a cluster.

    Every GPU gets one actor. On CPUs there is one single-threaded actor per processor. It requests no processor, so
    that both stages can use all of them.
    """
    gpus, processors = int(cluster.get("GPU", 0)), max(1, int(cluster.get("CPU", 1)))
    if not device.startswith(("auto", "cuda")):
        return str(resolve_device(device)), processors, {"num_cpus": 0}
    if describe.describer is None or (device == "auto" and not gpus):
        return "cpu", processors, {"num_cpus": 0}
    if not gpus:
        raise ArgumentError(f"device: the Ray cluster has no GPU for {device}. Use auto or cpu.")
    # An actor sees only the GPU that Ray assigns to it.
    return "cuda", gpus, {"num_gpus": 1}


def _stream(
    ray: Any, names: Sequence[str], detect: Detect, describe: Describe, images_per_task: int, device: str
) -> Generator[pa.Table]:
    """Yield the rows of all images whose task succeeded."""
    target, actors, request = plan_actors(ray.cluster_resources(), describe, device)
    tasks = -(-len(names) // images_per_task)
    data = ray.data.from_items([{"name": name} for name in names], override_num_blocks=tasks)
    data.context.enable_progress_bars = False
    data.context.max_errored_blocks = -1
    with warnings.catch_warnings():
        # Ray 2.60 deprecates every way to set the retries of a task without offering a new one.
        warnings.simplefilter("ignore", DeprecationWarning)
        results = data.map(_detect_image, fn_args=(detect,), ray_remote_args_fn=lambda: {"max_retries": RETRIES})
    described = results.map_batches(
        _Describer,
        fn_constructor_args=(describe, target),
        batch_size=IMAGES_PER_BATCH,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=actors),
        **request,
    )
    yield from described.iter_batches(batch_size=None, batch_format="pyarrow")


def _detect_image(row: dict[str, Any], detect: Detect) -> dict[str, Any]:
    """Return a row for the actors. The result is pickled, because Ray's tables have no type for it."""
    prepare_worker()
    return {"result": pickle.dumps(detect(row["name"]))}


class _Describer:
    """An actor with a network."""

    def __init__(self, describe: Describe, device: str) -> None:
        prepare_worker()
        self._describe = describe.to(device)

    def __call__(self, rows: pa.Table) -> pa.Table:
        # A task of the same run pickled these bytes.
        return self._describe([pickle.loads(result) for result in rows["result"].to_pylist()])
