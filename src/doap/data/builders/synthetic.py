"""Build groups from synthetic views of one photo.

Keypoints are detected again in every view, and patches are cut where the detector fires, not at the
positions that the known homography predicts. The groups therefore contain the detector's errors of
position, scale and orientation, as they occur when images are matched.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap._support.random_streams import stream
from doap.data.builders.tracks import near_pairs
from doap.data.writer import UnitGroups
from doap.detectors import sift
from doap.images import (
    Pyramid,
    angles,
    centres,
    extract_patches,
    inside,
    read_grey,
    resize_frames,
    scales,
    transform_frames,
)
from doap.images.synthetic_views import SyntheticViews, change_appearance, random_homography, warp

Frames = NDArray[np.float32]
Image = NDArray[np.uint8]


def synthetic_groups(
    photo: Path,
    scene: str,
    source: str,
    patch_size: int,
    seed: int,
    number: int,
    views: SyntheticViews,
    extent: float = 1.0,
) -> tuple[NDArray[np.uint8], UnitGroups]:
    """Return the patches (N, S, S) and groups of one photo, for keypoints found in several views.

    `source` is the name of the photo in the set, and `number` its index there, which selects its random stream.
    """
    image = read_grey(photo)
    random = stream(seed, "synthetic views", number)
    frames = _random_keypoints(image, views.keypoints, random)
    patches = [extract_patches(image, resize_frames(frames, extent), patch_size)]
    groups_of_patches = [np.arange(len(frames))]
    for _ in range(views.count):
        homography = random_homography(image.shape, views, random)
        view = change_appearance(warp(image, homography), random)
        found = _detect(view, homography, image.shape)
        group, keypoint = _matching_keypoints(transform_frames(frames, homography), found, views)
        patches.append(extract_patches(Pyramid(view), resize_frames(found[keypoint], extent), patch_size))
        groups_of_patches.append(group)
    group_of_patch = np.concatenate(groups_of_patches)
    count = np.bincount(group_of_patch, minlength=len(frames))
    has_match = count > 1
    by_group = group_of_patch.argsort(kind="stable")
    by_group = by_group[has_match[group_of_patch[by_group]]]
    near = near_pairs(centres(frames))
    new_index = np.cumsum(has_match) - 1
    ignore = new_index[near[has_match[near].all(axis=1)]].reshape(-1, 2)
    return np.concatenate(patches)[by_group], UnitGroups(count[has_match], scene, source, ignore)


def _random_keypoints(image: Image, count: int, random: np.random.Generator) -> Frames:
    """Return frames (N, 2, 3) inside the photo, drawn from the stronger half of its keypoints."""
    # Imprecise upscaling moves keypoints by a quarter of a pixel. All sets were built like this and
    # stay comparable.
    by_strength = replace(sift(contrast=0.02, precise=False), ranks_by_size=False)
    frames, _ = by_strength.detect(image)
    frames = frames[inside(frames, *image.shape)]
    strong = frames[: max(2 * count, len(frames) // 2)]
    return strong[np.sort(random.permutation(len(strong))[:count])]


def _detect(view: Image, homography: NDArray[np.float64], size: tuple[int, ...]) -> Frames:
    """Return the frames (N, 2, 3) of a view whose patches do not reach beyond the border of the photo."""
    found, _ = sift(contrast=0.04, precise=False).detect(view)
    found = found[inside(found, *view.shape)]
    return found[inside(transform_frames(found, np.linalg.inv(homography)), *size)]


def _matching_keypoints(
    expected: Frames, found: Frames, views: SyntheticViews
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return indices (P,), (P,) of mutually nearest frames that are within the limits of `views`."""
    if not len(expected) or not len(found):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    distance = np.linalg.norm(centres(expected)[:, None] - centres(found), axis=2)
    octaves = np.abs(np.log2(scales(expected)[:, None] / scales(found)))
    angle = np.abs((angles(expected)[:, None] - angles(found) + 180) % 360 - 180)
    # The largest error relative to its limit. A frame at infinity matches nothing.
    error = np.maximum(np.maximum(distance / views.max_distance, octaves / views.max_octaves), angle / views.max_angle)
    error = np.where(np.isfinite(error), error, np.inf)
    rows = np.arange(len(expected))
    nearest = error.argmin(axis=1)
    mutual = error.argmin(axis=0)[nearest] == rows
    matched = np.flatnonzero(mutual & (error[rows, nearest] <= 1))
    return matched, nearest[matched]
