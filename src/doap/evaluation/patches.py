"""Any patch-group set as a benchmark: retrieval, matching and verification, by place.

Of S groups, as many from each place as far as they go, each gives at most k patches.

    retrieval      each patch queries all the others; AP with ties by their expectation
    matching       in each place, the first patch of each group looks for its nearest among the second ones, which is
                   right if it is of the same group; AP of the answers by distance, all groups counting as positives
    verification   pairs of one group against random pairs of different ones: AP, and false positives at 95 % recall

Pairs that say nothing (see `Batches`) are left out of all three. Intervals are over groups; for pairs, over pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.data.store import open_set
from doap.evaluation.bootstrap import bootstrap_interval, bootstrap_mean
from doap.evaluation.cached_describer import CachedDescriber
from doap.evaluation.checksum import checksum
from doap.evaluation.result import Dataset, Figure, Gallery, Scores
from doap.evaluation.verification import score_pairs
from doap.functional import average_precision, table_distances
from doap.functional.pairs import QueryPairs
from doap.types import Progress, Relation, no_progress
from doap.validation.retrieval import Answers, foremost, retrieve
from doap.validation.sample import PatchSample

SHOWN = 12
"""Best and worst matches to keep for looking at."""


@dataclass(frozen=True, eq=False)
class PatchesBenchmark:
    """A sample of a set, ready to judge on; see `open_patches`."""

    dataset: Dataset
    protocol: dict[str, Any]
    sample: PatchSample
    name: str = "patches"

    def judge(self, describe: CachedDescriber, seed: int) -> Scores:
        """Retrieval, matching and verification of one describer."""
        sample = self.sample
        described = describe.patches(sample.patches)
        answers = retrieve(described, sample.relation)
        queries = answers.triples[:, 0]
        groups, places = sample.relation.groups.numpy()[queries], sample.places[queries]
        parts = {
            place: bootstrap_mean(answers.precision[here], seed, clusters=groups[here])
            for index, place in enumerate(sample.scene_names)
            if (here := places == index).any()
        }
        total = bootstrap_mean(answers.precision, seed, clusters=groups)
        retrieval = Figure("retrieval mAP", "higher", "groups", total, parts)
        verification = score_pairs(described, sample.positives, sample.negatives, seed)
        figures = (retrieval, self._matching(described, seed), *verification.figures)
        return Scores(figures, verification.curves, verification.histogram, gallery(answers, sample))

    def _matching(self, described: Tensor, seed: int) -> Figure:
        """AP of the nearest neighbours in each place, and its mean over the places."""
        answers = {}
        for index, place in enumerate(self.sample.scene_names):
            first, second = _two_of_each(self.sample, index)
            if len(first) > 1:
                answers[place] = nearest(described, self.sample.relation, first, second)
        cuts = np.cumsum([len(distances) for distances, _ in answers.values()])[:-1]

        def mean_over_places(weights: NDArray[np.float64]) -> float:
            values = zip(answers.values(), np.split(weights, cuts), strict=True)
            return float(np.mean([answer_precision(*answer, weight) for answer, weight in values]))

        total = bootstrap_interval(mean_over_places, sum(len(distances) for distances, _ in answers.values()), seed)
        parts = {
            place: bootstrap_interval(partial(answer_precision, *answer), len(answer[0]), seed)
            for place, answer in answers.items()
        }
        return Figure("matching mAP", "higher", "groups", total, parts)


def open_patches(
    root: str | Path, *, groups: int = 4000, per_group: int = 4, pairs: int = 100_000, progress: Progress = no_progress
) -> PatchesBenchmark:
    """Open a patch-group set as a benchmark.

    Args:
        root: the set.
        groups: how many to draw; all, where the set has fewer.
        per_group: most patches of a group.
        pairs: most positive and most negative pairs.
        progress: told when the patches are being read.
    """
    patch_set = open_set(root)
    progress(0, 1, Path(root).name)
    # What is drawn belongs to the protocol, so it has a seed of its own.
    sample = PatchSample.draw(patch_set, groups, per_group, pairs, seed=0)
    protocol = {
        "groups": len(sample.relation.groups.unique()),
        "patches": len(sample),
        "positive pairs": len(sample.positives),
        "negative pairs": len(sample.negatives),
        "patches of a group": f"at most {per_group}",
        "ties": "expected",
        "sample seed": 0,
    }
    progress(1, 1, Path(root).name)
    # The checksums of patches and groups stand in there.
    return PatchesBenchmark(Dataset(Path(root).name, checksum([patch_set.path / "meta.json"])), protocol, sample)


def nearest(
    described: Tensor, relation: Relation, first: NDArray[np.int64], second: NDArray[np.int64]
) -> tuple[Tensor, Tensor]:
    """The distance (N,) of each of `first` (N,) items to its nearest of `second` (N,), and whether it is of its group.

    What the relation ignores is not looked at; of equal distances the first counts.
    """
    asked, answering = (torch.from_numpy(items) for items in (first, second))
    matching = relation.groups[asked, None] == relation.groups[answering]
    everyone = torch.ones(len(asked), len(relation), dtype=torch.bool)
    QueryPairs(relation, 0, len(relation)).fill_ignored(everyone, asked, False)
    apart = table_distances(described[asked], described[answering])
    found = apart.masked_fill(~(everyone[:, answering] | matching), torch.inf).min(dim=1)
    return found.values, matching[torch.arange(len(asked)), found.indices]


def answer_precision(distances: Tensor, right: Tensor, weights: NDArray[np.float64]) -> float:
    """AP of answers in order of distance, where every query counts as a positive, answered rightly or not.

    Args:
        distances: (N,).
        right: (N,) bool.
        weights: (N,) how often each counts, whole numbers.
    """
    times = torch.from_numpy(weights).long()
    distances, right = distances.repeat_interleave(times), right.repeat_interleave(times)
    precision = average_precision(distances[None], right[None], without_positives=0.0)
    return float(precision) * float(right.double().mean())


def gallery(answers: Answers, sample: PatchSample, number: int = SHOWN) -> Gallery:
    """Right answers by the greatest margin, and wrong ones; each group shows itself once."""
    (best, near), (worst, apart) = (foremost(answers, sample, number, wrong=wrong) for wrong in (False, True))
    return Gallery(sample.patches[best[:, :2]], sample.patches[worst], near[:, 0], apart)


def _two_of_each(sample: PatchSample, place: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(N,) and (N,): the first two patches of each group of a place; groups lie together and have two or more."""
    here = np.flatnonzero(sample.places == place)
    first = here[np.unique(sample.relation.groups.numpy()[here], return_index=True)[1]]
    return first, first + 1
