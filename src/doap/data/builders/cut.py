"""Cut the patches of tracks out of their images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import DataError
from doap._support.files import sha256
from doap.data.builders.tracks import Tracks
from doap.data.writer import UnitGroups
from doap.images import extract_patches, read_grey, resize_frames

Cut = tuple[NDArray[np.uint8], UnitGroups]
"""Patches (N, S, S), ordered by group, and the description of the groups."""


def cut_tracks(
    tracks: Tracks, folder: Path, scene: str, patch_size: int, points: slice = slice(None), extent: float = 1.0
) -> Cut:
    """Return the patches (O, S, S) of some points and their groups. Each image is read once.

    Args:
        tracks: Tracks from `read_tracks`.
        folder: Folder of the model's images.
        scene: Name of the scene.
        patch_size: Side S of the patches in pixels.
        points: Range of points to cut. Ignored pairs within the range are kept.
        extent: Patch side relative to the side of its frame.
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
    position = tracks.xyz[begin:end].astype(np.float32)
    return patches, UnitGroups(count, scene, position, "tracks", tracks.ignore[in_range] - begin)


def cut_unchanged(paths: Mapping[str, Path], cut: Callable[[], Cut]) -> Cut:
    """Return the result of a function that reads files, with their checksums as inputs of the groups.

    Args:
        paths: Files that the function reads, by name.
        cut: The function.

    Raises:
        DataError: If a file changes before the function returns, because its patches may be of both versions.
    """
    inputs = {name: sha256(path) for name, path in paths.items()}
    patches, groups = cut()
    for name, path in paths.items():
        if sha256(path) != inputs[name]:
            raise DataError(f"{path}: the file changed while it was read. Run the same command again.")
    return patches, replace(groups, inputs=inputs)


def check_images(tracks: Tracks, folder: Path) -> None:
    """Raise an error if images of the model are missing, before any work is done."""
    missing = [name for name in tracks.images if not (folder / name).is_file()]
    if missing:
        raise DataError(
            f"{folder}: missing {len(missing)} of the model's {len(tracks.images)} images, such as {missing[0]}. "
            "Check the IMAGES folder."
        )
