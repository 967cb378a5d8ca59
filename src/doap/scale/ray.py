"""The engine of a cluster: Ray Data, whose tasks look at images and whose actors describe them.

Ray streams: it starts no more tasks than the actors, and whoever reads the rows, can keep up with. It repeats a task
whose process died, and starts an actor again.
"""

from __future__ import annotations

import logging
import pickle
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from doap.errors import import_extra
from doap.scale.features import FailedImage
from doap.scale.stages import IMAGES_AT_ONCE, Describe, Look, begin_process

RETRIES = 3
"""How often a task is repeated when its process dies."""


def extract_with_ray(
    names: Sequence[str], look: Look, describe: Describe, workers: int, address: str | None
) -> Iterator[pa.Table]:
    """Rows of images, some at a time, in the order in which they are ready.

    A task looks at several images. What one that was given up has left is looked at once more, one image to a task, so
    that an image that ends processes fails alone; it has no checksum, so the next run tries it again.

    Args:
        names, look, describe: as for `doap.scale.local.extract_locally`.
        workers: processors that Ray is started with, if it is started here.
        address: of a cluster to use; a Ray that this process has started already is used as it is.
    """
    import_extra("ray.data", "scale")
    ray = import_extra("ray", "scale")
    begin = not ray.is_initialized()
    if begin:
        # It has much to say, to people who watch a cluster; the logs of Ray hold it all.
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        ray.init(address, **quiet) if address else ray.init(num_cpus=workers, include_dashboard=False, **quiet)
    try:
        missing = dict.fromkeys(names)
        for images_of_a_task in (IMAGES_AT_ONCE, 1):
            for table in _stream(ray, list(missing), look, describe, images_of_a_task):
                for name in table["name"].to_pylist():
                    del missing[name]
                yield table
            if not missing:
                return
        reason = f"expected an image, got one whose task died {1 + RETRIES} times or failed; see the logs of Ray"
        yield describe([FailedImage(name, "", f"{look.images / name}: {reason}") for name in missing])
    finally:
        if begin:
            ray.shutdown()


def _stream(
    ray: Any, names: Sequence[str], look: Look, describe: Describe, images_of_a_task: int
) -> Iterator[pa.Table]:
    """Rows of those images whose task was not given up."""
    tasks = -(-len(names) // images_of_a_task)
    data = ray.data.from_items([{"name": name} for name in names], override_num_blocks=tasks)
    data.context.enable_progress_bars = False
    data.context.max_errored_blocks = -1
    with warnings.catch_warnings():
        # Ray 2.60 deprecates each way there is to set the retries of a task, and has no new one yet.
        warnings.simplefilter("ignore", DeprecationWarning)
        looked = data.map(_look_at, fn_args=(look,), ray_remote_args_fn=lambda: {"max_retries": RETRIES})
    processors = max(1, int(ray.cluster_resources().get("CPU", 1)))
    described = looked.map_batches(
        _Describer,
        fn_constructor_args=(describe,),
        batch_size=IMAGES_AT_ONCE,
        batch_format="pyarrow",
        # An actor has one thread and shares the processors with the tasks: to either stage it may be left to fill them.
        compute=ray.data.ActorPoolStrategy(size=processors),
        num_cpus=0,
    )
    yield from described.iter_batches(batch_size=None, batch_format="pyarrow")


def _look_at(row: dict[str, Any], look: Look) -> dict[str, Any]:
    """A row for the actors; what was seen travels as bytes, for Ray's own tables know no features."""
    begin_process()
    return {"looked": pickle.dumps(look(row["name"]))}


class _Describer:
    """An actor with a network."""

    def __init__(self, describe: Describe) -> None:
        begin_process()
        self._describe = describe

    def __call__(self, rows: pa.Table) -> pa.Table:
        # These bytes were made by a task of this very run.
        return self._describe([pickle.loads(looked) for looked in rows["looked"].to_pylist()])
