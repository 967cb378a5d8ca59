"""Benchmark `phototour`: UBC PhotoTour (Brown): FPR95, and the "revisited" retrieval within reference images.

    FPR95             FPR95 on the list of pairs that the literature uses, `m50_100000_100000_0.txt`; mean over sets.
    verification AP   AP of the same pairs, expected over random orders of ties.
    revisited mAP     Within each reference image, each pair of an anchor and a match competes with the anchor's
                      nearest non-match. The pair is correct if its distance d⁺ is smaller, d⁺ < d⁻. Pairs are ranked
                      by the ratio of the smaller distance to the larger. AP counts the correct pairs as positives;
                      mean over images.

Published results cover six combinations of a training and a test set. They come from three descriptors, each
evaluated on the two sets it was not trained on; `trained_on` leaves out the training set. A descriptor that was
trained on none of them, such as SIFT, is evaluated on all three.

"Revisited" differs from the public program in two ways. The program counts d⁺ = d⁻ as correct, so a constant
descriptor scores 1; here the anchor then chooses randomly among the match and the tied non-matches. The program
searches the nearest non-match only in images of more than 1,000 patches, and otherwise takes the first patch of
the image; here it is the nearest in every image. Both rank by the ratio of the smaller distance to the larger. With
1 − d⁺/d⁻, all correct pairs would come first, and every descriptor would score 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from doap._support.checks import check_choice
from doap._support.errors import ArgumentError, DataError
from doap.data.readers import PhotoTour, read_phototour
from doap.data.readers.phototour import INFO
from doap.evaluation.benchmark import BenchmarkSettings
from doap.evaluation.bootstrap import bootstrap_interval, bootstrap_mean
from doap.evaluation.candidates import Candidate, Needs
from doap.evaluation.checksum import checksum
from doap.evaluation.result import Dataset, Figure, Scores
from doap.evaluation.verification import (
    distance_histogram,
    distances_of_pairs,
    verification_curves,
    verification_figures,
)
from doap.metrics.distance import table_distances
from doap.metrics.metrics import SortedPairs, average_precision_of_chances
from doap.metrics.pairs import rows_at_a_time
from doap.types import Progress, no_progress

PAIRS = "m50_100000_100000_0.txt"
PATCHES_AT_ONCE = 16_384


@dataclass(frozen=True, eq=False)
class PairedTour:
    """One set with its pairs: (P, 2) patches, and (P,) bool, whether they match."""

    tour: PhotoTour
    pairs: NDArray[np.int64]
    positive: NDArray[np.bool_]

    @property
    def name(self) -> str:
        """Name of the set, such as `liberty`."""
        return self.tour.root.name


class PhotoTourBenchmark:
    """One to three sets of PhotoTour. Pixels are read when they are described.

    `root` is the folder of one set, or a folder of liberty, notredame and yosemite, or some of them.
    """

    class Settings(BenchmarkSettings):
        """Settings of the benchmark `phototour`."""

        trained_on: str | None = Field(None, description="Set that the descriptor was trained on; it is left out.")
        revisited: bool = Field(
            True,
            description="Whether to score the revisited retrieval on sets with an interest.txt. It describes all "
            "patches, 1.5 million in the three sets; the pairs need about a third of them.",
        )

    name = "phototour"
    needs: Needs = "patches"

    def __init__(self, root: str | Path, /, *, progress: Progress = no_progress, **settings: object) -> None:
        root, chosen = Path(root), self.Settings.parse(settings)
        tours = [read_phototour(folder) for folder in _find_sets(root, chosen.trained_on)]
        self.sets = tuple(PairedTour(tour, *tour.pairs(PAIRS)) for tour in tours)
        self.revisited = chosen.revisited
        self.dataset = Dataset(root.resolve().name, checksum(self._files(progress)))
        self.protocol: dict[str, Any] = {
            "sets": [one.name for one in self.sets],
            "trained on": chosen.trained_on,
            "pairs": PAIRS,
            "mean": "over the sets",
            "ties of FPR95": "pessimistic, what accepting the threshold costs; optimistic and expected as named",
            "ties of AP": "expected",
            "resampled": "pairs within the sets; the sets are fixed",
        }
        if self.revisited:
            without = [one.name for one in self.sets if one.tour.reference_images is None]
            self.protocol |= {
                "revisited": "nearest non-match of the reference image, ratio of smaller to greater, AP by image",
                "without reference images": without,
                "resampled for revisited": "reference images within the sets; the sets are fixed",
            }

    def evaluate(self, candidate: Candidate, seed: int) -> Scores:
        """Score the pairs, and the revisited retrieval where reference images are known."""
        pairs: dict[str, tuple[Tensor, Tensor]] = {}
        image_precision: dict[str, NDArray[np.float64]] = {}
        for one in self.sets:
            tour = one.tour
            needed = np.arange(len(tour)) if self.revisited else np.unique(one.pairs)
            descriptors = _describe(candidate, tour, needed)
            rows = torch.from_numpy(np.searchsorted(needed, one.pairs))
            pairs[one.name] = distances_of_pairs(descriptors, rows), torch.from_numpy(one.positive)
            if self.revisited and tour.reference_images is not None:
                image_precision[one.name] = revisited_precision(descriptors, tour.points, tour.reference_images)
        figures = verification_figures({name: SortedPairs(*some) for name, some in pairs.items()}, seed)
        curves = [curve for name, some in pairs.items() for curve in verification_curves(*some, f", {name}")]
        distances, positive = (torch.cat(part) for part in zip(*pairs.values(), strict=True))
        histogram = distance_histogram(distances, positive, whole=candidate.kind == "binary")
        return Scores((*figures, *_revisited_figure(image_precision, seed)), tuple(curves), histogram)

    def _files(self, progress: Progress) -> Iterator[Path]:
        """Yield the files that the figures depend on."""
        for number, tour in enumerate(one.tour for one in self.sets):
            progress(number, len(self.sets), tour.root.name)
            yield from (*tour.sheets, tour.root / "info.txt", tour.root / PAIRS)
            if self.revisited and tour.reference_images is not None:
                yield tour.root / "interest.txt"


def revisited_precision(
    descriptors: Tensor, points: NDArray[np.int64], images: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the AP of each reference image that has matches and non-matches; 0 if no pair is correct.

    Args:
        descriptors: (N, D) float32 or (N, D/8) uint8.
        points: (N,) 3-D point of each patch.
        images: (N,) its reference image.
    """
    order = np.argsort(images, kind="stable")
    cuts = np.flatnonzero(np.diff(images[order])) + 1
    members = (torch.from_numpy(part) for part in np.split(order, cuts))
    found = (_image_precision(descriptors[part], torch.from_numpy(points)[part]) for part in members)
    return np.array([precision for precision in found if precision is not None])


def _image_precision(descriptors: Tensor, points: Tensor) -> float | None:
    """Return the AP of one reference image; None without matches or without non-matches."""
    ratios, chances = [], []
    for rows in torch.arange(len(points)).split(rows_at_a_time(descriptors)):
        same = points[rows, None] == points
        distances = table_distances(descriptors[rows], descriptors)
        to_non_matches = distances.masked_fill(same, torch.inf)
        nearest = to_non_matches.min(dim=1).values
        tied = (to_non_matches == nearest[:, None]).sum(dim=1)
        anchor, match = same.scatter(1, rows[:, None], False).nonzero().unbind(1)
        to_match, to_non_match = distances[anchor, match], nearest[anchor]
        equal = to_match == to_non_match
        ratio = torch.minimum(to_match, to_non_match) / torch.maximum(to_match, to_non_match)
        # The ratio of two zero distances is 1, not 0/0.
        ratios.append(torch.where(equal, 1, ratio))
        chances.append(torch.where(equal, 1 / (1 + tied[anchor].double()), (to_match < to_non_match).double()))
    ratio, chance = torch.cat(ratios), torch.cat(chances)
    if not len(ratio) or bool((points == points[0]).all()):
        return None
    return average_precision_of_chances(ratio, chance)


def _find_sets(root: Path, trained_on: str | None) -> Sequence[Path]:
    """Return the folders of the sets at the root, without the one that the descriptor was trained on."""
    folders = [root] if (root / INFO).is_file() else sorted(info.parent for info in root.glob(f"*/{INFO}"))
    if not folders:
        raise DataError(f"{root}: expected a PhotoTour set such as liberty, or a folder of them. Check the path.")
    if trained_on is None:
        return folders
    check_choice(trained_on, [folder.name for folder in folders], name="trained_on")
    remaining = [folder for folder in folders if folder.name != trained_on]
    if not remaining:
        raise ArgumentError(f"trained_on: no set is left to evaluate on without {trained_on!r}.")
    return remaining


def _describe(candidate: Candidate, tour: PhotoTour, indices: NDArray[np.int64]) -> Tensor:
    """Describe some patches of a set in chunks: the pixels of a whole set take 2 GB."""
    parts = [indices[start : start + PATCHES_AT_ONCE] for start in range(0, len(indices), PATCHES_AT_ONCE)]
    return torch.cat([candidate.describe_patches(tour.load(part)) for part in parts])


def _revisited_figure(image_precision: dict[str, NDArray[np.float64]], seed: int) -> tuple[Figure, ...]:
    """Return the mean over sets of the mean AP over reference images; nothing if no set has any."""
    by_set = {name: precision for name, precision in image_precision.items() if len(precision)}
    if not by_set:
        return ()
    values = np.concatenate(list(by_set.values()))
    # Every set weighs the same, whatever its number of images.
    share = np.concatenate([np.full(len(precision), 1 / len(precision)) for precision in by_set.values()])
    total = bootstrap_interval(lambda weights: float((weights * share) @ values / (weights @ share)), len(values), seed)
    parts = {name: bootstrap_mean(precision, seed) for name, precision in by_set.items()} if len(by_set) > 1 else {}
    return (Figure("revisited mAP", "higher", "reference images", total, parts),)
