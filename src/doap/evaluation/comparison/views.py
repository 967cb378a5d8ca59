"""Stage 1: matching photos with synthetic views of themselves, whose homographies are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from doap._support.random_streams import stream
from doap.detectors import Detector
from doap.evaluation.candidates import Candidate
from doap.evaluation.comparison.photos import VIEWS, DescribedPhoto
from doap.evaluation.comparison.stage import Stage, compare_metric
from doap.evaluation.homography import matching_accuracy, reprojection_errors
from doap.evaluation.image_pair import INLIER, ImagePair, detect_photo, make_pair, score_one_to_one
from doap.images import centres
from doap.images.synthetic_views import SyntheticViews, change_appearance, random_homography, warp
from doap.matching import match_descriptors
from doap.types import Progress

OVERLAP_ERROR = 0.4
METRICS = ("AP", "recall", "precision", "correct matches")
STAGE = "synthetic views of photos"


def evaluate_views(
    photos: Sequence[DescribedPhoto],
    describers: Mapping[str, Candidate],
    detector: Detector,
    max_keypoints: int,
    seed: int,
    progress: Progress,
) -> Stage:
    """Compare how well the descriptors match photos with views that are rotated, tilted, scaled and relit.

    AP and recall are those of the benchmark `oxford`. Precision is the share of mutual nearest neighbours within 3
    pixels of the true position, and correct matches is their number. The value of a photo is the mean over its views.
    """
    items: list[tuple[int, ...]] = []
    measured: dict[str, list[list[float]]] = {name: [] for name in describers}
    for number, photo in enumerate(photos):
        progress(number, len(photos), f"views of {photo.name}")
        pairs = _make_views(photo, number, detector, max_keypoints, seed)
        if not pairs:
            continue
        items.append((number,))
        for name, describer in describers.items():
            scores = []
            for pair in pairs:
                view = describer.describe(pair.photos[1].image, pair.photos[1].frames)
                scores.append(_score_view(pair, photo.descriptors[name], view))
            measured[name].append(np.mean(scores, axis=0).tolist())
    progress(len(photos), len(photos), "views matched")
    if not items:
        return Stage(STAGE, note="no keypoint of a photo was detected again in its views")
    metrics = {}
    for column, metric in enumerate(METRICS):
        values = {name: [row[column] for row in rows] for name, rows in measured.items()}
        metrics[metric] = compare_metric(values, items, seed)
    return Stage(STAGE, items, metrics, f"{len(items)} photos with {VIEWS} views each")


def _make_views(
    photo: DescribedPhoto, number: int, detector: Detector, max_keypoints: int, seed: int
) -> list[ImagePair]:
    """Pair a photo with each of its views; views without correspondences are dropped."""
    random = stream(seed, "compared views", number)
    pairs = []
    for view in range(VIEWS):
        homography = random_homography(photo.photo.image.shape, SyntheticViews(), random)
        pixels = change_appearance(warp(photo.photo.image, homography), random)
        detected = detect_photo(pixels, detector, max_keypoints, (1 + VIEWS) * number + 1 + view)
        pairs.append(make_pair(photo.name, photo.photo, detected, homography, OVERLAP_ERROR))
    return [pair for pair in pairs if len(pair.positives)]


def _score_view(pair: ImagePair, descriptors0: Tensor, descriptors1: Tensor) -> list[float]:
    """Score one view, in the order of `METRICS`."""
    found = score_one_to_one(pair, descriptors0, descriptors1)
    matches = match_descriptors(descriptors0, descriptors1)[0].numpy()
    points0, points1 = (centres(photo.frames)[matches[:, side]] for side, photo in enumerate(pair.photos))
    errors = reprojection_errors(points0, points1, pair.homography)
    precision = float(matching_accuracy(errors, [INLIER])[0])
    return [found.average_precision, found.recall, precision, float((errors <= INLIER).sum())]
