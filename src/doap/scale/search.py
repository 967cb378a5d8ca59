"""Which images of an index show what a photo shows: votes of its local descriptors, then the geometry of the best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from doap.errors import ArgumentError
from doap.geometry import estimate_geometry
from doap.pipeline import match
from doap.scale.features import FeatureSet
from doap.scale.index import Index
from doap.types import Features

NEIGHBOURS = 32
"""Descriptors that each of a photo's votes by, the nearest; more than there are photos of one spot, or votes fade."""
SHORTLIST = 50
"""Images with the most votes whose geometry is looked at."""


@dataclass(frozen=True)
class SearchResult:
    """An image of the index.

    Attributes:
        name: its name.
        votes: for it, larger is better; to be compared within one search only.
        matches: keypoints of the query that look like one of this image; None without verification.
        inliers: matches that agree with one geometry of two views; None without verification.
    """

    name: str
    votes: float
    matches: int | None = None
    inliers: int | None = None


@dataclass(frozen=True, eq=False)
class Votes:
    """The votes of one photo.

    Attributes:
        images: (I,) numbers of the images that got any, increasing.
        totals: (I,) float64, the votes for each.
        query, image, found: (V,) each, a row for each single vote: the query descriptor, the number of the image, and
            the id of its descriptor that is nearest to the query's.
        distance: (V,) of these two.
    """

    images: NDArray[np.int64]
    totals: NDArray[np.float64]
    query: NDArray[np.int64]
    image: NDArray[np.int64]
    found: NDArray[np.int64]
    distance: NDArray[Any]


def find_images(
    index: Index,
    query: Features,
    *,
    top: int = 10,
    verify: bool = False,
    features: FeatureSet | None = None,
    neighbours: int = NEIGHBOURS,
    probes: int | None = None,
    threshold: float = 1.5,
) -> list[SearchResult]:
    """The images of an index that look like a photo, best first.

    Args:
        index: where to look.
        query: features of the photo, made as those of the index were.
        top: how many images, if so many have anything in common with it.
        verify: estimate the geometry of the photo and each of the 50 best (or `top`, if that is more), and put those
            with the most inliers first.
        features: those the index was made from. With them, verification matches all keypoints of two images with each
            other; without, it takes for matches those neighbours that voted.
        neighbours, probes: as `k` and `probes` of `Index.search`; there may be fewer descriptors than neighbours.
        threshold: pixels that an inlier may be off.
    """
    if top < 1:
        raise ArgumentError(f"top: expected 1 or more, got {top}")
    votes = cast_votes(index, query.descriptors, neighbours=neighbours, probes=probes)
    best = most_voted(index, votes, max(top, SHORTLIST) if verify else top)
    if not verify:
        return [SearchResult(index.images.names[number], total) for number, total in best]
    found = []
    for number, total in best:
        points = _stored_matches(index, query, number, features) if features else _voted(index, query, number, votes)
        inliers = estimate_geometry(*points, threshold=threshold).inliers
        found.append(SearchResult(index.images.names[number], total, len(points[0]), int(inliers.sum())))
    # The sort is stable: of equal inliers the most voted stays first.
    return sorted(found, key=lambda image: -(image.inliers or 0))[:top]


def cast_votes(index: Index, descriptors: Tensor, *, neighbours: int = NEIGHBOURS, probes: int | None = None) -> Votes:
    """Let each descriptor (Q, D) of a photo vote for the images of its nearest neighbours.

    - A vote is worth (1 − d/d_k)³, d being the distance and d_k that of the last of the k neighbours. Much nearer than
      the rest is worth 1, and a descriptor that looks like everything has nothing to say. Without the power, neighbours
      that are hardly nearer than the last outvote the few that are, the more so the larger k is.
    - Each descriptor votes once for an image, by the nearest one there.
    - Bursts are tamed: a vote is divided by the square root of the number of images that its descriptor votes for, and
      of the number of votes that the descriptor found gives: leaves and windows would otherwise outvote all the rest.
    - An image's total is divided by the square root of the number of its descriptors, or the richest would always win.
    """
    k = min(neighbours, len(index))
    if not k or not len(descriptors):
        nobody = np.empty(0, np.int64)
        return Votes(nobody, np.empty(0), nobody, nobody, nobody, np.empty(0))
    distances, ids = index.search(descriptors, k, probes=probes)
    here = ids >= 0
    # What was not found is told as the largest distance there is; the last that was found counts.
    reached = np.where(here, distances, 0)
    last = reached.max(axis=1, keepdims=True)
    # All k at distance 0: copies, and as near as can be.
    worth = np.where(last > 0, 1 - reached / np.maximum(last, np.finfo(np.float32).tiny), 1.0) ** 3
    query, column = np.nonzero(here & (worth > 0))
    found, worth, distance = ids[query, column], worth[query, column], distances[query, column]
    image = index.image_of(found)
    # The first of each is the nearest, for rows are sorted by distance.
    _, once = np.unique(query * len(index.images) + image, return_index=True)
    query, image, found, worth, distance = (part[once] for part in (query, image, found, worth, distance))
    _, of_descriptor, from_descriptor = np.unique(found, return_inverse=True, return_counts=True)
    worth /= np.sqrt(np.bincount(query)[query] * from_descriptor[of_descriptor])
    images, place = np.unique(image, return_inverse=True)
    totals = np.bincount(place, worth, len(images)) / np.sqrt(index.images.count[images])
    return Votes(images, totals, query, image, found, distance)


def most_voted(index: Index, votes: Votes, top: int, *, but: int | None = None) -> list[tuple[int, float]]:
    """Numbers and totals of the images with the most votes, most first, equal ones by name; all `but` one, if given."""
    kept = votes.images != but if but is not None else np.ones(len(votes.images), np.bool_)
    images, totals = votes.images[kept], votes.totals[kept]
    if len(images) > top:
        enough = totals >= np.partition(totals, -top)[-top]
        images, totals = images[enough], totals[enough]
    both = zip(images.tolist(), totals.tolist(), strict=True)
    return sorted(both, key=lambda one: (-one[1], index.images.names[one[0]]))[:top]


Points = NDArray[np.float32]


def _voted(index: Index, query: Features, number: int, votes: Votes) -> tuple[Points, Points]:
    """(M, 2) and (M, 2): keypoints of the photo, and those of an image for which they voted, each at most once."""
    rows = np.flatnonzero(votes.image == number)
    rows = rows[np.argsort(votes.distance[rows], kind="stable")]
    found, nearest = np.unique(votes.found[rows], return_index=True)
    frames = index.frames(number)[found - index.images.first[number]]
    return query.keypoints[votes.query[rows[nearest]]], frames[:, :, 2]


def _stored_matches(index: Index, query: Features, number: int, features: FeatureSet) -> tuple[Points, Points]:
    """(M, 2) and (M, 2): mutual nearest neighbours among all keypoints of both."""
    stored = features.read(index.images.names[number]).features
    pairs = match(query, stored)
    return query.keypoints[pairs[:, 0]], stored.keypoints[pairs[:, 1]]
