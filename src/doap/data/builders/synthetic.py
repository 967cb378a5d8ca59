"""One photo → groups: other views of it are made up, and keypoints are found in them anew.

The patches of a group are cut where the detector fires in each view, not where the known homography says it should, so
its errors of place, scale and orientation are in the data as they will be in use.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.data.builders.cut import Cut
from doap.data.builders.nearby import near_pairs
from doap.data.random_streams import stream
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

Image = NDArray[np.uint8]


@dataclass(frozen=True)
class Views:
    """How other views of a photo are made up, and when a keypoint found in one is the same as in the photo.

    Attributes:
        number: views besides the photo itself.
        points: keypoints of the photo that are followed.
        tilt: greatest angle between the photo's plane and the view, in degrees.
        roll: greatest turn of the camera, in degrees.
        zoom: greatest change of scale, as a power of two either way.
        near: pixels (in the view) between the found and the expected place, at most.
        scale: their scales apart, as a power of two, at most.
        angle: their orientations apart, in degrees, at most.
    """

    number: int = 7
    points: int = 500
    tilt: float = 50.0
    roll: float = 45.0
    zoom: float = 0.75
    near: float = 3.0
    scale: float = 0.4
    angle: float = 20.0


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


def viewpoint(shape: tuple[int, ...], views: Views, random: np.random.Generator) -> NDArray[np.float64]:
    """A homography of the photo as a plane: turned, tilted about some axis, seen from nearer or further, shifted."""
    height, width = shape
    reach = float(np.hypot(height, width))
    roll = np.radians(random.uniform(-views.roll, views.roll))
    axis = random.uniform(0, np.pi)
    # Uniform in the sine: steep views differ more from each other than flat ones.
    tilt = np.arcsin(random.uniform(-1, 1) * np.sin(np.radians(views.tilt)))
    zoom = 2 ** random.uniform(-views.zoom, views.zoom)
    turn, back = _rotation(axis), _rotation(-axis)
    # A camera at distance `reach` from the plane: depth changes by sin(tilt) along the axis across.
    tilted = np.array([[np.cos(tilt), 0, 0], [0, 1, 0], [np.sin(tilt) / reach, 0, 1]])
    to_centre = np.array([[1, 0, -(width - 1) / 2], [0, 1, -(height - 1) / 2], [0, 0, 1.0]])
    aside = random.uniform(-0.1, 0.1, size=2) * reach
    from_centre = np.array([[zoom, 0, (width - 1) / 2 + aside[0]], [0, zoom, (height - 1) / 2 + aside[1]], [0, 0, 1.0]])
    homography = from_centre @ turn @ tilted @ back @ _rotation(roll) @ to_centre
    return np.asarray(homography / homography[2, 2])


def _rotation(angle: float) -> NDArray[np.float64]:
    return np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])


def warp(image: Image, homography: NDArray[np.float64]) -> Image:
    import cv2

    height, width = image.shape
    # Shrinking takes one pixel of several: what is finer than the new grid goes first.
    shrink = float(np.sqrt(abs(np.linalg.det(homography[:2, :2]))))
    if shrink < 1:
        image = np.asarray(cv2.GaussianBlur(image, (0, 0), 0.5 * np.sqrt(1 / shrink**2 - 1) + 1e-3), np.uint8)
    warped = cv2.warpPerspective(
        image, homography, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
    )
    return np.asarray(warped, np.uint8)


def light(image: Image, random: np.random.Generator) -> Image:
    """Another light and another camera: gamma, contrast, blur, noise and JPEG, each only sometimes."""
    import cv2

    values = image.astype(np.float32) / 255
    if random.random() < 0.7:
        values = values ** float(2 ** random.uniform(-0.8, 0.8))
    if random.random() < 0.7:
        values = (values - 0.5) * float(random.uniform(0.6, 1.3)) + 0.5 + float(random.uniform(-0.15, 0.15))
    if random.random() < 0.4:
        values = np.asarray(cv2.GaussianBlur(values, (0, 0), float(random.uniform(0.4, 1.5))), np.float32)
    if random.random() < 0.4:
        values = values + random.normal(0, random.uniform(0.005, 0.03), values.shape).astype(np.float32)
    changed = np.clip(np.rint(values * 255), 0, 255).astype(np.uint8)
    if random.random() < 0.5:
        _, coded = cv2.imencode(".jpg", changed, [cv2.IMWRITE_JPEG_QUALITY, int(random.integers(30, 90))])
        changed = np.asarray(cv2.imdecode(coded, cv2.IMREAD_GRAYSCALE), np.uint8)
    return changed


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
