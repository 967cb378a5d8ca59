"""Build a patch set from a COLMAP model and its images."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from doap._support.errors import DataError
from doap._support.files import sha256
from doap.data.builders.cut import check_images, cut_tracks, cut_unchanged
from doap.data.builders.tracks import Tracks, read_tracks
from doap.data.writer import SetWriter
from doap.types import Progress, no_progress

OBSERVATIONS_AT_ONCE = 200_000
"""Patches per unit: the memory of a build, and the work repeated after an interruption. Pairs of
points to ignore are stored only within a unit."""


def build_from_colmap(
    model: str | Path,
    images: str | Path,
    out: str | Path,
    *,
    database: str | Path | None = None,
    patch_size: int = 32,
    extent: float = 1.0,
    scene: str | None = None,
    ledger: list[dict[str, Any]] | None = None,
    progress: Progress = no_progress,
) -> Path:
    """Build a patch set from the tracks of a COLMAP model.

    Resumable: call it again to continue an interrupted build.

        build_from_colmap("sparse/0", "images", "my.patches", database="database.db")

    Args:
        model: Folder with cameras, images and points3D (.bin or .txt).
        images: Folder that the model's image names are relative to.
        out: Folder of the new set. It must not exist.
        database: COLMAP database of the model. Its keypoints provide scale and orientation.
        patch_size: Side S of the patches in pixels.
        extent: Patch side relative to SIFT's support of 12 σ: 1.5 gives a patch side of 18 σ.
        scene: Name of the scene; None uses the name of the image folder.
        ledger: Licence ledger of the images, one dictionary each.
        progress: Called before each unit (a range of points).
    """
    model, images = Path(model), Path(images)
    tracks = read_tracks(model, None if database is None else Path(database))
    check_images(tracks, images)
    if not len(tracks.xyz):
        raise DataError(
            f"{model}: expected tracks with at least two consistent views, got none. "
            f"Dropped observations: {tracks.dropped}."
        )
    builder = {
        "command": "from-colmap",
        "points3D": {path.name: sha256(path) for path in sorted(model.glob("points3D.*"))},
        "scale and orientation": "keypoints" if database else "cameras",
        "patch_size": patch_size,
        "extent": extent,
        "dropped": tracks.dropped,
    }
    units = {f"points {begin} to {end}": slice(begin, end) for begin, end in pairwise(_unit_borders(tracks))}
    scene = scene or images.resolve().name
    with SetWriter(out, patch_size, builder, ledger or []) as writer:
        writer.check_inputs({name: images / name for name in tracks.images})
        for name in writer.remaining(list(units)):
            progress(writer.done, len(units), name)
            cut = partial(cut_tracks, tracks, images, scene, patch_size, units[name], extent)
            paths = {image: images / image for image in tracks.images_of(units[name])}
            writer.add(name, *cut_unchanged(paths, cut))
        progress(len(units), len(units), "finished")
        return writer.finish()


def _unit_borders(tracks: Tracks) -> list[int]:
    """Return the points at which units begin, and the end of the last unit."""
    # Observations are sorted by point: `end[p]` is the number of observations up to and including
    # point p.
    end = np.flatnonzero(np.diff(tracks.point, append=-1)) + 1
    borders = [0]
    while borders[-1] < len(end):
        done = end[borders[-1] - 1] if borders[-1] else 0
        fits = int(np.searchsorted(end, done + OBSERVATIONS_AT_ONCE, side="right"))
        borders.append(max(borders[-1] + 1, fits))
    return borders
