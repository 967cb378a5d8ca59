"""Build a patch set from a published dataset in its original format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from doap._support.errors import DataError
from doap.data.readers import HPatches, PhotoTour, RomePatches, read_hpatches, read_phototour, read_romepatches
from doap.data.writer import SetWriter, UnitGroups
from doap.images import resize_patches
from doap.types import Progress, no_progress

READERS: dict[str, tuple[str, Callable[[Path], PhotoTour | HPatches | RomePatches]]] = {
    "phototour": ("info.txt", read_phototour),
    "hpatches": ("[iv]_*/ref.png", read_hpatches),
    "romepatches": ("patch_retrieval_Rome_*.mat", read_romepatches),
}
"""Datasets by name: files that only this dataset has, and its reader."""


def build_from_public(
    root: str | Path, out: str | Path, *, patch_size: int = 32, progress: Progress = no_progress
) -> Path:
    """Convert PhotoTour, HPatches or RomePatches to a patch set.

    Patches are resized by area averaging, as in the paper (§5). Resumable: call it again to continue an interrupted
    build.

        build_from_public("liberty", "liberty.patches")

    Args:
        root: Folder of the dataset as published.
        out: Folder of the new set. It must not exist.
        patch_size: Side S of the patches in pixels: 32, or 42 for a network with a spatial transformer.
        progress: Called after each unit; the total is unknown and reported as 0.
    """
    root = Path(root)
    kind = next((kind for kind, (pattern, _) in READERS.items() if any(root.glob(pattern))), None)
    if kind is None:
        raise DataError(f"{root}: expected a dataset as published ({', '.join(READERS)}), got none. Check the path.")
    reader = READERS[kind][1](root)
    builder = {"command": "from-public", "kind": kind, "patch_size": patch_size}
    nothing_ignored = np.empty((0, 2), np.int64)
    with SetWriter(out, patch_size, builder, []) as writer:
        for unit in reader.units(skip=writer.done):
            groups = UnitGroups(unit.counts, unit.scene, kind, nothing_ignored)
            writer.add(unit.name, resize_patches(unit.patches, patch_size), groups)
            progress(writer.done, 0, unit.name)
        return writer.finish()
