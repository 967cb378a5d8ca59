"""The Ray engine: Ray Data tasks detect, and actors describe and write parts, on one machine or a cluster.

Features never pass through the calling process: it receives one row of the manifest per image. Ray streams: it starts
no more tasks than the actors keep up with. It repeats a task whose process crashed and restarts actors.
"""

from __future__ import annotations

import logging
import pickle
import warnings
from collections.abc import Generator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import pyarrow as pa

from doap.device import resolve_device
from doap.errors import ArgumentError, import_extra
from doap.scale.features import FailedImage, PartTarget
from doap.scale.image_folder import Source
from doap.scale.stages import IMAGES_PER_BATCH, Describe, Detect, prepare_worker

RETRIES = 3
"""Number of times that Ray repeats a task whose process crashed."""
IMAGES_PER_PART = 64
"""Maximum number of images of a part: 37 MB at 2,048 keypoints per image, and 130 MB of patches before."""
_PARTS_PER_ACTOR = 4


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
    import_extra("ray.data", "scale")
    ray = import_extra("ray", "scale")
    start = not ray.is_initialized()
    if start:
        # Ray's own log files keep everything.
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        # Without "local", Ray would connect to a cluster that happens to run on this machine.
        own = {"address": "local", "num_cpus": workers, "include_dashboard": False}
        ray.init(**({"address": address} if address else own), **quiet)
    try:
        missing = {source.name: source for source in sources}
        for together in (True, False):
            for rows in _stream(ray, list(missing.values()), target, detect, describe, together, device):
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
    ray: Any,
    sources: Sequence[Source],
    target: PartTarget,
    detect: Detect,
    describe: Describe,
    together: bool,
    device: str,
) -> Generator[pa.Table]:
    """Yield the rows of the manifest of all images whose task succeeded; tasks process one image if not `together`."""
    where, actors, request = plan_actors(ray.cluster_resources(), describe, device)
    # Small parts at the end would leave actors idle; a few parts per actor balance the work.
    share = -(-len(sources) // (_PARTS_PER_ACTOR * actors))
    images_per_part = min(IMAGES_PER_PART, max(IMAGES_PER_BATCH, share)) if together else 1
    images_per_task = IMAGES_PER_BATCH if together else 1
    tasks = -(-len(sources) // images_per_task)
    data = ray.data.from_items([source._asdict() for source in sources], override_num_blocks=tasks)
    data.context.enable_progress_bars = False
    data.context.max_errored_blocks = -1
    with warnings.catch_warnings():
        # Ray 2.60 deprecates every way to set the retries of a task without offering a new one.
        warnings.simplefilter("ignore", DeprecationWarning)
        results = data.map(_detect_image, fn_args=(detect,), ray_remote_args_fn=lambda: {"max_retries": RETRIES})
    described = results.map_batches(
        _Describer,
        fn_constructor_args=(describe, target, where),
        batch_size=images_per_part,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=actors),
        **request,
    )
    yield from described.iter_batches(batch_size=None, batch_format="pyarrow")


def _detect_image(row: dict[str, Any], detect: Detect) -> dict[str, Any]:
    """Return a row for the actors. The result is pickled, because Ray's tables have no type for it."""
    prepare_worker()
    return {"result": pickle.dumps(detect(Source(**row)))}


class _Describer:
    """An actor with a network, which writes a part for each batch."""

    def __init__(self, describe: Describe, target: PartTarget, device: str) -> None:
        prepare_worker()
        self._describe, self._target = describe.to(device), target

    def __call__(self, rows: pa.Table) -> pa.Table:
        # A task of the same run pickled these bytes.
        results = [pickle.loads(result) for result in rows["result"].to_pylist()]
        # The order of the images does not depend on which task was faster, and so the name of the part does not.
        results.sort(key=attrgetter("name"))
        batches = (results[start : start + IMAGES_PER_BATCH] for start in range(0, len(results), IMAGES_PER_BATCH))
        return self._target.write(pa.concat_tables([self._describe(batch) for batch in batches]))
