"""Stage 2: photos that show the same thing, known by nothing but their matches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from doap.evaluation.compare.shots import Shot
from doap.evaluation.compare.stage import Stage, contest
from doap.geometry import estimate_geometry
from doap.images import centres, draw_matches
from doap.matching import match_descriptors
from doap.types import Progress

Pair = tuple[int, int]

# Photos of different places have up to 50 inliers of 1,000 matches, and up to 7 % of fewer: a fundamental matrix is
# found that some wrong matches agree with. Of 100 they may be 16 %, but then they are fewer than 30.
JOINED, JOINED_SHARE = 30, 0.1
PICTURE_WIDTH = 900
# What `draw_matches` leaves around and between two photos.
_MARGINS = 36


@dataclass(frozen=True, eq=False)
class Drawn:
    """A pair as it looks to two descriptors: what it is an example of, and a picture of each one's matches."""

    title: str
    pictures: dict[str, NDArray[np.uint8]]


def neighbouring_pairs(photos: int, most: int) -> list[Pair]:
    """Each with each; where these are too many, the nearest neighbours in the order of the photos first.

    >>> neighbouring_pairs(4, 5)
    [(0, 1), (1, 2), (2, 3), (0, 2), (1, 3)]
    """
    return sorted(combinations(range(photos), 2), key=lambda pair: (pair[1] - pair[0], pair))[:most]


def score_pairs(shots: Sequence[Shot], names: Sequence[str], most: int, seed: int, progress: Progress) -> Stage:
    """How many matches of each descriptor agree with one fundamental matrix, in pairs of photos that overlap.

    A pair overlaps if any of the descriptors joins it: at least 30 inliers that are at least a tenth of its matches.
    All are then compared on these pairs, also where they joined nothing themselves.
    """
    pairs = neighbouring_pairs(len(shots), most)
    items: list[tuple[int, ...]] = []
    inliers: dict[str, list[float]] = {name: [] for name in names}
    joined: dict[str, list[float]] = {name: [] for name in names}
    for number, (first, second) in enumerate(pairs):
        progress(number, len(pairs), f"{shots[first].name} and {shots[second].name}")
        agreeing = {name: match_pair(shots[first], shots[second], name)[1] for name in names}
        joins = {name: bool(one.sum() >= max(JOINED, JOINED_SHARE * len(one))) for name, one in agreeing.items()}
        if any(joins.values()):
            items.append((first, second))
            for name in names:
                inliers[name].append(float(agreeing[name].sum()))
                joined[name].append(float(joins[name]))
    progress(len(pairs), len(pairs), "pairs judged")
    what = "pairs of photos that overlap"
    if not items:
        return Stage(what, note=f"no two photos overlap, of {len(pairs)} pairs" if pairs else "one photo has no pair")
    contests = {"verified inliers": contest(inliers, items, seed), "pairs joined": contest(joined, items, seed)}
    return Stage(what, items, contests, f"{len(items)} of {len(pairs)} pairs overlap")


def match_pair(shot0: Shot, shot1: Shot, name: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(M, 2) mutual nearest neighbours by one descriptor, and (M,) which of them agree with one geometry."""
    matches = match_descriptors(shot0.described[name], shot1.described[name])[0].numpy()
    points0, points1 = (centres(shot.photo.frames)[matches[:, side]] for side, shot in enumerate((shot0, shot1)))
    return matches, estimate_geometry(points0, points1).inliers


def draw_pairs(shots: Sequence[Shot], stage: Stage) -> list[Drawn]:
    """Pairs in which the candidate and its rival differ most, either way, and one in which they differ as usual."""
    decided = stage.deciding
    if decided is None:
        return []
    candidate, rival = next(iter(decided.values)), decided.rival
    apart = np.subtract(decided.values[candidate], decided.values[rival])
    order = apart.argsort(kind="stable").tolist()
    low, high = order[0], order[-1]
    titles = {high: f"most in favour of {candidate}" if apart[high] > 0 else f"least in favour of {rival}"}
    titles.setdefault(low, f"most in favour of {rival}" if apart[low] < 0 else f"least in favour of {candidate}")
    titles.setdefault(order[len(order) // 2], "a typical pair")
    drawn = []
    for place, title in titles.items():
        pair = [shots[photo] for photo in stage.items[place]]
        pictures = {name: _draw(pair[0], pair[1], name) for name in (candidate, rival)}
        drawn.append(Drawn(f"{pair[0].name} and {pair[1].name}: {title}", pictures))
    return drawn


def _draw(shot0: Shot, shot1: Shot, name: str) -> NDArray[np.uint8]:
    matches, inliers = match_pair(shot0, shot1, name)
    title = f"{name} · {len(matches):,} matches · {int(inliers.sum()):,} inliers"
    points = centres(shot0.photo.frames), centres(shot1.photo.frames)
    images = shot0.photo.image, shot1.photo.image
    return draw_matches(*images, *points, matches, inliers, title, longest_side=(PICTURE_WIDTH - _MARGINS) // 2)
