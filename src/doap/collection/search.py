"""Search an index with a photo: its descriptors vote for images, and geometry verifies the best ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap._support.errors import ArgumentError, DataError
from doap._support.files import sha256
from doap.collection.extractor import open_extractor
from doap.collection.features import FeatureSet, as_feature_set
from doap.collection.index import DescriptorIndex, as_index
from doap.descriptor import load_stored
from doap.extractor import DescriptorSource
from doap.geometry import estimate_geometry, is_verified
from doap.images import ImageSource
from doap.pipeline import as_extractor, match
from doap.types import Features

NEIGHBOURS = 32
"""Number of nearest neighbours that a descriptor votes with. It should exceed the number of photos of one object."""
SHORTLIST = 50
"""Number of images that are verified: those with the most votes."""

Points = NDArray[np.float32]


@dataclass(frozen=True)
class SearchResult:
    """An image found by `search_images`.

    Attributes:
        name: Name of the image.
        votes: Score, larger is better; comparable within one search only.
        matches: Number of matches with the query; None without verification.
        inliers: Number of matches that agree with one two-view geometry; None without verification.
    """

    name: str
    votes: float
    matches: int | None = None
    inliers: int | None = None

    @property
    def verified(self) -> bool | None:
        """Whether the inliers show that both images overlap, by `is_verified`; None without verification."""
        if self.inliers is None or self.matches is None:
            return None
        return is_verified(self.inliers, self.matches)


@dataclass(frozen=True, eq=False)
class Votes:
    """Votes of one photo.

    Attributes:
        images: (I,) numbers of the images with votes, increasing.
        totals: (I,) float64, votes per image.
        query: (V,) index of the query descriptor of each vote.
        image: (V,) number of the image.
        found: (V,) id of the nearest descriptor of that image.
        distance: (V,) distance between both descriptors.
    """

    images: NDArray[np.int64]
    totals: NDArray[np.float64]
    query: NDArray[np.int64]
    image: NDArray[np.int64]
    found: NDArray[np.int64]
    distance: NDArray[Any]


def search_images(
    index: str | Path | DescriptorIndex,
    query: ImageSource | Features,
    *,
    top: int = 10,
    verify: bool = False,
    features: str | Path | FeatureSet | None = None,
    neighbours: int = NEIGHBOURS,
    probes: int | None = None,
    threshold: float = 1.5,
    descriptor: DescriptorSource | None = None,
    device: str | torch.device = "auto",
    exclude: str | None = None,
) -> list[SearchResult]:
    """Find the images of an index that show the same object or scene as a photo, best first.

    Args:
        index: The index or its folder.
        query: An image in one of the forms that `doap.extract` accepts, or features from `extract_query`.
        top: Maximum number of images.
        verify: Estimate the two-view geometry of the photo and each of the 50 best images (or `top`, if larger), and
            sort them by the number of inliers.
        features: Features from which the index was built. Verification then matches all keypoints of both images;
            without them, and for images that they no longer contain, it uses the neighbours that voted.
        neighbours: Number of nearest neighbours that each descriptor votes with.
        probes: Number of lists searched per descriptor; see `DescriptorIndex`.
        threshold: Inlier threshold in pixels.
        descriptor, device: As for `extract_query`.
        exclude: Name of an image that is not returned; by default the query itself, if it is a file of the index.
    """
    if top < 1:
        raise ArgumentError(f"top: expected 1 or more, got {top}.")
    index = as_index(index)
    if not isinstance(query, Features):
        exclude = exclude or find_itself(index, query)
        query = extract_query(index, query, descriptor=descriptor, device=device)
    own = None if exclude is None else index.find(exclude)
    votes = cast_votes(index, query.descriptors, neighbours=neighbours, probes=probes)
    best = rank_images(index, votes, max(top, SHORTLIST) if verify else top, exclude=own)
    if not verify:
        return [SearchResult(name, total) for _, name, total in best]
    stored = None if features is None else as_feature_set(features)
    voted = [number for number, name, _ in best if stored is None or name not in stored]
    matches = _match_by_votes(index, query, voted, votes)
    results = []
    for number, name, total in best:
        points = matches[number] if stored is None or number in matches else _match_stored(query, stored, name)
        inliers = estimate_geometry(*points, threshold=threshold).inliers
        results.append(SearchResult(name, total, len(points[0]), int(inliers.sum())))
    # The sort is stable: images with equal inliers stay sorted by votes.
    return sorted(results, key=lambda result: -(result.inliers or 0))[:top]


def extract_query(
    index: str | Path | DescriptorIndex,
    image: ImageSource,
    *,
    descriptor: DescriptorSource | None = None,
    device: str | torch.device = "auto",
) -> Features:
    """Extract the features of a photo with the extractor of an index.

    Args:
        index: The index or its folder.
        image: An image in one of the forms that `doap.extract` accepts.
        descriptor: Descriptor of the index; another one is refused. It is required if it is a file, a function or an
            object, because an index must not choose the code or the weights that run.
        device: Device of the network: "auto", "cpu", "cuda", "cuda:N" or "mps".
    """
    index = as_index(index)
    info = index.extractor
    given = load_stored(info.descriptor, index.name, device) if descriptor is None else descriptor
    opened = as_extractor(given, default_detector=info.detector, device=device)
    if opened.kind == info.kind:
        extractor = open_extractor(
            opened, max_keypoints=info.max_keypoints, tile=info.tile, exact=info.stored == "float32"
        )
        if not info.difference(extractor.info):
            return extractor.extract(image)
    raise DataError(
        f"{index.name}: expected the descriptor of the index, {info.descriptor} with the detector {info.detector}, "
        f"got a different one: {descriptor or info.descriptor}."
    )


def find_itself(index: DescriptorIndex, query: ImageSource) -> str | None:
    """Return the name of an image file in an index that contains it; None for other images and for copies of it."""
    if not isinstance(query, str | Path):
        return None
    # A link has the name of the link, as in the folder of images.
    path = Path(query).absolute()
    names = ["/".join(path.parts[-length:]) for length in range(1, len(path.parts))]
    known = [number for name in names if (number := index.find(name)) is not None]
    if not known or not path.is_file():
        return None
    checksum = sha256(path)
    return next((image.name for image in index.images_at(known) if image.checksum == checksum), None)


def cast_votes(
    index: DescriptorIndex, descriptors: Tensor, *, neighbours: int = NEIGHBOURS, probes: int | None = None
) -> Votes:
    """Let each descriptor (Q, D) of a photo vote for the images of its nearest neighbours.

    - A vote has the weight (1 − d/d_k)³, where d is the distance and d_k the distance of the last of the k neighbours.
      A descriptor that resembles everything has hardly any weight. Without the power, many neighbours that are barely
      closer than the last one would outvote the few that are much closer, all the more for a large k.
    - Each descriptor votes at most once per image, with its nearest neighbour there.
    - Repeated structures (leaves, windows) count less: a vote is divided by the square root of the number of images
      that the query descriptor votes for, and of the number of votes that the found descriptor receives.
    - The total of an image is divided by the square root of its number of descriptors.
    """
    k = min(neighbours, len(index))
    if not k or not len(descriptors):
        none = np.empty(0, np.int64)
        return Votes(none, np.empty(0), none, none, none, np.empty(0))
    distances, ids = index.search(descriptors, k, probes=probes)
    valid = ids >= 0
    # Missing neighbours have a huge distance; the last valid one counts.
    valid_distances = np.where(valid, distances, 0)
    last = valid_distances.max(axis=1, keepdims=True)
    # If all k distances are 0, the neighbours are copies.
    weights = np.where(last > 0, 1 - valid_distances / np.maximum(last, np.finfo(np.float32).tiny), 1.0) ** 3
    query, column = np.nonzero(valid & (weights > 0))
    found, weight, distance = ids[query, column], weights[query, column], distances[query, column]
    image = index.image_of(found)
    # The first vote for an image is the nearest, because neighbours are sorted by distance.
    images, position = np.unique(image, return_inverse=True)
    _, first = np.unique(query * len(images) + position, return_index=True)
    query, image, found, weight, distance, position = (
        values[first] for values in (query, image, found, weight, distance, position)
    )
    _, inverse, votes_per_found = np.unique(found, return_inverse=True, return_counts=True)
    weight /= np.sqrt(np.bincount(query)[query] * votes_per_found[inverse])
    sizes = [image.descriptors for image in index.images_at(images.tolist())]
    totals = np.bincount(position, weight, len(images)) / np.sqrt(sizes)
    return Votes(images, totals, query, image, found, distance)


def rank_images(
    index: DescriptorIndex, votes: Votes, top: int, *, exclude: int | None = None
) -> list[tuple[int, str, float]]:
    """Return number, name and votes of the `top` images with the most votes, without image number `exclude`."""
    kept = votes.images != exclude if exclude is not None else np.ones(len(votes.images), np.bool_)
    images, totals = votes.images[kept], votes.totals[kept]
    if len(images) > top:
        enough = totals >= np.partition(totals, -top)[-top]
        images, totals = images[enough], totals[enough]
    names = [image.name for image in index.images_at(images.tolist())]
    ranked = zip(images.tolist(), names, totals.tolist(), strict=True)
    return sorted(ranked, key=lambda image: (-image[2], image[1]))[:top]


def _match_by_votes(
    index: DescriptorIndex, query: Features, numbers: Sequence[int], votes: Votes
) -> dict[int, tuple[Points, Points]]:
    """Return, for images by number, keypoints (M, 2) of the photo and keypoints (M, 2) voted for, each once."""
    voters, found = [], [np.empty(0, np.int64)]
    for number in numbers:
        rows = np.flatnonzero(votes.image == number)
        rows = rows[np.argsort(votes.distance[rows], kind="stable")]
        ids, nearest = np.unique(votes.found[rows], return_index=True)
        voters.append(votes.query[rows[nearest]])
        found.append(ids)
    # One request for all images, because it may go to a server.
    centres = index.frames(np.concatenate(found))[:, :, 2]
    parts = np.split(centres, np.cumsum([len(one) for one in voters])[:-1]) if voters else []
    return {
        number: (query.keypoints[chosen], part) for number, chosen, part in zip(numbers, voters, parts, strict=True)
    }


def _match_stored(query: Features, features: FeatureSet, name: str) -> tuple[Points, Points]:
    """Return keypoints (M, 2) and (M, 2) of mutual nearest neighbours among all keypoints of both images."""
    stored = features.read(name).features
    return match(query, stored).points(query, stored)
