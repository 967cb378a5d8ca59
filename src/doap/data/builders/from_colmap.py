"""Build a patch set from a COLMAP model and its images, or from the tracks of several scenes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import DataError
from doap._support.files import sha256
from doap.data.builders.tracks import Tracks, read_tracks
from doap.data.writer import SetWriter, UnitGroups
from doap.images import extract_patches, read_grey, resize_frames
from doap.types import Progress, no_progress

OBSERVATIONS_AT_ONCE = 200_000
"""Patches per unit: the memory of a build, and the work repeated after an interruption. Pairs of points to ignore are
stored only within a unit."""


def build_from_colmap(
    model: str | Path,
    images: str | Path,
    out: str | Path,
    *,
    database: str | Path | None = None,
    patch_size: int = 32,
    extent: float = 1.0,
    scene: str | None = None,
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
        progress: Called before each unit (a range of points).
    """
    model, images = Path(model), Path(images)
    tracks = read_tracks(model, None if database is None else Path(database))
    if not len(tracks.xyz):
        raise DataError(
            f"{model}: expected tracks with at least two consistent views, got none. "
            f"Dropped observations: {tracks.dropped}."
        )
    builder = {
        "command": "from-colmap",
        "points3D": {path.name: sha256(path) for path in sorted(model.glob("points3D.*"))},
        "scale and orientation": "keypoints" if database else "cameras",
        "dropped": tracks.dropped,
    }
    scenes = {scene or images.resolve().name: tracks}
    return write_tracks(scenes, images, out, builder, [], patch_size, extent, progress)


def write_tracks(
    scenes: Mapping[str, Tracks],
    images: Path,
    out: str | Path,
    builder: dict[str, Any],
    ledger: list[dict[str, Any]],
    patch_size: int,
    extent: float,
    progress: Progress,
) -> Path:
    """Write the tracks of scenes, whose image names are relative to `images`, as a patch set; see `SetWriter`."""
    paths = {name: images / name for tracks in scenes.values() for name in tracks.images}
    if missing := [name for name, path in paths.items() if not path.is_file()]:
        raise DataError(
            f"{images}: missing {len(missing)} of {len(paths)} images, such as {missing[0]}. Check the folder."
        )
    units: dict[str, tuple[str, slice]] = {}
    for scene, tracks in scenes.items():
        window = (np.bincount(tracks.point).cumsum() - 1) // OBSERVATIONS_AT_ONCE
        borders = [0, *(np.flatnonzero(np.diff(window)) + 1).tolist(), len(window)]
        units |= {f"{scene}, points {begin} to {end}": (scene, slice(begin, end)) for begin, end in pairwise(borders)}
    builder |= {"patch_size": patch_size, "extent": extent}
    with SetWriter(out, patch_size, builder, ledger, paths) as writer:
        for name in writer.remaining(list(units)):
            progress(writer.done, len(units), name)
            scene, points = units[name]
            writer.add(name, *cut_tracks(scenes[scene], images, scene, patch_size, points, extent))
        progress(len(units), len(units), "finished")
        return writer.finish()


def cut_tracks(
    tracks: Tracks, folder: Path, scene: str, patch_size: int, points: slice = slice(None), extent: float = 1.0
) -> tuple[NDArray[np.uint8], UnitGroups]:
    """Return the patches (O, S, S) of a range of points, and their groups with the ignored pairs within the range.

    Each image of the folder is read once.
    """
    begin, end, _ = points.indices(len(tracks.xyz))
    first, last = np.searchsorted(tracks.point, [begin, end])
    image, frames = tracks.image[first:last], resize_frames(tracks.frames[first:last], extent)
    patches = np.empty((last - first, patch_size, patch_size), np.uint8)
    for number in np.unique(image):
        path, expected = folder / tracks.images[number], tracks.sizes[number]
        pixels = read_grey(path)
        if pixels.shape != expected:
            raise DataError(
                f"{path}: the model expects (height, width) {expected}, got {pixels.shape}. "
                "Use the images from which the model was reconstructed."
            )
        own = image == number
        patches[own] = extract_patches(pixels, frames[own], patch_size)
    in_range = ((tracks.ignore >= begin) & (tracks.ignore < end)).all(axis=1)
    count = np.bincount(tracks.point[first:last] - begin, minlength=end - begin)
    return patches, UnitGroups(count, scene, "tracks", tracks.ignore[in_range] - begin)
