"""Benchmark `oxford`: images of one plane with known homographies, image 1 against images 2…6.

It reads the sequences of Oxford (Mikolajczyk et al., 2005) and of HPatches.

    mAP             Keypoints in the region that both images show are matched one to one, nearest pair first. A match
                    is correct if the two regions overlap (see `overlap`). AP is the area under the precision-recall
                    curve of the matches ranked by distance. The number of positives is the number of regions that
                    can be paired one to one, best overlap first.
    recall          Share of the positives among all these matches.
    MMA@t           Share of mutual nearest neighbours of all keypoints within t pixels of the true position.
    homography AUC  Area under the cumulative corner error of the homography estimated from the same neighbours.

All figures but the last are means over image pairs. mAP follows VLBenchmarks and the paper, which uses
Harris-Affine regions; the default here is SIFT. SIFT's regions are circular, and at viewpoint changes of 60°
or more a circular region overlaps with no other. Such pairs have no positives and are left out of mAP and
recall. At chance level, the precision is the share of all keypoint pairs that overlap, about 0.002.

The pairs of a sequence share image 1 and its content, so they are not independent. Intervals resample sequences, and
pairs within each drawn sequence; those of one sequence resample its pairs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from doap._support.errors import DataError
from doap.data.readers import read_oxford
from doap.data.readers.oxford import ImageSequence
from doap.detectors import Detector, sift
from doap.evaluation.benchmark import BenchmarkSettings, DetectorSetting
from doap.evaluation.bootstrap import bootstrap_interval
from doap.evaluation.candidates import Candidate, Needs
from doap.evaluation.homography import area_under_recall
from doap.evaluation.image_pair import (
    INLIER,
    PIXELS,
    RECALLS,
    ImagePair,
    PairMatches,
    PairScores,
    detect_photo,
    make_pair,
    score_pair,
)
from doap.evaluation.overlap import RADIUS
from doap.evaluation.result import Curve, Dataset, Figure, Histogram, Scores
from doap.evaluation.verification import distance_histogram
from doap.images import read_grey
from doap.types import Progress, no_progress

CORNER_THRESHOLDS = (1, 3, 5)
"""Thresholds of the homography AUC, in pixels."""
RESAMPLES = 400
MAX_OVERLAP_ERROR = 0.4
"""Maximum overlap error of corresponding regions."""

Floats = NDArray[np.float64]


class OxfordBenchmark:
    """Image sequences with their keypoints and ground truth, which all descriptors share.

    `root` is a folder of sequences, or one sequence.
    """

    class Settings(BenchmarkSettings):
        """Settings of the benchmark `oxford`."""

        detector: DetectorSetting = Field(default_factory=sift, description="Keypoint detector; SIFT by default.")
        max_keypoints: int = Field(2000, ge=1, description="Maximum number of keypoints per image.")

    name = "oxford"
    needs: Needs = "frames"

    def __init__(self, root: str | Path, /, *, progress: Progress = no_progress, **settings: object) -> None:
        chosen = self.Settings.parse(settings)
        sequences = read_oxford(root)
        pairs: list[ImagePair] = []
        for index, sequence in enumerate(sequences):
            progress(index, len(sequences), sequence.name)
            pairs += _make_pairs(sequence, index * len(sequence.images), chosen)
        progress(len(sequences), len(sequences), "done")
        if not any(len(pair.positives) for pair in pairs):
            raise DataError(
                f"{root}: no keypoint of {chosen.detector.name} corresponds in any of {len(pairs)} image pairs. "
                "Check the homographies."
            )
        self.pairs = tuple(pairs)
        self.dataset = Dataset(Path(root).resolve().name, _checksum(sequences))
        self.detector, self.protocol = chosen.detector, _protocol(chosen.detector, chosen, pairs)

    def evaluate(self, candidate: Candidate, seed: int) -> Scores:
        """Score one descriptor on all image pairs."""
        scores = self._score_pairs(candidate)
        matches = [score.matches for score in scores if score.matches]
        sequences = np.array([pair.sequence for pair in self.pairs])
        matched = sequences[[score.matches is not None for score in scores]]
        accuracy = np.array([score.accuracy for score in scores])
        corners = np.array([score.corner_error for score in scores])
        figures = (
            _figure("mAP", np.array([found.average_precision for found in matches]), matched, _average, seed),
            _figure("recall", np.array([found.recall for found in matches]), matched, _average, seed),
            _figure("MMA@3", accuracy[:, PIXELS == 3].ravel(), sequences, _average, seed),
            *(
                _figure(
                    f"homography AUC@{limit}", corners, sequences, partial(area_under_recall, threshold=limit), seed
                )
                for limit in CORNER_THRESHOLDS
            ),
        )
        precision = np.mean([found.precision for found in matches], axis=0)
        curves = (
            Curve("precision-recall", "recall", "precision", _points(RECALLS, precision)),
            Curve("MMA", "error allowed, in pixels", "mean matching accuracy", _points(PIXELS, accuracy.mean(axis=0))),
        )
        histogram = _histogram(matches, whole=candidate.kind == "binary")
        return Scores(figures, curves, histogram)

    def _score_pairs(self, candidate: Candidate) -> list[PairScores]:
        """Score each pair; image 0 of a sequence is described once for all its pairs."""
        scores: list[PairScores] = []
        for photo0, pairs in groupby(self.pairs, key=lambda pair: pair.photos[0]):
            descriptors0 = candidate.describe(photo0.image, photo0.frames)
            for pair in pairs:
                photo1 = pair.photos[1]
                scores.append(score_pair(pair, descriptors0, candidate.describe(photo1.image, photo1.frames)))
        return scores


def _make_pairs(sequence: ImageSequence, number: int, settings: OxfordBenchmark.Settings) -> list[ImagePair]:
    """Detect keypoints and pair the first image with the others; `number` counts the images before the sequence."""
    first, *rest = (
        detect_photo(read_grey(path), settings.detector, settings.max_keypoints, number + index)
        for index, path in enumerate(sequence.images)
    )
    return [
        make_pair(sequence.name, first, photo, homography, MAX_OVERLAP_ERROR)
        for photo, homography in zip(rest, sequence.homographies[1:], strict=True)
    ]


def _protocol(detector: Detector, settings: OxfordBenchmark.Settings, pairs: Sequence[ImagePair]) -> dict[str, Any]:
    without = sum(not len(pair.positives) for pair in pairs)
    return {
        "detector": detector.name,
        "magnification": detector.magnification,
        "keypoints of an image": settings.max_keypoints,
        "keypoints": "the strongest of those whose patches lie in the image",
        "region": "ellipse inscribed in the patch",
        "overlap error at most": MAX_OVERLAP_ERROR,
        "overlap": f"in image 1, with its region scaled to a radius of {RADIUS:g} px; homography linearised",
        "positives": "one to one, best overlap first, in the part both images see",
        "matches of mAP": "one to one, least distance first, in the part both images see",
        "matches of MMA and homography": "mutual nearest neighbours of all keypoints",
        "homography": f"USAC_MAGSAC, {INLIER:g} px",
        "ties": "lowest index of shuffled keypoints in matching, expected in AP",
        "pairs of images": len(pairs),
        "pairs without correspondences": f"{without}, left out of mAP and recall",
        "resampled": "sequences, and pairs of images within sequences",
    }


def _checksum(sequences: Sequence[ImageSequence]) -> str:
    """Return a checksum of the image files and the homographies, in order."""
    digest = hashlib.sha256()
    for sequence in sequences:
        for path, homography in zip(sequence.images, sequence.homographies, strict=True):
            digest.update(path.read_bytes())
            digest.update(homography.astype("<f8").tobytes())
    return digest.hexdigest()


def _figure(
    name: str, values: Floats, sequences: NDArray[np.str_], statistic: Callable[[Floats], float], seed: int
) -> Figure:
    """Return a statistic of (P,) values of image pairs, in total and by sequence."""

    def of(some: Floats) -> Callable[[Floats], float]:
        return lambda weights: statistic(np.repeat(some, weights.astype(np.intp)))

    total = bootstrap_interval(of(values), len(values), seed, RESAMPLES, clusters=sequences)
    members = {sequence: values[sequences == sequence] for sequence in dict.fromkeys(sequences.tolist())}
    parts = {name: bootstrap_interval(of(own), len(own), seed, RESAMPLES) for name, own in members.items()}
    return Figure(name, "higher", "sequences", total, parts, part_unit="pairs of images")


def _average(values: Floats) -> float:
    return float(values.mean())


def _points(x: NDArray[Any], y: NDArray[Any]) -> list[tuple[float, float]]:
    return [(float(one), float(other)) for one, other in zip(x, y, strict=True)]


def _histogram(matches: Sequence[PairMatches], *, whole: bool) -> Histogram | None:
    positive = np.concatenate([found.match_distances for found in matches])
    negative = np.concatenate([found.non_match_distances for found in matches])
    if not len(negative):
        return None
    distances = torch.from_numpy(np.concatenate([positive, negative]))
    return distance_histogram(distances, torch.arange(len(distances)) < len(positive), whole=whole)
