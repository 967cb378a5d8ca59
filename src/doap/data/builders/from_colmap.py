"""A COLMAP model and its images → a patch-group set."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from doap.data.builders.cut import check_images, cut_tracks
from doap.data.builders.tracks import read_tracks
from doap.data.writer import SetWriter
from doap.errors import DataError
from doap.files import sha256
from doap.types import Progress, no_progress

OBSERVATIONS_AT_ONCE = 200_000
"""Patches of one unit: what a killed build does again, and what it holds in memory. Points that may be one spot are
kept as such within a unit."""


def build_from_colmap(
    model: Path,
    images: Path,
    out: Path,
    *,
    database: Path | None = None,
    size: int = 32,
    extent: float = 1.0,
    sequence: str | None = None,
    ledger: list[dict[str, Any]] | None = None,
    progress: Progress = no_progress,
) -> Path:
    """Turn tracks into groups of patches; the same call resumes a killed build.

    Args:
        model: folder with cameras, images and points3D (.bin or .txt).
        images: the folder the model's image names start from.
        out: the set to make.
        database: COLMAP's database, for the keypoints' own scale and orientation.
        size: S, side of the patches in pixels.
        extent: side of a patch over that of its frame, as for `build_from_images`.
        sequence: name of the place; the name of the images' folder if not given.
        ledger: what is known of the images' licences.
        progress: called with units done, units in all, and the one at hand.
    """
    tracks = read_tracks(model, database)
    check_images(tracks, images)
    if not len(tracks.xyz):
        raise DataError(f"{model}: expected tracks of two consistent views or more, got none ({tracks.dropped})")
    builder = {
        "command": "from-colmap",
        "points3D": {path.name: sha256(path) for path in sorted(model.glob("points3D.*"))},
        "scale and orientation": "keypoints" if database else "cameras",
        "size": size,
        "extent": extent,
        "dropped": tracks.dropped,
    }
    writer = SetWriter(out, size, builder, ledger or [])
    last = np.flatnonzero(np.diff(tracks.point, append=-1)) + 1
    cuts = [0]
    while cuts[-1] < len(last):
        begin = last[cuts[-1] - 1] if cuts[-1] else 0
        cuts.append(max(cuts[-1] + 1, int(np.searchsorted(last, begin + OBSERVATIONS_AT_ONCE, side="right"))))
    names = [f"points {begin} to {end}" for begin, end in pairwise(cuts)]
    for name in writer.remaining(names):
        progress(writer.done, len(names), name)
        part = slice(cuts[writer.done], cuts[writer.done + 1])
        writer.add(name, *cut_tracks(tracks, images, sequence or images.resolve().name, size, part, extent))
    return writer.finish()
