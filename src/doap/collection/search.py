"""Search an index with a photo: its descriptors vote for images, and geometry verifies the best ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
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


def search_images(
    index: str | Path | DescriptorIndex,
    query: ImageSource | Features,
    *,
    top: int = 10,
    features: str | Path | FeatureSet | None = None,
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
        features: Features of the images of the index. The two-view geometry of the photo and each of the 50 best images
            (or `top`, if larger) is estimated, and they are sorted by the number of inliers. None sorts by votes.
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
    wanted = top if features is None else max(top, SHORTLIST)
    best = rank_images(index, query.descriptors, wanted, probes=probes, exclude=exclude)
    results = [SearchResult(name, votes) for name, votes in best]
    if features is not None:
        stored = as_feature_set(features)
        results = [_verify(query, stored, result, threshold) for result in results]
        # The sort is stable: images with equal inliers stay sorted by votes.
        results.sort(key=lambda result: -(result.inliers or 0))
    return results[:top]


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
    known = [image for name in names if (image := index.find(name)) is not None]
    if not known or not path.is_file():
        return None
    checksum = sha256(path)
    return next((image.name for image in known if image.checksum == checksum), None)


def rank_images(
    index: DescriptorIndex,
    descriptors: Tensor,
    top: int,
    *,
    neighbours: int = NEIGHBOURS,
    probes: int | None = None,
    exclude: str | None = None,
) -> list[tuple[str, float]]:
    """Let each descriptor (Q, D) of a photo vote for the images of its nearest neighbours.

    - A vote has the weight (1 − d/d_k)³, where d is the distance and d_k the distance of the last of the k neighbours.
      A descriptor that resembles everything has hardly any weight. Without the power, many neighbours that are barely
      closer than the last one would outvote the few that are much closer, all the more for a large k.
    - Each descriptor votes at most once per image, with its nearest neighbour there.
    - Repeated structures (leaves, windows) count less: a vote is divided by the square root of the number of images
      that the query descriptor votes for, and of the number of votes that the found descriptor receives.
    - The total of an image is divided by the square root of its number of descriptors.

    Returns:
        Names and votes of the `top` images with the most votes, without the image `exclude`, best first.
    """
    k = min(neighbours, len(index))
    if not k or not len(descriptors):
        return []
    distances, ids = index.search(descriptors, k, probes=probes)
    valid = ids >= 0
    # Missing neighbours have a huge distance; the last valid one counts.
    valid_distances = np.where(valid, distances, 0)
    last = valid_distances.max(axis=1, keepdims=True)
    # If all k distances are 0, the neighbours are copies.
    weights = np.where(last > 0, 1 - valid_distances / np.maximum(last, np.finfo(np.float32).tiny), 1.0) ** 3
    query, column = np.nonzero(valid & (weights > 0))
    found, weight = ids[query, column], weights[query, column]
    # The first vote for an image is the nearest, because neighbours are sorted by distance.
    numbers, image = np.unique(index.image_of(found), return_inverse=True)
    _, first = np.unique(query * len(numbers) + image, return_index=True)
    query, image, found, weight = (values[first] for values in (query, image, found, weight))
    _, inverse, votes_per_found = np.unique(found, return_inverse=True, return_counts=True)
    weight /= np.sqrt(np.bincount(query)[query] * votes_per_found[inverse])
    images = index.images_at(numbers.tolist())
    totals = np.bincount(image, weight, len(images)) / np.sqrt([one.descriptors for one in images])
    ranked = ((one.name, float(votes)) for one, votes in zip(images, totals, strict=True) if one.name != exclude)
    return sorted(ranked, key=lambda one: (-one[1], one[0]))[:top]


def _verify(query: Features, stored: FeatureSet, result: SearchResult, threshold: float) -> SearchResult:
    """Count the matches and inliers of a photo and an image, unless the features no longer contain the image."""
    if result.name not in stored:
        return result
    features = stored.read(result.name).features
    points = match(query, features).points(query, features)
    inliers = int(estimate_geometry(*points, threshold=threshold).inliers.sum())
    return replace(result, matches=len(points[0]), inliers=inliers)
