"""Images of one plane with known homographies, Oxford's and those of HPatches: image 1 against 2…6.

    mAP             Keypoints in the part that both images see are matched one to one: of all pairs the nearest first,
                    until one side is used up. A match is right if the regions overlap (see `overlap`). AP is the area
                    under precision and recall of the matches by distance. Positives are as many as there are regions
                    that can be paired one to one, the best overlap first.
    recall          of all these matches, at whatever distance
    MMA@t           share of mutual nearest neighbours, of all keypoints, that lie within t pixels of the truth
    homography AUC  of the mean error of the corners, for the homography that the same neighbours give

All but the last are means over pairs of images. The steps of mAP are those of VLBenchmarks, as in the paper, which took
Harris-Affine regions; SIFT's are the default here. These are round, and at a slant of 60° or more a round region
overlaps with no other: such pairs have no positives, and are left out of mAP and recall. Chance, of a constant or a
random descriptor, is a precision of the share of all pairs of keypoints that overlap, about 0.002, and an AP far below.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from doap.data.readers import read_oxford
from doap.data.readers.oxford import ImageSequence
from doap.detectors import Detector, sift
from doap.errors import ArgumentError, DataError
from doap.evaluation.bootstrap import bootstrap_interval, bootstrap_mean
from doap.evaluation.cached_describer import CachedDescriber
from doap.evaluation.homography import area_under_recall
from doap.evaluation.image_pair import (
    INLIER,
    PIXELS,
    RECALLS,
    ImagePair,
    PairMatches,
    PairScores,
    look_at,
    make_pair,
    score_pair,
)
from doap.evaluation.overlap import RADIUS
from doap.evaluation.result import Curve, Dataset, Estimate, Figure, Gallery, Histogram, Scores
from doap.evaluation.verification import distance_histogram
from doap.images import extract_patches, read_grey
from doap.types import Progress, no_progress

CORNERS = (1, 3, 5)
SHOWN, SHOWN_SIZE = 12, 32


@dataclass(frozen=True, eq=False)
class OxfordBenchmark:
    """Sequences with their keypoints and ground truth, ready to judge on; see `open_oxford`."""

    dataset: Dataset
    protocol: dict[str, Any]
    pairs: tuple[ImagePair, ...]
    name: str = "oxford"

    def judge(self, describe: CachedDescriber, seed: int) -> Scores:
        """All figures of one describer."""
        outcomes: list[PairScores] = []
        for photo, pairs in groupby(self.pairs, key=lambda pair: pair.photos[0]):
            described = describe.frames(photo.image, photo.frames)
            outcomes += [
                score_pair(pair, described, describe.frames(pair.photos[1].image, pair.photos[1].frames))
                for pair in pairs
            ]
        found = [(pair, outcome.found) for pair, outcome in zip(self.pairs, outcomes, strict=True) if outcome.found]
        every, findable = [pair.sequence for pair in self.pairs], [pair.sequence for pair, _ in found]
        accuracy = np.array([outcome.accuracy for outcome in outcomes])
        corners = np.array([outcome.corner for outcome in outcomes])
        figures = (
            _mean("mAP", [one.average_precision for _, one in found], findable, seed),
            _mean("recall", [one.recall for _, one in found], findable, seed),
            _mean("MMA@3", accuracy[:, PIXELS == 3].ravel().tolist(), every, seed),
            *(_area(f"homography AUC@{limit}", corners, limit, every, seed) for limit in CORNERS),
        )
        precision = np.mean([one.precision for _, one in found], axis=0)
        curves = (
            Curve("precision-recall", "recall", "precision", _points(RECALLS, precision)),
            Curve("MMA", "error allowed, in pixels", "mean matching accuracy", _points(PIXELS, accuracy.mean(axis=0))),
        )
        whole = describe.describer.kind == "binary"
        return Scores(figures, curves, _histogram([one for _, one in found], whole=whole), _gallery(found))


def open_oxford(
    root: str | Path,
    *,
    detector: Detector | None = None,
    max_keypoints: int = 2000,
    threshold: float = 0.4,
    progress: Progress = no_progress,
) -> OxfordBenchmark:
    """Find the keypoints of all images, once for all descriptors, and which of them correspond.

    Args:
        root: a folder of sequences, or one sequence.
        detector: where to look; SIFT's blobs if not given.
        max_keypoints: keypoints of an image, the strongest.
        threshold: overlap error of corresponding regions, at most.
        progress: told the sequence at hand.
    """
    detector = detector or sift()
    if max_keypoints < 1:
        raise ArgumentError(f"most: expected 1 keypoint of an image or more, got {max_keypoints}")
    sequences = read_oxford(root)
    pairs: list[ImagePair] = []
    for done, sequence in enumerate(sequences):
        progress(done, len(sequences), sequence.name)
        # Each image has an order of its own.
        numbers = range(done * len(sequence.images), (done + 1) * len(sequence.images))
        first, *others = (
            look_at(read_grey(path), detector, max_keypoints, number)
            for path, number in zip(sequence.images, numbers, strict=True)
        )
        pairs += [
            make_pair(sequence.name, first, other, homography, threshold)
            for other, homography in zip(others, sequence.homographies[1:], strict=True)
        ]
    progress(len(sequences), len(sequences), "done")
    without = sum(not len(pair.positives) for pair in pairs)
    if without == len(pairs):
        raise DataError(
            f"{root}: expected keypoints of {detector.name} that are found again in another image, got none "
            f"in {without} pairs of images; check the homographies"
        )
    protocol = {
        "detector": detector.name,
        "magnification": detector.magnification,
        "keypoints of an image": max_keypoints,
        "keypoints": "the strongest of those whose patches lie in the image",
        "region": "ellipse inscribed in the patch",
        "overlap error at most": threshold,
        "overlap": f"in image 1, with its region scaled to a radius of {RADIUS:g} px; homography linearised",
        "positives": "one to one, best overlap first, in the part both images see",
        "matches of mAP": "one to one, least distance first, in the part both images see",
        "matches of MMA and homography": "mutual nearest neighbours of all keypoints",
        "homography": f"USAC_MAGSAC, {INLIER:g} px",
        "ties": "lowest index of shuffled keypoints in matching, expected in AP",
        "pairs of images": len(pairs),
        "pairs without correspondences": f"{without}, left out of mAP and recall",
    }
    dataset = Dataset(Path(root).resolve().name, _checksum(sequences))
    return OxfordBenchmark(dataset, protocol, tuple(pairs))


def _checksum(sequences: Sequence[ImageSequence]) -> str:
    """Of the image files and the numbers of the homographies, in order."""
    digest = hashlib.sha256()
    for sequence in sequences:
        for path, homography in zip(sequence.images, sequence.homographies, strict=True):
            digest.update(path.read_bytes())
            digest.update(homography.astype("<f8").tobytes())
    return digest.hexdigest()


def _mean(name: str, values: Sequence[float], sequences: Sequence[str], seed: int) -> Figure:
    """The mean of (P,) values of pairs of images, and by sequence."""
    parts = {part: bootstrap_mean(some, seed) for part, some in _by_sequence(np.array(values), sequences).items()}
    return Figure(name, "higher", "pairs of images", bootstrap_mean(values, seed), parts)


def _area(name: str, corners: NDArray[np.float64], limit: int, sequences: Sequence[str], seed: int) -> Figure:
    """The area under recall of (P,) errors of pairs of images, and by sequence."""

    def area(errors: NDArray[np.float64]) -> Estimate:
        return bootstrap_interval(partial(_repeated_area, errors, limit), len(errors), seed)

    parts = {part: area(errors) for part, errors in _by_sequence(corners, sequences).items()}
    return Figure(name, "higher", "pairs of images", area(corners), parts)


def _repeated_area(errors: NDArray[np.float64], limit: int, weights: NDArray[np.float64]) -> float:
    return area_under_recall(np.repeat(errors, weights.astype(np.intp)), limit)


def _by_sequence(values: NDArray[np.float64], sequences: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    of = np.array(sequences)
    return {sequence: values[of == sequence] for sequence in dict.fromkeys(sequences)}


def _points(x: NDArray[Any], y: NDArray[Any]) -> list[tuple[float, float]]:
    return [(float(one), float(other)) for one, other in zip(x, y, strict=True)]


def _histogram(found: Sequence[PairMatches], *, whole: bool) -> Histogram | None:
    near, far = (np.concatenate([getattr(one, kind) for one in found]) for kind in ("near", "far"))
    if not len(far):
        return None
    distances = torch.from_numpy(np.concatenate([near, far]))
    return distance_histogram(distances, torch.arange(len(distances)) < len(near), whole=whole)


def _gallery(found: Sequence[tuple[ImagePair, PairMatches]]) -> Gallery:
    """The best and the worst match of some pairs of images, one of each, by their distances."""
    best = sorted(((pair, *one.best) for pair, one in found if one.best), key=lambda match: match[2])[:SHOWN]
    worst = sorted(((pair, *one.worst) for pair, one in found if one.worst), key=lambda match: match[2][1])[:SHOWN]
    return Gallery(
        _patches([(pair, places) for pair, places, _ in best], 2),
        _patches([(pair, places) for pair, places, _ in worst], 3),
        np.array([distance for _, _, distance in best], np.float32),
        np.array([distances for _, _, distances in worst], np.float32).reshape(-1, 2),
    )


def _patches(matches: Sequence[tuple[ImagePair, list[int]]], each: int) -> NDArray[np.uint8]:
    """(n, each, S, S): a keypoint of image 0, and one or two of image 1."""
    patches = np.zeros((len(matches), each, SHOWN_SIZE, SHOWN_SIZE), np.uint8)
    for (pair, (place, *others)), row in zip(matches, patches, strict=True):
        photo0, photo1 = pair.photos
        row[:1] = extract_patches(photo0.image, photo0.frames[[place]], SHOWN_SIZE)
        row[1:] = extract_patches(photo1.image, photo1.frames[others], SHOWN_SIZE)
    return patches
