"""Two images of a plane with keypoints and ground truth, and the scores of a descriptor on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap._support.random_streams import stream
from doap.detectors import Detector
from doap.evaluation.homography import corner_error, matching_accuracy, reprojection_errors
from doap.evaluation.overlap import Floats, Integers, correspondences, one_to_one
from doap.geometry import estimate_geometry
from doap.images import centres, inside
from doap.images.frames import visible
from doap.matching import match_descriptors
from doap.metrics import average_precision, pair_distances, table_distances

PIXELS = np.arange(1, 11)
"""Thresholds of the mean matching accuracy (MMA), in pixels."""
RECALLS = np.arange(1, 51) / 50
"""Recall levels of the precision-recall curve."""
INLIER = 3.0
"""Inlier threshold of the estimated homography, in pixels."""


@dataclass(frozen=True, eq=False)
class Photo:
    """A grey image and the frames (N, 2, 3) of its keypoints, in random order."""

    image: NDArray[np.uint8]
    frames: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class ImagePair:
    """Two photos and their ground truth.

    Attributes:
        sequence: Name of the sequence that the photos belong to.
        photos: Image 0 and image 1.
        homography: (3, 3), x₁ ~ H·x₀.
        shared: (N0,) and (N1,) indices of the keypoints inside the region that both images show.
        overlapping: (P, 2) indices into `shared`: all pairs that count as correct matches.
        positives: (C, 2) one-to-one selection of these pairs, best overlap first.
    """

    sequence: str
    photos: tuple[Photo, Photo]
    homography: Floats
    shared: tuple[Integers, Integers]
    overlapping: Integers
    positives: Integers


@dataclass(frozen=True, eq=False)
class PairMatches:
    """One-to-one matches of a pair that has correspondences.

    Attributes:
        average_precision: AP of the matches ranked by distance.
        recall: Share of the correspondences that were found, at any distance.
        precision: Precision at each of `RECALLS`.
        match_distances, non_match_distances: Distances of keypoints that correspond and of some that do not.
    """

    average_precision: float
    recall: float
    precision: Floats
    match_distances: NDArray[np.float32]
    non_match_distances: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class PairScores:
    """Scores of one descriptor on one pair.

    Attributes:
        accuracy: Share of mutual nearest neighbours within each of `PIXELS` of the true position.
        corner_error: Corner error of the homography estimated from them.
        matches: None if the pair has no correspondences.
    """

    accuracy: Floats
    corner_error: float
    matches: PairMatches | None


def detect_photo(image: NDArray[np.uint8], detector: Detector, max_keypoints: int, number: int) -> Photo:
    """Detect the strongest keypoints of an image and shuffle them; `number` seeds the order.

    Only keypoints whose patches lie inside the image are kept: outside, descriptors would be evaluated on
    padding. The order is shuffled because detectors sort by response. The strongest keypoints of two images
    often correspond, and a constant descriptor, whose ties go to the lowest index, would match them.
    """
    frames, _ = detector.detect(image)
    height, width = image.shape
    frames = frames[inside(frames, height, width)][:max_keypoints]
    return Photo(image, frames[stream(0, "order of keypoints", number).permutation(len(frames))])


def make_pair(sequence: str, photo0: Photo, photo1: Photo, homography: Floats, threshold: float) -> ImagePair:
    """Compute the ground truth of two photos; `threshold` is the maximum overlap error."""
    to_image0 = np.asarray(np.linalg.inv(homography), np.float64)
    shared0 = np.flatnonzero(visible(photo0.frames, homography, photo1.image.shape))
    shared1 = np.flatnonzero(visible(photo1.frames, to_image0, photo0.image.shape))
    overlapping, _ = correspondences(photo0.frames[shared0], photo1.frames[shared1], homography, threshold)
    positives = overlapping[one_to_one(overlapping, len(shared0), len(shared1))]
    return ImagePair(sequence, (photo0, photo1), homography, (shared0, shared1), overlapping, positives)


def score_pair(pair: ImagePair, descriptors0: Tensor, descriptors1: Tensor) -> PairScores:
    """Match the descriptors of all keypoints of the two photos and compare the matches with the ground truth."""
    matches = match_descriptors(descriptors0, descriptors1)[0].numpy()
    points0, points1 = (centres(photo.frames)[matches[:, side]] for side, photo in enumerate(pair.photos))
    errors = reprojection_errors(points0, points1, pair.homography)
    geometry = estimate_geometry(points0, points1, "homography", threshold=INLIER)
    height, width = pair.photos[0].image.shape
    corners = corner_error(geometry.matrix, pair.homography, (height, width))
    one_to_one_matches = score_one_to_one(pair, descriptors0, descriptors1) if len(pair.positives) else None
    return PairScores(matching_accuracy(errors, PIXELS), corners, one_to_one_matches)


def score_one_to_one(pair: ImagePair, descriptors0: Tensor, descriptors1: Tensor) -> PairMatches:
    """Match the keypoints of the shared region one to one; arguments as for `score_pair`."""
    shared0, shared1 = (
        descriptors[torch.from_numpy(shared)]
        for descriptors, shared in zip((descriptors0, descriptors1), pair.shared, strict=True)
    )
    matches, distances = match_one_to_one(table_distances(shared0, shared1))
    correct = _is_among(matches, pair.overlapping, len(shared1))
    ranked = average_precision(
        torch.from_numpy(distances)[None], torch.from_numpy(correct)[None], without_positives=0.0
    )
    # Matching by distance may pair a few more overlapping regions than the selection by overlap.
    recall = min(int(correct.sum()) / len(pair.positives), 1.0)
    match_distances, non_match_distances = (
        pair_distances(shared0[some[:, 0]], shared1[some[:, 1]]).numpy()
        for some in (pair.positives, _non_matches(pair, len(shared1)))
    )
    return PairMatches(
        float(ranked) * recall,
        recall,
        precision_at(RECALLS, distances, correct, len(pair.positives)),
        match_distances,
        non_match_distances,
    )


def match_one_to_one(distances: Tensor) -> tuple[Integers, NDArray[np.float32]]:
    """Match greedily: take the nearest pair, remove both items, repeat. Ties go to the lowest indices.

    Args:
        distances: (N0, N1) float32, 0 or more, with N0·N1 below 2³².

    Returns:
        (M, 2) indices by increasing distance, with M the smaller of N0 and N1, and (M,) their distances.
    """
    height, width = distances.shape
    # Non-negative floats sort like the integers of their bits (adding 0 turns −0 into +0). With the flat index in
    # the lower half, one sort of integers orders by distance, row and column, faster than an argsort.
    bits = (distances.contiguous().numpy().ravel() + np.float32(0)).view(np.uint32).astype(np.uint64)
    keys = np.sort((bits << np.uint64(32)) | np.arange(bits.size, dtype=np.uint64))
    flat = (keys & np.uint64(2**32 - 1)).astype(np.int64)
    pairs = np.stack(np.divmod(flat, max(width, 1)), axis=1)
    selected = one_to_one(pairs, height, width)
    return pairs[selected], (keys[selected] >> np.uint64(32)).astype(np.uint32).view(np.float32)


def precision_at(recalls: Floats, distances: NDArray[np.float32], correct: NDArray[np.bool_], positives: int) -> Floats:
    """Return the precision at the first threshold that reaches each recall; 0 if none does.

    Args:
        recalls: (T,) recall levels in (0, 1].
        distances: (M,) increasing distances; a threshold accepts all equal distances together.
        correct: (M,) bool.
        positives: Number of correspondences, 1 or more.
    """
    last_of_tie = np.append(distances[1:] != distances[:-1], np.ones(min(len(distances), 1), np.bool_))
    hits = correct.cumsum()[last_of_tie]
    precision = np.append(hits / (np.flatnonzero(last_of_tie) + 1), 0.0)
    # Without the small constant, rounding of 0.28·25 = 7.000000000000001 would ask for 8 hits.
    return np.asarray(precision[np.searchsorted(hits, recalls * positives - 1e-9)])


def _non_matches(pair: ImagePair, width: int) -> Integers:
    """Combine each keypoint with the correspondence of the next one; drop pairs that happen to overlap."""
    shifted = np.stack([pair.positives[:, 0], np.roll(pair.positives[:, 1], 1)], axis=1)
    return shifted[~_is_among(shifted, pair.overlapping, width)]


def _is_among(pairs: Integers, known: Integers, width: int) -> NDArray[np.bool_]:
    """Return (P,) whether each of (P, 2) pairs is one of `known` (P′, 2); second items are below the width."""
    keys, known_keys = (one[:, 0] * width + one[:, 1] for one in (pairs, known))
    return np.isin(keys, known_keys)
