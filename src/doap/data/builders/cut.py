"""Frames in images → the patches of groups."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.data.builders.tracks import Tracks
from doap.data.writer import UnitGroups
from doap.errors import DataError
from doap.images import extract_patches, read_grey, resize_frames

Cut = tuple[NDArray[np.uint8], UnitGroups]
"""Patches (N, S, S), group after group, and what is known of the groups."""


def cut_tracks(
    tracks: Tracks, folder: Path, sequence: str, size: int, points: slice = slice(None), extent: float = 1.0
) -> Cut:
    """Patches (O, S, S) of some of the points and their groups; each image is read once.

    Args:
        tracks: from `read_tracks`.
        folder: where the model's images are.
        sequence: the place.
        size: S.
        points: which of the points; ignored pairs among them are kept.
        extent: side of a patch over that of its frame.
    """
    begin, end, _ = points.indices(len(tracks.xyz))
    first, last = np.searchsorted(tracks.point, [begin, end])
    image, frames = tracks.image[first:last], tracks.frames[first:last]
    patches = np.empty((last - first, size, size), np.uint8)
    for number in np.unique(image):
        # The model's coordinates are those of the stored pixels, whatever the camera noted about its top.
        pixels = read_grey(folder / tracks.images[number])
        if pixels.shape != tracks.sizes[number]:
            raise DataError(
                f"{folder / tracks.images[number]}: expected {tracks.sizes[number]} pixels as the model has it, got "
                f"{pixels.shape}; give the images the model was made from"
            )
        patches[image == number] = extract_patches(pixels, resize_frames(frames[image == number], extent), size)
    ignore = tracks.ignore[((tracks.ignore >= begin) & (tracks.ignore < end)).all(axis=1)] - begin
    count = np.bincount(tracks.point[first:last] - begin, minlength=end - begin)
    position = tracks.xyz[begin:end].astype(np.float32)
    return patches, UnitGroups(count, sequence, position, "tracks", ignore)


def check_images(tracks: Tracks, folder: Path) -> None:
    """Refuse a model whose images are not there, before any work is done."""
    missing = [name for name in tracks.images if not (folder / name).is_file()]
    if missing:
        raise DataError(
            f"{folder}: expected the model's {len(tracks.images)} images, got no {missing[0]} "
            f"and {len(missing) - 1} others; check the IMAGES folder"
        )
