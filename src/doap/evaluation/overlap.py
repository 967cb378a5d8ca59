"""Ground-truth correspondences of two images by the overlap of their regions (Mikolajczyk et al., 2005).

The region of a frame [A | t] is the ellipse inscribed in its patch, {A·u + t : |u| ≤ 1}. The overlap error
of two regions is 1 − intersection / union.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from doap.images import transform_frames
from doap.matching.nearest import BLOCK, row_blocks

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RADIUS = 30.0
"""Radius in pixels that the region in image 0 is scaled to."""

_RAYS = 180
_PAIRS_AT_ONCE = 2048


def overlap_errors(frames0: NDArray[np.floating], frames1: NDArray[np.floating]) -> Floats:
    """Return the overlap errors (P,) of pairs of regions.

    The areas are integrated over 180 rays from the centre of region 0; see `_shared_area`. Two regions
    that share more than half of their union contain each other's centres, and their error is accurate to
    about 1e-4. Smaller overlaps are accurate to a few 1e-3.

    Args:
        frames0: (P, 2, 3) finite frames with a non-zero area.
        frames1: (P, 2, 3) frames of the other image.
    """
    errors = np.empty(len(frames0))
    for start in range(0, len(frames0), _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        region0, region1 = frames0[part].astype(np.float64), frames1[part].astype(np.float64)
        shared = _shared_area(region0, region1)
        area1 = np.abs(np.linalg.det(region1[:, :, :2]) / np.linalg.det(region0[:, :, :2]))
        errors[part] = 1 - shared / (1 + area1 - shared)
    return np.clip(errors, 0, 1)


def correspondences(
    frames0: NDArray[np.floating], frames1: NDArray[np.floating], homography: ArrayLike, threshold: float = 0.4
) -> tuple[Integers, Floats]:
    """Return all pairs of keypoints whose regions overlap enough, best overlap first.

    Regions of image 1 are projected to image 0 by the homography, linearised at each centre. Both regions
    of a pair are then scaled about their centres by one factor, so that the region in image 0 has a radius
    of 30 pixels. Without this normalisation, large regions would overlap even if their centres are far
    apart, and the result would depend on the magnification of the detector.

    Args:
        frames0: (N0, 2, 3) frames of image 0.
        frames1: (N1, 2, 3) frames of image 1.
        homography: (3, 3), x₁ ~ H·x₀.
        threshold: Maximum overlap error, in (0, 0.5].

    Returns:
        (P, 2) indices into both, by increasing error, then index, and (P,) their errors. Frames without
        an area, and frames that the homography maps to infinity, are in no pair.
    """
    to_image0 = np.linalg.inv(np.asarray(homography, np.float64))
    regions0, regions1 = frames0.astype(np.float64), transform_frames(frames1, to_image0).astype(np.float64)
    valid0, valid1 = _with_area(regions0), _with_area(regions1)
    regions0, regions1 = regions0[valid0], regions1[valid1]
    scale0, scale1 = (np.sqrt(np.abs(np.linalg.det(regions[:, :, :2]))) for regions in (regions0, regions1))
    factor = RADIUS / scale0
    regions0[:, :, :2] *= factor[:, None, None]
    rows, columns = _candidates(regions0, regions1[:, :, 2], scale0, scale1, threshold)
    candidates = regions1[columns]
    candidates[:, :, :2] *= factor[rows, None, None]
    errors = overlap_errors(regions0[rows], candidates)
    kept = np.flatnonzero(errors <= threshold)
    pairs, errors = np.stack([valid0[rows[kept]], valid1[columns[kept]]], axis=1), errors[kept]
    order = np.lexsort((pairs[:, 1], pairs[:, 0], errors))
    return pairs[order], errors[order]


def one_to_one(pairs: Integers, number0: int, number1: int) -> Integers:
    """Take pairs (P, 2) of `number0` and `number1` items in order, except those with a used item; return their rows."""
    free0, free1 = np.ones(number0, np.bool_), np.ones(number1, np.bool_)
    selected: list[int] = []
    # Earlier pairs settle most of a long list, so each chunk is filtered at once before the slow loop.
    for start in range(0, len(pairs), _PAIRS_AT_ONCE * 16):
        chunk = pairs[start : start + _PAIRS_AT_ONCE * 16]
        left = np.flatnonzero(free0[chunk[:, 0]] & free1[chunk[:, 1]])
        for index, item0, item1 in zip((start + left).tolist(), *chunk[left].T.tolist(), strict=True):
            if free0[item0] and free1[item1]:
                free0[item0] = free1[item1] = False
                selected.append(index)
        if len(selected) == min(number0, number1):
            break
    return np.array(selected, np.int64)


def _shared_area(region0: Floats, region1: Floats) -> Floats:
    """Return the intersection (P,) of regions (P, 2, 3) in units of the area of region 0.

    A linear map turns region 0 into the unit disc. Along the ray at angle φ from its centre, region 1 covers
    the interval near…far, the two roots of a quadratic equation. The intersection is ½∫(far² − near²)dφ with
    both limits clipped to 0…1.
    """
    angle = 2 * np.pi * np.arange(_RAYS) / _RAYS
    rays = np.stack([np.cos(angle), np.sin(angle)])
    to_disc1 = np.linalg.inv(region1[:, :, :2])
    # Coordinates in which region 1 is the unit disc: directions v of the rays and their common origin s.
    direction = to_disc1 @ region0[:, :, :2] @ rays
    origin = (to_disc1 @ (region0 - region1)[:, :, 2:])[:, :, 0]
    # Solve |s + r·v| = 1 for r.
    quadratic, linear = (direction**2).sum(1), (direction * origin[:, :, None]).sum(1)
    constant = (origin**2).sum(1)[:, None] - 1
    root = np.sqrt(np.maximum(linear**2 - quadratic * constant, 0))
    near, far = (np.clip((sign * root - linear) / quadratic, 0, 1) for sign in (-1, 1))
    return np.asarray((far**2 - near**2).mean(axis=1))


def _with_area(frames: Floats) -> Integers:
    finite = np.flatnonzero(np.isfinite(frames).all(axis=(1, 2)))
    return np.asarray(finite[np.linalg.det(frames[finite, :, :2]) != 0])


def _candidates(
    regions0: Floats, centres1: Floats, scale0: Floats, scale1: Floats, threshold: float
) -> tuple[Integers, Integers]:
    """Return rows and columns of the pairs that can have an error up to the threshold.

    Intersection / union is at most the ratio of the areas, and regions with an error below 0.5 contain each
    other's centres.
    """
    to_disc = np.linalg.inv(regions0[:, :, :2])
    min_ratio = np.sqrt(1 - threshold)
    found = []
    for part in row_blocks(len(regions0), max(len(centres1), 1), BLOCK // 8):
        x, y = (centres1[:, axis] - regions0[part, axis, 2:] for axis in (0, 1))
        (a, b), (c, d) = to_disc[part].transpose(1, 2, 0)[..., None]
        near = (a * x + b * y) ** 2 + (c * x + d * y) ** 2 <= 1
        near &= (scale1 >= min_ratio * scale0[part, None]) & (scale1 * min_ratio <= scale0[part, None])
        rows, columns = np.nonzero(near)
        found.append(np.stack([rows + part.start, columns]))
    rows, columns = np.concatenate([np.empty((2, 0), np.int64), *found], axis=1)
    return rows, columns
