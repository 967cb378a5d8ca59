"""How large a patch should be: the best magnification of a detector for a descriptor, measured on photos.

Detectors mean different things by the size of a keypoint. A patch much larger than the keypoint sees more of the scene
and leaves its surface sooner; a smaller one sees too little to be told from others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from doap.describer import Describer
from doap.detectors import Detector
from doap.errors import ArgumentError, DataError
from doap.functional import average_precision
from doap.images import Pyramid, check_grey, read_grey, resize_frames, shrink
from doap.images.correspondence import partners, within
from doap.images.synthetic_views import SyntheticViews, change_appearance, random_homography, warp
from doap.matching import match_descriptors
from doap.pipeline import describe_frames
from doap.random_streams import stream

Frames = NDArray[np.float32]

# Half octaves around what the detector has now: from a third of it to three times it.
_AROUND = tuple(2 ** (step / 2) for step in range(-3, 4))


@dataclass(frozen=True)
class Trial:
    """One magnification and its score, in 0…1."""

    magnification: float
    score: float


@dataclass(frozen=True)
class Calibration:
    """What was tried and how it did.

    Attributes:
        trials: in order of magnification.
        pairs: photos and views of them that were judged.
        skipped: pairs in which the detector found no keypoint of the photo again, so that nothing could match.
    """

    trials: tuple[Trial, ...]
    pairs: int
    skipped: int

    @property
    def best(self) -> Trial:
        """The one with the highest score; the smallest patch of equals."""
        return max(self.trials, key=lambda trial: trial.score)

    @property
    def open_ended(self) -> bool:
        """Whether the best is the first or the last that was tried, so that a better one may lie beyond."""
        return self.best in (self.trials[0], self.trials[-1])


def calibrate(
    images: Sequence[str | Path | NDArray[np.uint8]],
    descriptor: Describer,
    detector: Detector,
    magnifications: Sequence[float] | None = None,
    *,
    views: SyntheticViews | None = None,
    max_keypoints: int = 1000,
    longest_side: int = 3200,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Calibration:
    """Find the best magnification of a detector.

    Views of each photo are made up with known homographies, and keypoints are found anew in them. Those of both images
    are matched (mutual nearest neighbours) and the matches ranked by distance. A match is correct if the homography
    carries one centre to the other, within `views.max_distance` pixels of the coarser image. The score of a pair of images is

        AP = Σ over correct matches of (correct matches up to its rank) / rank, over the keypoints that have a partner

    which falls for a match that is missed, for one that is wrong, and for distances that do not tell the two apart. The
    keypoints, and so what there is to find, are the same for all magnifications; the score is the mean over pairs.

    The made-up views are of a plane, where a larger patch costs little: of two that score alike, take the smaller.

    Args:
        images: files, or grey pixels (height, width) uint8; a handful of different photos will do.
        descriptor: what the patches are for; a learned one and SIFT may differ.
        detector: whose magnification is sought. Its frames are resized, so it is asked once for each image.
        magnifications: what to try; if not given, the detector's own and half octaves around it, up to 2^±1.5.
        views: how views are made up; two of each photo if not given. A detector without orientation should be judged by
            views without much `roll`.
        max_keypoints: keypoints of an image, the strongest.
        longest_side: as for `doap.extract`.
        seed: of the views.
        progress: told how many of how many images are done.
    """
    views = views or SyntheticViews(count=2)
    tried = sorted(magnifications or (detector.magnification * step for step in _AROUND))
    if tried[0] <= 0 or not np.isfinite(tried).all():
        raise ArgumentError(f"magnifications: expected finite numbers above 0, got {tried}")
    scores: list[list[float]] = []
    for number, image in enumerate(images):
        grey = read_grey(image) if isinstance(image, str | Path) else image
        check_grey(grey)
        photo, _ = shrink(grey, longest_side)
        random = stream(seed, "calibration views", number)
        seen = _Seen(photo, descriptor, detector, tried, max_keypoints)
        for _ in range(views.count):
            homography = random_homography(photo.shape, views, random)
            view = _Seen(change_appearance(warp(photo, homography), random), descriptor, detector, tried, max_keypoints)
            scores.append(_scores(seen, view, homography, views.max_distance))
        if progress:
            progress(number + 1, len(images))
    judged = [pair for pair in scores if pair]
    if not judged:
        raise DataError(
            f"images: expected keypoints of {detector.name} that are found again in other views, got none "
            f"in {len(images)} images; give larger or more detailed photos"
        )
    means = np.mean(judged, axis=0).tolist()
    trials = tuple(Trial(float(one), score) for one, score in zip(tried, means, strict=True))
    return Calibration(trials, len(judged), len(scores) - len(judged))


class _Seen:
    """One image: its keypoints, and their descriptors at each magnification."""

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
            self.descriptors.append(describe_frames(pyramid, frames, descriptor))


def _scores(image0: _Seen, image1: _Seen, homography: NDArray[np.float64], near: float) -> list[float]:
    """The score of each magnification; none if no keypoint was found again."""
    keep0 = within(image0.frames, homography, image1.size)
    # Beyond the border of the photo its view is made of repeated pixels.
    keep1 = within(image1.frames, np.linalg.inv(homography).astype(np.float64), image0.size)
    same = partners(image0.frames[keep0], image1.frames[keep1], homography, near)
    findable = int(same.any(axis=1).sum())
    if not findable:
        return []
    scores = []
    for descriptors0, descriptors1 in zip(image0.descriptors, image1.descriptors, strict=True):
        pairs, distances = match_descriptors(descriptors0[keep0], descriptors1[keep1])
        correct = pairs.new_tensor(same[tuple(pairs.cpu().numpy().T)]).bool()
        precision = float(average_precision(distances[None], correct[None], without_positives=0.0))
        scores.append(precision * int(correct.sum()) / findable)
    return scores
