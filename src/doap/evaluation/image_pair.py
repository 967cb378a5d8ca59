"""Two images of a plane, their keypoints and what is true of them; how well one describer matches them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.detectors import Detector
from doap.evaluation.homography import corner_error, matching_accuracy, reprojection_errors
from doap.evaluation.overlap import Floats, Integers, correspondences, one_to_one
from doap.functional import average_precision, pair_distances, table_distances
from doap.geometry import estimate_geometry
from doap.images import centres, inside
from doap.images.correspondence import within
from doap.matching import match_descriptors
from doap.random_streams import stream

PIXELS = np.arange(1, 11)
"""Errors allowed of a match, for MMA."""
RECALLS = np.arange(1, 51) / 50
"""Where precision is told."""
INLIER = 3.0
"""Pixels that a match may be off the homography fitted to all."""


@dataclass(frozen=True, eq=False)
class Photo:
    """Grey pixels and the frames (N, 2, 3) of the keypoints found there, in random order."""

    image: NDArray[np.uint8]
    frames: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class ImagePair:
    """Two photos and what is true of them.

    Attributes:
        sequence: which they are from.
        photos: image 0 and image 1.
        homography: (3, 3), x₁ ~ H·x₀.
        seen: (N0,) and (N1,), which keypoints of each lie in the part that both images see.
        overlapping: (P, 2) places in `seen`: all pairs of which a match is right.
        positives: (C, 2) those of them that are left one to one.
    """

    sequence: str
    photos: tuple[Photo, Photo]
    homography: Floats
    seen: tuple[Integers, Integers]
    overlapping: Integers
    positives: Integers


@dataclass(frozen=True, eq=False)
class PairMatches:
    """What one-to-one matches found, of a pair that has correspondences.

    Attributes:
        average_precision, recall: of the matches by distance, and of all of them.
        precision: at `RECALLS`.
        near, far: distances of corresponding keypoints, and of as many others.
        best: places of the nearest right match among the keypoints of both images, and its distance.
        worst: places of a keypoint of image 0, of its positive and of what it was matched with, the nearest wrong match
            of all, and its distances to the two.
    """

    average_precision: float
    recall: float
    precision: Floats
    near: NDArray[np.float32]
    far: NDArray[np.float32]
    best: tuple[list[int], float] | None
    worst: tuple[list[int], list[float]] | None


@dataclass(frozen=True, eq=False)
class PairScores:
    """What one describer did with a pair.

    Attributes:
        accuracy: share of mutual nearest neighbours that are right within each of `PIXELS`.
        corner: mean error of the corners under the homography that they give.
        found: None where there is nothing to find.
    """

    accuracy: Floats
    corner: float
    found: PairMatches | None


def look_at(image: NDArray[np.uint8], detector: Detector, max_keypoints: int, number: int) -> Photo:
    """An image and the strongest of its keypoints, shuffled; `number` is that of the image.

    Patches must lie in the image, for beyond it there is nothing to describe: one descriptor would be judged by the
    pixels it invents there, and another, that looks at the image itself, by none.

    Detectors give the strongest first, and the strongest of two images correspond so often that a constant descriptor,
    whose ties go to the lowest index, would be right.
    """
    frames, _ = detector.detect(image)
    height, width = image.shape
    frames = frames[inside(frames, height, width)][:max_keypoints]
    return Photo(image, frames[stream(0, "order of keypoints", number).permutation(len(frames))])


def make_pair(sequence: str, photo0: Photo, photo1: Photo, homography: Floats, threshold: float) -> ImagePair:
    """Find out what is true of two photos; `threshold` is the overlap error at most."""
    back = np.asarray(np.linalg.inv(homography), np.float64)
    seen0 = np.flatnonzero(within(photo0.frames, homography, photo1.image.shape))
    seen1 = np.flatnonzero(within(photo1.frames, back, photo0.image.shape))
    overlapping, _ = correspondences(photo0.frames[seen0], photo1.frames[seen1], homography, threshold)
    positives = overlapping[one_to_one(overlapping, len(seen0), len(seen1))]
    return ImagePair(sequence, (photo0, photo1), homography, (seen0, seen1), overlapping, positives)


def score_pair(pair: ImagePair, described0: Tensor, described1: Tensor) -> PairScores:
    """Match descriptors of all keypoints of the two photos, and hold the matches against the truth."""
    matches = match_descriptors(described0, described1)[0].numpy()
    points0, points1 = (centres(photo.frames)[matches[:, side]] for side, photo in enumerate(pair.photos))
    errors = reprojection_errors(points0, points1, pair.homography)
    geometry = estimate_geometry(points0, points1, "homography", threshold=INLIER)
    height, width = pair.photos[0].image.shape
    corner = corner_error(geometry.matrix, pair.homography, (height, width))
    found = find(pair, described0, described1) if len(pair.positives) else None
    return PairScores(matching_accuracy(errors, PIXELS), corner, found)


def find(pair: ImagePair, described0: Tensor, described1: Tensor) -> PairMatches:
    """Match one to one what both images see; arguments as for `score_pair`."""
    described0, described1 = (
        described[torch.from_numpy(seen)] for described, seen in zip((described0, described1), pair.seen, strict=True)
    )
    matches, distances = match_one_to_one(table_distances(described0, described1))
    right = _among(matches, pair.overlapping, len(described1))
    ranked = average_precision(torch.from_numpy(distances)[None], torch.from_numpy(right)[None], without_positives=0.0)
    # One to one by distance may pair a few more regions than one to one by overlap does.
    recall = min(int(right.sum()) / len(pair.positives), 1.0)
    # A keypoint and the partner of another: neighbours in the list have nothing to do with each other.
    others = np.stack([pair.positives[:, 0], np.roll(pair.positives[:, 1], 1)], axis=1)
    others = others[~_among(others, pair.overlapping, len(described1))]
    near, far = (
        pair_distances(described0[some[:, 0]], described1[some[:, 1]]).numpy() for some in (pair.positives, others)
    )
    return PairMatches(
        float(ranked) * recall,
        recall,
        precision_at(RECALLS, distances, right, len(pair.positives)),
        near,
        far,
        _best(pair, matches, distances, right),
        _worst(pair, matches, distances, right, near),
    )


def match_one_to_one(distances: Tensor) -> tuple[Integers, NDArray[np.float32]]:
    """Of all pairs the nearest first, each taking both its items away; of equal ones that of the lowest indices.

    Args:
        distances: (N0, N1) float32, 0 or more; N0·N1 below 2³².

    Returns:
        (M, 2) indices, M the lesser of N0 and N1, by increasing distance; and (M,) their distances.
    """
    height, width = distances.shape
    # + 0 makes a +0 of a −0; then floats sort as the integers of their bits. With the place behind them they sort as
    # distance, row, column, and numbers are sorted ten times faster than an order of them is found.
    bits = (distances.contiguous().numpy().ravel() + np.float32(0)).view(np.uint32).astype(np.uint64)
    keys = np.sort((bits << np.uint64(32)) | np.arange(bits.size, dtype=np.uint64))
    places = (keys & np.uint64(2**32 - 1)).astype(np.int64)
    pairs = np.stack(np.divmod(places, max(width, 1)), axis=1)
    taken = one_to_one(pairs, height, width)
    return pairs[taken], (keys[taken] >> np.uint64(32)).astype(np.uint32).view(np.float32)


def precision_at(recalls: Floats, distances: NDArray[np.float32], right: NDArray[np.bool_], positives: int) -> Floats:
    """Precision where recall is first reached, equal distances being accepted together; 0 where it never is.

    Args:
        recalls: (T,) in (0, 1].
        distances: (M,) increasing.
        right: (M,).
        positives: how many there are to find, 1 or more.
    """
    last_of_tie = np.append(distances[1:] != distances[:-1], np.ones(min(len(distances), 1), np.bool_))
    hits = right.cumsum()[last_of_tie]
    precision = np.append(hits / (np.flatnonzero(last_of_tie) + 1), 0.0)
    # The small number undoes 0.28·25 = 7.000000000000001, which would ask for one more.
    return np.asarray(precision[np.searchsorted(hits, recalls * positives - 1e-9)])


def _among(pairs: Integers, some: Integers, width: int) -> NDArray[np.bool_]:
    """(P,) whether each of (P, 2) pairs is one of `some` (P′, 2); second items are below the width."""
    keys, known = (one[:, 0] * width + one[:, 1] for one in (pairs, some))
    return np.isin(keys, known)


def _best(
    pair: ImagePair, matches: Integers, distances: NDArray[np.float32], right: NDArray[np.bool_]
) -> tuple[list[int], float] | None:
    if not right.any():
        return None
    first = int(right.argmax())
    item0, item1 = matches[first]
    return [int(pair.seen[0][item0]), int(pair.seen[1][item1])], float(distances[first])


def _worst(
    pair: ImagePair,
    matches: Integers,
    distances: NDArray[np.float32],
    right: NDArray[np.bool_],
    near: NDArray[np.float32],
) -> tuple[list[int], list[float]] | None:
    """The nearest wrong match of a keypoint that has a positive, `near` (C,) to it."""
    positive_of = np.full(len(pair.seen[0]), -1)
    positive_of[pair.positives[:, 0]] = np.arange(len(pair.positives))
    points0, points1 = (
        centres(photo.frames)[seen[matches[:, side]]]
        for side, (photo, seen) in enumerate(zip(pair.photos, pair.seen, strict=True))
    )
    # A match that is a few pixels off is wrong by its overlap, but there is nothing to see.
    elsewhere = reprojection_errors(points0, points1, pair.homography) > PIXELS[-1]
    wrong = np.flatnonzero(~right & elsewhere & (positive_of[matches[:, 0]] >= 0))
    if not len(wrong):
        return None
    item0, item1 = matches[wrong[0]]
    positive = positive_of[item0]
    places = [pair.seen[0][item0], pair.seen[1][pair.positives[positive, 1]], pair.seen[1][item1]]
    return [int(place) for place in places], [float(near[positive]), float(distances[wrong[0]])]
