"""Stage 2: pairs of photos that overlap, found from their matches because there is no ground truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from doap._support.text import counted
from doap.evaluation.comparison.photos import LONGEST_SIDE, DescribedPhoto
from doap.evaluation.comparison.stage import MetricComparison, Stage, compare_metric
from doap.geometry import estimate_geometry, is_verified
from doap.images import centres, draw_matches, read_colour, shrink
from doap.matching import match_descriptors
from doap.types import Progress

STAGE = "pairs of photos that overlap"
PICTURE_SIDE = 580
"""Longest side of each photo in a picture, in pixels."""


@dataclass(frozen=True, eq=False)
class Panel:
    """The matches of one descriptor: its name, what it finds, and the picture (H, W, 3)."""

    name: str
    caption: str
    pixels: NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class PairPicture:
    """A pair of photos: a title, and a panel for the candidate, the best baseline and the other baselines."""

    title: str
    panels: list[Panel]


def neighbouring_pairs(photos: int, limit: int) -> list[tuple[int, int]]:
    """Return at most `limit` pairs of photos, the nearest neighbours in the order of the photos first.

    >>> neighbouring_pairs(4, 5)
    [(0, 1), (1, 2), (2, 3), (0, 2), (1, 3)]
    """
    return sorted(combinations(range(photos), 2), key=lambda pair: (pair[1] - pair[0], pair))[:limit]


def evaluate_pairs(
    photos: Sequence[DescribedPhoto], names: Sequence[str], max_pairs: int, seed: int, progress: Progress
) -> Stage:
    """Compare how many matches of each descriptor agree with one fundamental matrix, in pairs that overlap.

    A pair overlaps if any descriptor verifies it, with at least 30 inliers that are at least 10 % of its matches. All
    descriptors are compared on all these pairs.
    """
    pairs = neighbouring_pairs(len(photos), max_pairs)
    items: list[tuple[int, ...]] = []
    inliers: dict[str, list[float]] = {name: [] for name in names}
    verified: dict[str, list[float]] = {name: [] for name in names}
    for number, (first, second) in enumerate(pairs):
        progress(number, len(pairs), f"{photos[first].name} and {photos[second].name}")
        found = {name: match_photos(photos[first], photos[second], name)[1] for name in names}
        verifies = {name: is_verified(int(one.sum()), len(one)) for name, one in found.items()}
        if any(verifies.values()):
            items.append((first, second))
            for name in names:
                inliers[name].append(float(found[name].sum()))
                verified[name].append(float(verifies[name]))
    progress(len(pairs), len(pairs), "pairs matched")
    if not items:
        return Stage(STAGE, note=f"none of {len(pairs)} pairs of photos overlaps")
    metrics = {
        "verified inliers": compare_metric(inliers, items, seed),
        "pairs verified": compare_metric(verified, items, seed),
    }
    return Stage(STAGE, items, metrics, f"{len(items)} of {len(pairs)} pairs overlap")


def match_photos(
    photo0: DescribedPhoto, photo1: DescribedPhoto, name: str
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the mutual nearest neighbours (M, 2) of one descriptor, and (M,) which of them are inliers."""
    matches = match_descriptors(photo0.descriptors[name], photo1.descriptors[name])[0].numpy()
    points0, points1 = (centres(one.photo.frames)[matches[:, side]] for side, one in enumerate((photo0, photo1)))
    return matches, estimate_geometry(points0, points1).inliers


def draw_pairs(photos: Sequence[DescribedPhoto], stage: Stage) -> list[PairPicture]:
    """Draw the pairs where the candidate and the best baseline differ most, in both directions, and a typical pair."""
    metric = stage.deciding
    if metric is None:
        return []
    candidate, baseline = next(iter(metric.values)), metric.best_baseline
    differences = np.subtract(metric.values[candidate], metric.values[baseline])
    order = differences.argsort(kind="stable").tolist()
    low, middle, high = order[0], order[len(order) // 2], order[-1]
    titles = {high: f"largest gain of {candidate}" if differences[high] > 0 else f"smallest gain of {baseline}"}
    titles.setdefault(low, f"largest gain of {baseline}" if differences[low] < 0 else f"smallest gain of {candidate}")
    titles.setdefault(middle, "a typical pair")
    drawn = []
    for index, title in titles.items():
        photo0, photo1 = (photos[photo] for photo in stage.items[index])
        drawn.append(PairPicture(f"{photo0.name} and {photo1.name}: {title}", _panels(photo0, photo1, metric)))
    return drawn


def _panels(photo0: DescribedPhoto, photo1: DescribedPhoto, metric: MetricComparison) -> list[Panel]:
    """Draw the matches of each descriptor, with the inliers that the candidate or the best baseline does not find."""
    candidate, best = next(iter(metric.values)), metric.best_baseline
    names = sorted(metric.values, key=lambda name: (name != candidate, name != best))
    found = {name: match_photos(photo0, photo1, name) for name in names}
    verified = {name: set(map(tuple, matches[inliers].tolist())) for name, (matches, inliers) in found.items()}
    image0, image1 = (shrink(read_colour(one.path), LONGEST_SIDE)[0] for one in (photo0, photo1))
    images, points = (image0, image1), (centres(photo0.photo.frames), centres(photo1.photo.frames))
    panels = []
    for name, (matches, inliers) in found.items():
        other = best if name == candidate else candidate
        common = np.array([tuple(match) in verified[other] for match in matches.tolist()], np.bool_)
        pixels = draw_matches(*images, *points, matches, inliers, None, common=common, longest_side=PICTURE_SIDE)
        own = int((inliers & ~common).sum())
        caption = f"{counted(int(inliers.sum()), 'inlier')} of {counted(len(matches), 'match')}, {own:,} not in {other}"
        panels.append(Panel(name, caption, pixels))
    return panels
