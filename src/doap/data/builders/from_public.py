"""A published set in its original form → a patch-group set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from doap.data.readers import (
    HPatches,
    PhotoTour,
    RomePatches,
    identify,
    read_hpatches,
    read_phototour,
    read_romepatches,
)
from doap.data.writer import SetWriter, UnitGroups
from doap.errors import DataError
from doap.images import resize_patches
from doap.types import Progress, no_progress

READERS: dict[str, Callable[[Path], PhotoTour | HPatches | RomePatches]] = {
    "phototour": read_phototour,
    "hpatches": read_hpatches,
    "romepatches": read_romepatches,
}


def build_from_public(root: Path, out: Path, *, size: int = 32, progress: Progress = no_progress) -> Path:
    """Store PhotoTour, HPatches or RomePatches as groups; the same call resumes a killed build.

    Patches are shrunk to `size` by averaging areas, as the paper resizes them to the network's input (§5).

    Args:
        root: a folder of the release; `doap data check` says which it is.
        out: the set to make.
        size: S, side of the patches in pixels; 32, or 42 for a network with a spatial transformer.
        progress: called with units done, units in all (unknown: 0), and the one at hand.
    """
    found = identify(root)
    if found.kind not in READERS:
        raise DataError(f"{root}: expected one of {', '.join(READERS)}, got {found.kind} ({found.summary})")
    if found.problems:
        raise DataError(f"{found.problems[0]} ({len(found.problems)} problems; see `doap data check {root}`)")
    reader = READERS[found.kind](root)
    writer = SetWriter(out, size, {"command": "from-public", "kind": found.kind, "size": size}, [])
    for unit in reader.units(skip=writer.done):
        none = np.empty((0, 2), np.int64)
        groups = UnitGroups(unit.counts, unit.sequence, unit.position, found.kind, none)
        writer.add(unit.name, resize_patches(unit.patches, size), groups)
        progress(writer.done, 0, unit.name)
    return writer.finish()
