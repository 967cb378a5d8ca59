"""Pairs of photos that overlap, found from their matches, and what COLMAP reconstructs from these matches."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import DoapError, import_pycolmap
from doap._support.text import counted
from doap.evaluation.comparison.photos import LONGEST_SIDE, DescribedPhoto
from doap.evaluation.comparison.verdict import Stage, photo_figure
from doap.evaluation.mapping import MIN_IMAGES, map_database, summarise_models
from doap.evaluation.result import Estimate, Figure
from doap.export.colmap_database import MAX_ERROR, create_database, read_ids, verify_matches, write_matched_features
from doap.geometry import estimate_geometry, is_verified
from doap.images import centres, draw_matches, read_colour, shrink
from doap.images.frames import transform_frames
from doap.matching import match_descriptors
from doap.types import Features, Matches, Progress

PICTURE_SIDE = 580
"""Longest side of each photo in a picture, in pixels."""


@dataclass(frozen=True)
class Picture:
    """The matches of one descriptor in a pair of photos, as JPEG; pictures of one title are shown side by side."""

    title: str
    caption: str
    jpeg: bytes


@dataclass(frozen=True, eq=False)
class PhotoPair:
    """Two photos, the matches (M, 2) of each descriptor, and (M,) which of them agree with a fundamental matrix."""

    photos: tuple[int, int]
    matches: dict[str, NDArray[np.int64]]
    inliers: dict[str, NDArray[np.bool_]]


def evaluate_pairs(
    photos: Sequence[DescribedPhoto], ratios: Mapping[str, float], seed: int, progress: Progress
) -> tuple[Stage, list[PhotoPair]]:
    """Compare how many matches of each descriptor agree with one fundamental matrix, in pairs that overlap.

    The matches of a descriptor pass the ratio test with its threshold in `ratios`. A pair overlaps if any descriptor
    verifies it, with at least 30 inliers that are at least 10 % of its matches. All descriptors are compared on all
    these pairs.
    """
    listed = list(combinations(range(len(photos)), 2))
    found: list[PhotoPair] = []
    for number, pair in enumerate(listed):
        one, other = (photos[index] for index in pair)
        progress(number, len(listed), f"{one.name} and {other.name}")
        matched = PhotoPair(pair, {}, {})
        for name, ratio in ratios.items():
            matches = match_descriptors(one.descriptors[name], other.descriptors[name], ratio=ratio)[0].numpy()
            points = (centres(photo.photo.frames)[matches[:, side]] for side, photo in enumerate((one, other)))
            matched.matches[name], matched.inliers[name] = matches, estimate_geometry(*points).inliers
        if any(is_verified(int(inliers.sum()), len(inliers)) for inliers in matched.inliers.values()):
            found.append(matched)
    progress(len(listed), len(listed), "pairs matched")
    stage = "pairs of photos that overlap"
    if not found:
        return Stage(stage, f"none of {len(listed)} pairs of photos overlaps"), []
    items: list[tuple[int, ...]] = [pair.photos for pair in found]
    figures: dict[str, tuple[Figure, ...]] = {}
    for name in ratios:
        inliers = [pair.inliers[name] for pair in found]
        verified = [float(is_verified(int(one.sum()), len(one))) for one in inliers]
        counts = photo_figure("verified inliers", [float(one.sum()) for one in inliers], items, seed)
        figures[name] = (counts, photo_figure("pairs verified", verified, items, seed))
    return Stage(stage, f"{len(found)} of {len(listed)} pairs overlap", figures), found


def draw_pairs(photos: Sequence[DescribedPhoto], pairs: Sequence[PhotoPair], stage: Stage) -> dict[str, list[Picture]]:
    """Draw the pairs with the highest and the lowest gain of the candidate over the best baseline, and a typical pair.

    Returns:
        Pictures by descriptor: the candidate, the best baseline, then the others.
    """
    if not pairs:
        return {}
    candidate, baseline = next(iter(stage.figures)), stage.best_baseline
    differences = np.array([int(pair.inliers[candidate].sum() - pair.inliers[baseline].sum()) for pair in pairs])
    order = differences.argsort(kind="stable").tolist()
    # A pair that is two of these has the last title.
    titles = {order[-1]: "highest gain", order[0]: "lowest gain", order[len(order) // 2]: "a typical pair"}
    names = sorted(stage.figures, key=lambda name: (name != candidate, name != baseline))
    return {
        name: [
            _draw(photos, pairs[index], title, name, baseline if name == candidate else candidate)
            for index, title in titles.items()
        ]
        for name in names
    }


def _draw(photos: Sequence[DescribedPhoto], pair: PhotoPair, title: str, name: str, other: str) -> Picture:
    """Draw the matches of one descriptor, with the inliers that the other one does not find."""
    import cv2

    both = [photos[index] for index in pair.photos]
    image0, image1 = (shrink(read_colour(one.path), LONGEST_SIDE)[0] for one in both)
    points0, points1 = (centres(one.photo.frames) for one in both)
    matches, inliers = pair.matches[name], pair.inliers[name]
    verified = set(map(tuple, pair.matches[other][pair.inliers[other]].tolist()))
    common = np.array([tuple(match) in verified for match in matches.tolist()], np.bool_)
    drawn = image0, image1, points0, points1, matches, inliers, None
    pixels = draw_matches(*drawn, common=common, longest_side=PICTURE_SIDE)
    own = int((inliers & ~common).sum())
    caption = f"{counted(int(inliers.sum()), 'inlier')} of {counted(len(matches), 'match')}, {own:,} not in {other}"
    encoded = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, 85])[1].tobytes()
    return Picture(f"{both[0].name} and {both[1].name}: {title}", caption, encoded)


def evaluate_reconstructions(
    photos: Sequence[DescribedPhoto], pairs: Sequence[PhotoPair], seed: int, progress: Progress
) -> Stage:
    """Reconstruct the largest connected set of overlapping photos from the matches of each descriptor.

    Only the overlapping pairs are used. In repetitive scenes such as fields, any two photos have dozens of matches
    that agree by chance, and COLMAP would spend its time on models that fall apart.
    """
    stage = "reconstructions"
    connected = connected_photos([pair.photos for pair in pairs])
    if len(connected) < MIN_IMAGES:
        return Stage(stage, f"a reconstruction needs {MIN_IMAGES} overlapping photos, {len(connected)} overlap")
    used = [pair for pair in pairs if pair.photos[0] in connected]
    # Numbered, because photos of several folders may have the same name.
    names = {photo: f"{photo:06}-{photos[photo].path.name}" for photo in connected}
    figures: dict[str, tuple[Figure, ...]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for photo, copied in names.items():
            shutil.copyfile(photos[photo].path, Path(folder) / copied)
        for number, name in enumerate(photos[0].descriptors):
            progress(number, len(photos[0].descriptors), f"reconstruction with {name}")
            try:
                figures[name] = _reconstruct(photos, used, names, name, Path(folder), seed)
            except DoapError as error:
                return Stage(stage, str(error))
    progress(len(figures), len(figures), "reconstructed")
    return Stage(stage, f"{len(connected)} photos connected by {len(used)} overlapping pairs", figures)


def _reconstruct(
    photos: Sequence[DescribedPhoto],
    pairs: Sequence[PhotoPair],
    names: dict[int, str],
    descriptor: str,
    folder: Path,
    seed: int,
) -> tuple[Figure, ...]:
    """Reconstruct the photos `names` in a folder from the matches of one descriptor."""
    database, models = folder / f"{descriptor}.db", folder / f"{descriptor}.models"
    create_database(database, folder, list(names.values()), "auto")
    with import_pycolmap().Database.open(database) as opened:
        # COLMAP cannot read all image formats.
        readable = {photo: name for photo, name in names.items() if name in read_ids(opened)}
    features = {}
    for index, name in readable.items():
        one = photos[index]
        frames = transform_frames(one.photo.frames, one.enlarge)
        responses = np.ones(len(frames), np.float32)
        height, width = one.photo.image.shape
        features[name] = Features(frames, responses, one.descriptors[descriptor], (height, width))
    matches = []
    for first, second, found in ((*pair.photos, pair.matches[descriptor]) for pair in pairs):
        if first in readable and second in readable:
            scores = np.ones(len(found), np.float32)
            matches.append((readable[first], readable[second], Matches(found, scores)))
    write_matched_features(database, features, matches)
    verify_matches(database, seed, MAX_ERROR)
    model = summarise_models(map_database(database, folder, models, seed))
    values = {"photos registered": model.registered, "points": model.points, "track length": model.track_length}
    figures = [Figure(name, "higher", "scenes", Estimate(float(v), None, None, 1)) for name, v in values.items()]
    if (error := model.reprojection_error) is not None:
        figures.append(Figure("reprojection error", "lower", "scenes", Estimate(error, None, None, 1)))
    return tuple(figures)


def connected_photos(pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Return the photos connected by pairs to the photo with most partners, in order.

    >>> connected_photos([(0, 1), (2, 3), (3, 4), (3, 5), (5, 6)])
    [2, 3, 4, 5, 6]
    """
    partners: dict[int, set[int]] = {}
    for first, second in pairs:
        partners.setdefault(first, set()).add(second)
        partners.setdefault(second, set()).add(first)
    reached: set[int] = set()
    new = {max(partners, key=lambda photo: len(partners[photo]))} if partners else set()
    while new:
        reached |= new
        new = set().union(*(partners[photo] for photo in new)) - reached
    return sorted(reached)
