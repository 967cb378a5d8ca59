"""Which keypoints of two images show the same spot: the overlap of their regions (Mikolajczyk et al., 2005).

The region of a frame [A | t] is the ellipse inscribed in its patch, {A·u + t : |u| ≤ 1}. The overlap error of two
regions is 1 − intersection / union.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from doap.checks import check_shape
from doap.errors import ArgumentError
from doap.images import transform_frames
from doap.matching.blocks import BLOCK, row_blocks

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RADIUS = 30.0
"""Pixels: what the region in image 0 is scaled to."""

_RAYS = 180
_PAIRS_AT_ONCE = 2048


def overlap_errors(frames0: NDArray[np.floating], frames1: NDArray[np.floating]) -> Floats:
    """The overlap errors of P pairs of regions, frame by frame.

    A linear map makes region 0 the unit disc. On the ray at φ from its centre, region 1 covers near…far, two roots of a
    quadratic, and the intersection is ½∫(far² − near²)dφ within 0…1. Of regions that share more than half, each holds
    the centre of the other (or else a line through it would leave half of the other out), near is 0, and the sum over
    180 rays is right to about 1e-4; of others, to a few 1e-3.

    Args:
        frames0: (P, 2, 3), finite and of some area.
        frames1: (P, 2, 3) alike.

    Returns:
        (P,) in 0…1; 0 for identical regions.
    """
    count = check_shape(frames0, "P 2 3", name="frames0")["P"]
    check_shape(frames1, f"{count} 2 3", name="frames1")
    angle = 2 * np.pi * np.arange(_RAYS) / _RAYS
    rays = np.stack([np.cos(angle), np.sin(angle)])
    errors = np.empty(count)
    for start in range(0, count, _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        region0, region1 = frames0[part].astype(np.float64), frames1[part].astype(np.float64)
        to_disc1 = np.linalg.inv(region1[:, :, :2])
        # In the plane where region 1 is the unit disc: the rays, and the way from its centre to that of region 0.
        ray = to_disc1 @ region0[:, :, :2] @ rays
        start_of_ray = (to_disc1 @ (region0 - region1)[:, :, 2:])[:, :, 0]
        # |s + r·v| = 1 for the ray r·v from s.
        squared, along = (ray**2).sum(1), (ray * start_of_ray[:, :, None]).sum(1)
        outside = (start_of_ray**2).sum(1)[:, None] - 1
        root = np.sqrt(np.maximum(along**2 - squared * outside, 0))
        near, far = (np.clip((sign * root - along) / squared, 0, 1) for sign in (-1, 1))
        shared = (far**2 - near**2).mean(axis=1)
        area1 = np.abs(np.linalg.det(region1[:, :, :2]) / np.linalg.det(region0[:, :, :2]))
        errors[part] = 1 - shared / (1 + area1 - shared)
    return np.clip(errors, 0, 1)


def correspondences(
    frames0: NDArray[np.floating], frames1: NDArray[np.floating], homography: ArrayLike, threshold: float = 0.4
) -> tuple[Integers, Floats]:
    """All pairs of keypoints whose regions overlap enough, the best first.

    Regions of image 1 are carried to image 0 by the homography, linearised at each centre. Then both shapes of a pair
    are scaled by one factor, so that the region in image 0 has a radius of 30 pixels, an area of π·30². The centres
    stay: large regions would overlap however wrong their place, and the magnification of a detector would count.

    Args:
        frames0: (N0, 2, 3) of image 0.
        frames1: (N1, 2, 3) of image 1.
        homography: (3, 3), x₁ ~ H·x₀.
        threshold: overlap error at most, in (0, 0.5].

    Returns:
        (P, 2) indices into both, by increasing error, then index; and (P,) their errors. A frame without an area, or
        one that the homography sends to infinity, is in none.
    """
    check_shape(frames0, "N0 2 3", name="frames0")
    check_shape(frames1, "N1 2 3", name="frames1")
    if not 0 < threshold <= 0.5:
        raise ArgumentError(f"threshold: expected an overlap error above 0 and up to 0.5, got {threshold}")
    back = np.linalg.inv(np.asarray(homography, np.float64))
    here, there = frames0.astype(np.float64), transform_frames(frames1, back).astype(np.float64)
    items0, items1 = _with_area(here), _with_area(there)
    here, there = here[items0], there[items1]
    scale0, scale1 = (np.sqrt(np.abs(np.linalg.det(frames[:, :, :2]))) for frames in (here, there))
    grow = RADIUS / scale0
    here[:, :, :2] *= grow[:, None, None]
    rows, columns = _candidates(here, there[:, :, 2], scale0, scale1, threshold)
    candidates = there[columns]
    candidates[:, :, :2] *= grow[rows, None, None]
    errors = overlap_errors(here[rows], candidates)
    kept = np.flatnonzero(errors <= threshold)
    pairs, errors = np.stack([items0[rows[kept]], items1[columns[kept]]], axis=1), errors[kept]
    order = np.lexsort((pairs[:, 1], pairs[:, 0], errors))
    return pairs[order], errors[order]


def one_to_one(pairs: Integers, number0: int, number1: int) -> Integers:
    """Which pairs are left when they are taken in order and each takes both its items away.

    Args:
        pairs: (P, 2), the best first.
        number0, number1: items on both sides.

    Returns:
        (M,) increasing indices into the pairs.
    """
    free0, free1 = np.ones(number0, np.bool_), np.ones(number1, np.bool_)
    taken: list[int] = []
    # Nearly all of a long list is settled by what came before, so what is left of a part is walked alone.
    for start in range(0, len(pairs), _PAIRS_AT_ONCE * 16):
        part = pairs[start : start + _PAIRS_AT_ONCE * 16]
        left = np.flatnonzero(free0[part[:, 0]] & free1[part[:, 1]])
        for place, item0, item1 in zip((start + left).tolist(), *part[left].T.tolist(), strict=True):
            if free0[item0] and free1[item1]:
                free0[item0] = free1[item1] = False
                taken.append(place)
        if len(taken) == min(number0, number1):
            break
    return np.array(taken, np.int64)


def _with_area(frames: Floats) -> Integers:
    finite = np.flatnonzero(np.isfinite(frames).all(axis=(1, 2)))
    return np.asarray(finite[np.linalg.det(frames[finite, :, :2]) != 0])


def _candidates(
    regions0: Floats, centres1: Floats, scale0: Floats, scale1: Floats, threshold: float
) -> tuple[Integers, Integers]:
    """Pairs that can have so small an error: intersection / union is at most the ratio of the areas, and regions with
    an error below a half hold each other's centres."""
    to_disc = np.linalg.inv(regions0[:, :, :2])
    least = np.sqrt(1 - threshold)
    found = []
    for part in row_blocks(len(regions0), max(len(centres1), 1), BLOCK // 8):
        x, y = (centres1[:, axis] - regions0[part, axis, 2:] for axis in (0, 1))
        (a, b), (c, d) = to_disc[part].transpose(1, 2, 0)[..., None]
        near = (a * x + b * y) ** 2 + (c * x + d * y) ** 2 <= 1
        near &= (scale1 >= least * scale0[part, None]) & (scale1 * least <= scale0[part, None])
        rows, columns = np.nonzero(near)
        found.append(np.stack([rows + part.start, columns]))
    rows, columns = np.concatenate([np.empty((2, 0), np.int64), *found], axis=1)
    return rows, columns
