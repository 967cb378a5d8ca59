"""The photos of a comparison, described once by every descriptor, and their synthetic views."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from doap._support.errors import DataError
from doap._support.random_streams import stream
from doap.detectors import Detector
from doap.evaluation.cached_describer import CachedDescriber
from doap.evaluation.comparison.verdict import Stage, photo_figure
from doap.evaluation.image_pair import ImagePair, Photo, detect_photo, make_pair, score_one_to_one
from doap.images import read_grey, shrink
from doap.images.synthetic_views import SyntheticViews, change_appearance, random_homography, warp
from doap.types import Progress

LONGEST_SIDE = 1600
"""Larger photos are reduced to this side, in pixels."""
VIEWS = 2
"""Number of synthetic views per photo."""
OVERLAP_ERROR = 0.4
RUN = 5
"""Consecutive photos that are selected together, because neighbours are likely to overlap."""


@dataclass(frozen=True, eq=False)
class DescribedPhoto:
    """A photo with keypoints and their descriptors.

    Attributes:
        name: Unique name.
        path: File.
        photo: Pixels and keypoints.
        enlarge: (3, 3) homography from these pixels to those of the file.
        descriptors: Descriptors of the keypoints, by the name of the descriptor.
    """

    name: str
    path: Path
    photo: Photo
    enlarge: NDArray[np.float64]
    descriptors: dict[str, Tensor]


def select_photos(paths: Sequence[Path], limit: int) -> list[Path]:
    """Select at most `limit` photos: runs of neighbours, spread evenly over all photos.

    >>> [path.name for path in select_photos([Path(f"{number:02}.jpg") for number in range(50)], 10)]
    ['00.jpg', '01.jpg', '02.jpg', '03.jpg', '04.jpg', '45.jpg', '46.jpg', '47.jpg', '48.jpg', '49.jpg']
    """
    if len(paths) <= limit:
        return list(paths)
    starts = np.linspace(0, max(len(paths) - RUN, 0), -(-limit // RUN)).round().astype(int).tolist()
    selected = sorted({start + step for start in starts for step in range(RUN) if start + step < len(paths)})
    return [paths[index] for index in selected[:limit]]


def read_photos(
    paths: Sequence[Path],
    describers: Mapping[str, Candidate],
    detector: Detector,
    max_keypoints: int,
    progress: Progress,
) -> tuple[list[DescribedPhoto], dict[str, str]]:
    """Read and describe photos; return them and, by name, the reason why a photo cannot be used."""
    photos: list[DescribedPhoto] = []
    skipped: dict[str, str] = {}
    namesakes = Counter(path.name for path in paths)
    for number, path in enumerate(paths):
        # Two photos of different folders may have the same name.
        name = path.name if namesakes[path.name] == 1 else path.as_posix()
        progress(number, len(paths), f"photo {name}")
        try:
            image, enlarge = shrink(read_grey(path), LONGEST_SIDE)
        except DataError as error:
            skipped[name] = str(error)
            continue
        # Each photo and each of its views has its own seed for the order of keypoints.
        photo = detect_photo(image, detector, max_keypoints, (1 + VIEWS) * number)
        if not len(photo.frames):
            skipped[name] = f"{path}: {detector.name} detects no keypoints. The photo may be flat or too small."
            continue
        # Descriptors take turns on each photo, so that other load on the machine slows them equally.
        descriptors = {one: describer.describe(photo.image, photo.frames) for one, describer in describers.items()}
        photos.append(DescribedPhoto(name, path, photo, enlarge, descriptors))
    progress(len(paths), len(paths), "photos read")
    return photos, skipped


def evaluate_views(
    photos: Sequence[DescribedPhoto],
    describers: Mapping[str, CachedDescriber],
    detector: Detector,
    max_keypoints: int,
    seed: int,
    progress: Progress,
) -> Stage:
    """Compare how well the descriptors match photos with views that are rotated, tilted, scaled and relit.

    AP and recall are those of the benchmark `oxford`. The value of a photo is the mean over its views.
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
                found = score_one_to_one(pair, photo.descriptors[name], view)
                scores.append([found.average_precision, found.recall])
            measured[name].append(np.mean(scores, axis=0).tolist())
    progress(len(photos), len(photos), "views matched")
    stage = "synthetic views of photos"
    if not items:
        return Stage(stage, "no keypoint of a photo was detected again in its views")
    figures = {
        name: tuple(
            photo_figure(figure, [row[column] for row in rows], items, seed)
            for column, figure in enumerate(("AP", "recall"))
        )
        for name, rows in measured.items()
    }
    return Stage(stage, f"{len(items)} photos with {VIEWS} views each", figures)


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
