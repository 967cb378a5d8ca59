"""Stage 1: views of each photo are made up, with a homography that is known, and their keypoints are found anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from doap.detectors import Detector
from doap.evaluation.cached_describer import CachedDescriber
from doap.evaluation.compare.shots import VIEWS, Shot
from doap.evaluation.compare.stage import Stage, contest
from doap.evaluation.homography import matching_accuracy, reprojection_errors
from doap.evaluation.image_pair import INLIER, ImagePair, find, look_at, make_pair
from doap.images import centres
from doap.images.synthetic_views import SyntheticViews, change_appearance, random_homography, warp
from doap.matching import match_descriptors
from doap.random_streams import stream
from doap.types import Progress

OVERLAP_ERROR = 0.4
FIGURES = ("AP", "recall", "precision", "right matches")


def evaluate_views(
    shots: Sequence[Shot],
    describing: Mapping[str, CachedDescriber],
    detector: Detector,
    max_keypoints: int,
    seed: int,
    progress: Progress,
) -> Stage:
    """How well each descriptor matches a photo with other views of it: turned, tilted, nearer or further, relit.

    AP and recall are those of the benchmark `oxford` (see `evaluation.sequences`); precision is the share of mutual
    nearest neighbours that are within 3 pixels of the truth, and right matches their number. Of a photo each is the
    mean over its views.
    """
    items: list[tuple[int, ...]] = []
    measured: dict[str, list[list[float]]] = {name: [] for name in describing}
    for number, shot in enumerate(shots):
        progress(number, len(shots), f"views of {shot.name}")
        random = stream(seed, "compared views", number)
        pairs = []
        for view in range(VIEWS):
            homography = random_homography(shot.photo.image.shape, SyntheticViews(), random)
            pixels = change_appearance(warp(shot.photo.image, homography), random)
            seen = look_at(pixels, detector, max_keypoints, (1 + VIEWS) * number + 1 + view)
            pairs.append(make_pair(shot.name, shot.photo, seen, homography, OVERLAP_ERROR))
        pairs = [pair for pair in pairs if len(pair.positives)]
        if not pairs:
            continue
        items.append((number,))
        for name, describe in describing.items():
            views = [(pair, describe.frames(pair.photos[1].image, pair.photos[1].frames)) for pair in pairs]
            outcomes = [_figures(pair, shot.described[name], described) for pair, described in views]
            measured[name].append(np.mean(outcomes, axis=0).tolist())
    progress(len(shots), len(shots), "views judged")
    what = "made-up views of photos"
    if not items:
        return Stage(what, note="no keypoint was found again in a view")
    by_figure = {
        figure: {name: [row[place] for row in rows] for name, rows in measured.items()}
        for place, figure in enumerate(FIGURES)
    }
    contests = {figure: contest(values, items, seed) for figure, values in by_figure.items()}
    return Stage(what, items, contests, f"{len(items)} photos, {VIEWS} views of each")


def _figures(pair: ImagePair, described0: Tensor, described1: Tensor) -> list[float]:
    """Of one view, in the order of `FIGURES`."""
    found = find(pair, described0, described1)
    matches = match_descriptors(described0, described1)[0].numpy()
    points0, points1 = (centres(photo.frames)[matches[:, side]] for side, photo in enumerate(pair.photos))
    errors = reprojection_errors(points0, points1, pair.homography)
    precision = float(matching_accuracy(errors, [INLIER])[0])
    return [found.average_precision, found.recall, precision, float((errors <= INLIER).sum())]
