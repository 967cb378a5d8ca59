"""Calibrate the patch size: measure the best magnification of a detector for a descriptor on photos.

Detectors define the size of a keypoint differently. A patch much larger than the keypoint covers
more of the scene and is more likely to leave its surface; a smaller patch contains too little to be
distinctive.

Each photo is warped by known homographies. Keypoints are detected in both images and matched to
mutual nearest neighbours. A match is correct if the homography maps one centre to within
`SyntheticViews.max_distance` pixels of the other, in pixels of the coarser image. The score of an
image pair is the Average Precision of its matches, ranked by distance:

    AP = Σ over correct matches of (correct matches up to its rank) / rank, divided by the keypoints with a partner

All magnifications use the same keypoints, and the final score is the mean over pairs. Synthetic
views show a plane, which favours large patches: of two magnifications with similar scores, choose
the smaller one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap._support.errors import ArgumentError, DataError
from doap._support.random_streams import stream
from doap._support.text import counted
from doap.describer import Describer
from doap.descriptor import as_describer
from doap.detectors import Detector, as_detector
from doap.images import ImageSource, Pyramid, as_grey, resize_frames, shrink
from doap.images.frames import corresponding, visible
from doap.images.synthetic_views import SyntheticViews, change_appearance, random_homography, warp
from doap.matching import match_descriptors
from doap.metrics import average_precision
from doap.types import Progress, no_progress

# Half octaves around the detector's magnification, from about a third of it to three times it.
_FACTORS = tuple(2 ** (step / 2) for step in range(-3, 4))


@dataclass(frozen=True)
class Trial:
    """A magnification and its score in 0…1."""

    magnification: float
    score: float


@dataclass(frozen=True)
class Calibration:
    """Scores of all magnifications that were tried.

    Attributes:
        trials: Trials, sorted by magnification.
        pairs: Number of pairs of a photo and a synthetic view that were scored.
        skipped: Number of pairs without a keypoint that was detected in both images.
    """

    trials: tuple[Trial, ...]
    pairs: int
    skipped: int

    @property
    def best(self) -> Trial:
        """Trial with the highest score; the smallest magnification wins a tie."""
        return max(self.trials, key=lambda trial: trial.score)

    @property
    def open_ended(self) -> bool:
        """Whether the best trial is the first or the last; a better magnification may lie beyond."""
        return self.best in (self.trials[0], self.trials[-1])


def calibrate(
    images: Sequence[ImageSource],
    descriptor: str | Path | Describer,
    detector: str | Detector | None = None,
    magnifications: Sequence[float] | None = None,
    *,
    views: SyntheticViews | None = None,
    max_keypoints: int = 1000,
    max_image_size: int = 3200,
    seed: int = 0,
    device: str | torch.device = "auto",
    progress: Progress = no_progress,
) -> Calibration:
    """Find the best magnification of a detector for a descriptor.

    >>> import doap
    >>> photo = Path(doap.__file__).with_name("samples") / "photo.jpg"
    >>> found = doap.calibrate([photo], "rootsift", "sift", [3.0, 6.0], max_keypoints=100)
    >>> [trial.magnification for trial in found.trials]
    [3.0, 6.0]

    Args:
        images: Images in the forms that `doap.extract` accepts. About ten different photos are
            enough.
        descriptor: Name or file for `doap.load`, or a `Describer`.
        detector: Name in `doap.detectors.DETECTORS`, or a `Detector`; SIFT by default. It runs once
            per image, and its frames are resized.
        magnifications: Magnifications to try; by default, half octaves around that of the detector,
            up to 2^±1.5.
        views: Parameters of the synthetic views; two views per photo by default. Use little `roll`
            for a detector without orientation.
        max_keypoints: Maximum number of keypoints per image.
        max_image_size: Maximum width and height; larger images are downscaled.
        seed: Seed of the synthetic views.
        device: Device of a descriptor given by name: "auto", "cpu", "cuda", "cuda:N" or "mps".
        progress: Callback, called after each image.
    """
    describer, views = as_describer(descriptor, device), views or SyntheticViews(count=2)
    finder = as_detector(detector)
    tried = sorted(magnifications or (finder.magnification * factor for factor in _FACTORS))
    if tried[0] <= 0 or not np.isfinite(tried).all():
        raise ArgumentError(f"magnifications: expected finite numbers above 0, got {tried}")
    scores: list[list[float]] = []
    for number, image in enumerate(images):
        photo, _ = shrink(as_grey(image), max_image_size)
        original = _Described(photo, describer, finder, tried, max_keypoints)
        random = stream(seed, "calibration views", number)
        for _ in range(views.count):
            homography = random_homography(photo.shape, views, random)
            view = _Described(
                change_appearance(warp(photo, homography), random), describer, finder, tried, max_keypoints
            )
            scores.append(_scores(original, view, homography, views.max_distance))
        progress(number + 1, len(images), str(image) if isinstance(image, str | Path) else f"image {number}")
    if not any(scores):
        raise DataError(
            f"images: no keypoint of {finder.name} was detected again in a synthetic view of any of "
            f"{counted(len(images), 'image')}. Use larger or more detailed photos."
        )
    return _summarise(tried, scores)


def _summarise(tried: Sequence[float], scores: Sequence[Sequence[float]]) -> Calibration:
    """Average the scores of all pairs that have some."""
    scored = [pair for pair in scores if pair]
    means = np.mean(scored, axis=0).tolist()
    trials = tuple(Trial(float(one), score) for one, score in zip(tried, means, strict=True))
    return Calibration(trials, len(scored), len(scores) - len(scored))


class _Described:
    """The keypoints of one image, and their descriptors at each magnification."""

    def __init__(
        self,
        image: NDArray[np.uint8],
        descriptor: Describer,
        detector: Detector,
        tried: Sequence[float],
        max_keypoints: int,
    ) -> None:
        self.size = image.shape
        self.frames, _ = detector.detect(image, max_keypoints)
        pyramid = Pyramid(image)
        self.descriptors: list[Tensor] = []
        for magnification in tried:
            frames = resize_frames(self.frames, magnification / detector.magnification)
            self.descriptors.append(descriptor.describe(pyramid, frames))


def _scores(image0: _Described, image1: _Described, homography: NDArray[np.float64], near: float) -> list[float]:
    """Return the score of each magnification, or no scores if the images share no keypoint."""
    keep0 = visible(image0.frames, homography, image1.size)
    # Beyond the border of the photo, the view consists of repeated pixels.
    keep1 = visible(image1.frames, np.linalg.inv(homography).astype(np.float64), image0.size)
    same = corresponding(image0.frames[keep0], image1.frames[keep1], homography, near)
    findable = int(same.any(axis=1).sum())
    if not findable:
        return []
    scores = []
    for descriptors0, descriptors1 in zip(image0.descriptors, image1.descriptors, strict=True):
        # Average Precision is computed in float64, which MPS devices lack.
        pairs, distances = (part.cpu() for part in match_descriptors(descriptors0[keep0], descriptors1[keep1]))
        correct = torch.from_numpy(same[tuple(pairs.numpy().T)])
        precision = float(average_precision(distances[None], correct[None], without_positives=0.0))
        scores.append(precision * int(correct.sum()) / findable)
    return scores
