"""UBC / Brown PhotoTour: false positives at 95 % recall, and the "revisited" retrieval within reference images.

    FPR95          of the list of pairs that everybody reports, `m50_100000_100000_0.txt`; the mean over the sets
    verification AP   of the same pairs, with ties by their expectation
    revisited mAP  within each reference image, all patches: each pair of an anchor and a match against the anchor's
                   nearest non-match there. The pair is right if its distance d⁺ is the smaller, d⁺ < d⁻, and the list
                   of pairs, surest first, is sorted by the ratio of the smaller distance to the greater. AP of each
                   image, where the right pairs count as positives; the mean over images

Published results are of six pairs of a training set and a test set. They are three descriptors, each judged on the two
sets it was not trained on: `trained_on` leaves its own set out of the mean, and out of the result. A descriptor that
was trained on none of them, such as SIFT, is judged on all three.

About "revisited": were the list sorted by 1 − d⁺/d⁻ itself, all right pairs would stand before all wrong ones, and any
descriptor would score 1. The public program sorts by the ratio of the smaller to the greater, as is done here. It
counts d⁺ = d⁻ as right, so a constant scores 1 there; here the anchor then guesses among the match and the non-matches
that tie. And it looks for the nearest non-match in images of more than 1,000 patches only (in others it takes the first
patch of the image); here it is the nearest in all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.checks import check_choice
from doap.data.readers import PhotoTour, read_phototour
from doap.data.readers.phototour import recognise
from doap.errors import ArgumentError, DataError
from doap.evaluation.bootstrap import bootstrap_interval, bootstrap_mean
from doap.evaluation.cached_describer import CachedDescriber
from doap.evaluation.checksum import checksum
from doap.evaluation.result import Dataset, Figure, Scores
from doap.evaluation.verification import (
    distance_histogram,
    distances_of_pairs,
    verification_curves,
    verification_figures,
)
from doap.functional.distance import table_distances
from doap.functional.metrics import SortedPairs, average_precision_of_chances
from doap.functional.pairs import rows_at_a_time
from doap.types import Progress, no_progress

PAIRS = "m50_100000_100000_0.txt"
AT_ONCE = 16_384


@dataclass(frozen=True, eq=False)
class PairedTour:
    """One set and its pairs: (P, 2) patches, and (P,) bool, whether they match."""

    tour: PhotoTour
    pairs: NDArray[np.int64]
    positive: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PhotoTourBenchmark:
    """One to three sets, ready to judge on; see `open_phototour`. Pixels are read when they are described."""

    dataset: Dataset
    protocol: dict[str, Any]
    sets: tuple[PairedTour, ...]
    revisited: bool
    name: str = "phototour"

    def judge(self, describe: CachedDescriber, seed: int) -> Scores:
        """FPR95 and AP of the pairs, and revisited retrieval where reference images are known."""
        apart: dict[str, tuple[Tensor, Tensor]] = {}
        images: dict[str, NDArray[np.float64]] = {}
        for one in self.sets:
            tour, name = one.tour, one.tour.root.name
            needed = np.arange(len(tour)) if self.revisited else np.unique(one.pairs)
            described = _describe(describe, tour, needed)
            pairs = torch.from_numpy(np.searchsorted(needed, one.pairs))
            apart[name] = distances_of_pairs(described, pairs), torch.from_numpy(one.positive)
            if self.revisited and tour.reference_images is not None:
                images[name] = revisited_precision(described, tour.points, tour.reference_images)
        figures = verification_figures({name: SortedPairs(*pairs) for name, pairs in apart.items()}, seed)
        curves = [curve for name, pairs in apart.items() for curve in verification_curves(*pairs, f", {name}")]
        distances, positive = (torch.cat(part) for part in zip(*apart.values(), strict=True))
        histogram = distance_histogram(distances, positive, whole=describe.describer.kind == "binary")
        return Scores((*figures, *_revisited_figure(images, seed)), tuple(curves), histogram)


def open_phototour(
    root: str | Path, *, trained_on: str | None = None, revisited: bool = True, progress: Progress = no_progress
) -> PhotoTourBenchmark:
    """Open PhotoTour as a benchmark.

    Args:
        root: the folder of one set, or the folder that holds liberty, notredame and yosemite, or some of them.
        trained_on: the set that the descriptor was trained on, which is left out; None leaves out none.
        revisited: judge the revisited retrieval too, where there is an interest.txt. It describes every patch, 1.5
            million in the three sets, where the pairs need about a third of them.
        progress: told which set is being read.
    """
    root = Path(root)
    folders = [root] if recognise(root) else sorted(folder for folder in root.glob("*") if recognise(folder))
    if not folders:
        raise DataError(
            f"{root}: expected a PhotoTour set such as liberty, or a folder of them, got none; check the path"
        )
    if trained_on is not None:
        check_choice(trained_on, [folder.name for folder in folders], name="trained_on")
        folders = [folder for folder in folders if folder.name != trained_on]
        if not folders:
            raise ArgumentError(f"trained_on: expected another set to judge on, got {trained_on!r} alone")
    sets = tuple(PairedTour(tour, *tour.pairs(PAIRS)) for tour in map(read_phototour, folders))

    def read_files() -> Iterator[Path]:
        for number, tour in enumerate(one.tour for one in sets):
            progress(number, len(sets), tour.root.name)
            yield from (*tour.sheets, tour.root / "info.txt", tour.root / PAIRS)
            if revisited and tour.reference_images is not None:
                yield tour.root / "interest.txt"

    protocol: dict[str, Any] = {
        "sets": [one.tour.root.name for one in sets],
        "trained on": trained_on,
        "pairs": PAIRS,
        "mean": "over the sets",
        "ties of FPR95": "pessimistic, what accepting the threshold costs; optimistic and expected as named",
        "ties of AP": "expected",
    }
    if revisited:
        protocol["revisited"] = "nearest non-match of the reference image, ratio of smaller to greater, AP by image"
        protocol["without reference images"] = [one.tour.root.name for one in sets if one.tour.reference_images is None]
    return PhotoTourBenchmark(Dataset(root.resolve().name, checksum(read_files())), protocol, sets, revisited)


def revisited_precision(described: Tensor, points: NDArray[np.int64], images: NDArray[np.int64]) -> NDArray[np.float64]:
    """AP of each reference image that has pairs of matches and non-matches; 0 where no pair is right.

    Args:
        described: (N, D) float32 or (N, D/8) uint8.
        points: (N,) the 3-D point of each patch.
        images: (N,) its reference image.
    """
    order = np.argsort(images, kind="stable")
    cuts = np.flatnonzero(np.diff(images[order])) + 1
    members = (torch.from_numpy(part) for part in np.split(order, cuts))
    found = (_image_precision(described[part], torch.from_numpy(points)[part]) for part in members)
    return np.array([precision for precision in found if precision is not None])


def _image_precision(described: Tensor, points: Tensor) -> float | None:
    ratios, chances = [], []
    for rows in torch.arange(len(points)).split(rows_at_a_time(described)):
        same = points[rows, None] == points
        distances = table_distances(described[rows], described)
        strangers = distances.masked_fill(same, torch.inf)
        nearest = strangers.min(dim=1).values
        tied = (strangers == nearest[:, None]).sum(dim=1)
        anchor, match = same.scatter(1, rows[:, None], False).nonzero().unbind(1)
        own, other = distances[anchor, match], nearest[anchor]
        # Where both are 0, neither is nearer: the ratio is 1, not 0/0.
        ratios.append(torch.where(own == other, 1, torch.minimum(own, other) / torch.maximum(own, other)))
        chances.append(torch.where(own == other, 1 / (1 + tied[anchor].double()), (own < other).double()))
    ratio, chance = torch.cat(ratios), torch.cat(chances)
    if not len(ratio) or bool((points == points[0]).all()):
        return None
    return average_precision_of_chances(ratio, chance)


def _describe(describe: CachedDescriber, tour: PhotoTour, indices: NDArray[np.int64]) -> Tensor:
    """Descriptors of some patches of a set, some at a time: the pixels of a whole set are 2 GB."""
    parts = [indices[start : start + AT_ONCE] for start in range(0, len(indices), AT_ONCE)]
    return torch.cat([describe.patches(tour.load(part)) for part in parts])


def _revisited_figure(images: dict[str, NDArray[np.float64]], seed: int) -> tuple[Figure, ...]:
    images = {name: precision for name, precision in images.items() if len(precision)}
    if not images:
        return ()
    values = np.concatenate(list(images.values()))
    # The mean over sets, of which each has another number of images.
    share = np.concatenate([np.full(len(precision), 1 / len(precision)) for precision in images.values()])
    total = bootstrap_interval(lambda weights: float((weights * share) @ values / (weights @ share)), len(values), seed)
    parts = {name: bootstrap_mean(precision, seed) for name, precision in images.items()} if len(images) > 1 else {}
    return (Figure("revisited mAP", "higher", "reference images", total, parts),)
