"""One photo → groups: other views of it are made up, and keypoints are found in them anew.

The patches of a group are cut where the detector fires in each view, not where the known homography says it should, so
its errors of place, scale and orientation are in the data as they will be in use.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.data.builders.cut import Cut
from doap.data.builders.nearby import near_pairs
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
from doap.images.synthetic_views import Views, light, viewpoint, warp
from doap.random_streams import stream

Image = NDArray[np.uint8]


def synthetic_groups(
    photo: Path, sequence: str, source: str, size: int, seed: int, number: int, views: Views, extent: float = 1.0
) -> Cut:
    """Patches (N, S, S) and groups of one photo; those found in one view only are left out.

    Args:
        photo: its file.
        sequence: the place it shows.
        source: its name in the set.
        size: S.
        seed: the seed of the set.
        number: which photo of the set it is: its own random stream.
        views: what to make up.
        extent: side of a patch over that of its keypoint's frame.
    """
    image = read_grey(photo)
    random = stream(seed, "synthetic views", number)
    frames = _chosen(image, views.points, random)
    patches, members = [extract_patches(image, resize_frames(frames, extent), size)], [np.arange(len(frames))]
    for _ in range(views.number):
        homography = viewpoint(image.shape, views, random)
        view = light(warp(image, homography), random)
        expected = transform_frames(frames, homography)
        # The corners must come from inside the photo too: beyond its border the view is made of repeated pixels.
        found, _ = sift(contrast=0.04, precise=False).detect(view)
        found = found[inside(found, *view.shape)]
        found = found[inside(transform_frames(found, np.linalg.inv(homography)), *image.shape)]
        point, keypoint = _same(expected, found, views)
        patches.append(extract_patches(Pyramid(view), resize_frames(found[keypoint], extent), size))
        members.append(point)
    member = np.concatenate(members)
    count = np.bincount(member, minlength=len(frames))
    keep = count > 1
    order = member.argsort(kind="stable")
    order = order[keep[member[order]]]
    place = np.cumsum(keep) - 1
    near = near_pairs(centres(frames))
    ignore = place[near[keep[near].all(axis=1)]].reshape(-1, 2)
    position = np.pad(centres(frames)[keep], ((0, 0), (0, 1)))
    return np.concatenate(patches)[order], UnitGroups(count[keep], sequence, position, source, ignore)


def _chosen(image: Image, points: int, random: np.random.Generator) -> NDArray[np.float32]:
    """Frames (N, 2, 3) of keypoints whose patch lies in the photo, drawn at random among the stronger half."""
    # A quarter of a pixel off, as the sets in use were built: what counts is that they are all built alike.
    frames, _ = sift(contrast=0.02, precise=False).detect(image)
    frames = frames[inside(frames, *image.shape)]
    strong = frames[: max(2 * points, len(frames) // 2)]
    return strong[np.sort(random.permutation(len(strong))[:points])]


def _same(
    expected: NDArray[np.float32], found: NDArray[np.float32], views: Views
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs (P,), (P,) of expected and found frames that are each other's nearest, and near enough in all respects."""
    if not len(expected) or not len(found):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    place = np.linalg.norm(centres(expected)[:, None] - centres(found), axis=2) / views.near
    scale = np.abs(np.log2(scales(expected)[:, None] / scales(found))) / views.scale
    angle = np.abs((angles(expected)[:, None] - angles(found) + 180) % 360 - 180) / views.angle
    off = np.maximum(np.maximum(place, scale), angle)
    # A frame sent to infinity is near nothing.
    off = np.where(np.isfinite(off), off, np.inf)
    nearest = off.argmin(axis=1)
    mutual = off.argmin(axis=0)[nearest] == np.arange(len(expected))
    point = np.flatnonzero(mutual & (off[np.arange(len(expected)), nearest] <= 1))
    return point, nearest[point]
