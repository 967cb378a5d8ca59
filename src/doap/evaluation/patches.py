"""Benchmark `patches`: retrieval, matching and verification on any patch-group set.

Groups are drawn evenly over the scenes of the set, with at most k patches each.

    retrieval      Each patch queries all the others. AP is expected over random orders of ties.
    matching       In each scene, the first patch of every group is matched with its nearest neighbour among the
                   second patches. A match is correct if both patches are of one group. AP ranks the matches by
                   distance and counts every group as a positive. The total is the mean over scenes.
    verification   Pairs of one group against random pairs of different groups: FPR95 and AP.

Ignored pairs (see `Batches`) count in none of the three. The groups of a scene come from the same photos, so they are
not independent: intervals resample scenes, and groups within each drawn scene; for verification, pairs within the
scene of their first patch. The interval of one scene resamples its groups.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from doap.data.store import open_set
from doap.evaluation.benchmark import BenchmarkSettings, dataset_of
from doap.evaluation.bootstrap import bootstrap_interval, bootstrap_mean
from doap.evaluation.candidates import Candidate, Needs
from doap.evaluation.result import Figure, Scores
from doap.evaluation.validation import PatchSample, RetrievalResult, retrieve
from doap.evaluation.verification import verification_scores
from doap.metrics import average_precision, table_distances
from doap.metrics.pairs import QueryPairs
from doap.types import Progress, Relation, no_progress

PER_GROUP = 4
"""Maximum number of patches per group."""
SAMPLE_SEED = 0
"""The sample is part of the protocol and does not depend on the seed of the run."""


class PatchesBenchmark:
    """A sample of a patch-group set. `root` is its folder."""

    class Settings(BenchmarkSettings):
        """Settings of the benchmark `patches`."""

        groups: int = Field(4000, ge=2, description="Number of groups to draw; all of them if the set has fewer.")
        pairs: int = Field(100_000, ge=1, description="Maximum number of positive pairs and of negative pairs.")

    name = "patches"
    needs: Needs = "patches"

    def __init__(self, root: str | Path, /, *, progress: Progress = no_progress, **settings: object) -> None:
        chosen = self.Settings.parse(settings)
        patch_set, name = open_set(root), Path(root).name
        progress(0, 1, name)
        self.sample = PatchSample.draw(patch_set, chosen.groups, PER_GROUP, chosen.pairs, seed=SAMPLE_SEED)
        # meta.json contains the checksums of the patches and the groups.
        self.dataset = dataset_of(root, [patch_set.path / "meta.json"], name)
        self.protocol: dict[str, Any] = {
            "groups": len(self.sample.relation.groups.unique()),
            "patches": len(self.sample),
            "positive pairs": len(self.sample.positives),
            "negative pairs": len(self.sample.negatives),
            "patches of a group": f"at most {PER_GROUP}",
            "ties": "expected",
            "sample seed": SAMPLE_SEED,
            "resampled": "scenes, and groups within scenes; pairs of verification by the scene of their first patch",
        }
        progress(1, 1, name)

    def evaluate(self, candidate: Candidate, seed: int) -> Scores:
        """Score retrieval, matching and verification."""
        sample = self.sample
        descriptors = candidate.describe_patches(sample.patches)
        retrieved = retrieve(descriptors, sample.relation)
        verification = verification_scores(
            descriptors, sample.positives, sample.negatives, seed, scenes=sample.scene_ids
        )
        figures = (
            self._retrieval_figure(retrieved, seed),
            self._matching_figure(descriptors, seed),
            *verification.figures,
        )
        return Scores(figures, verification.curves, verification.histogram)

    def _retrieval_figure(self, retrieved: RetrievalResult, seed: int) -> Figure:
        """Return the mean AP of all queries, and by scene."""
        queries, precision = retrieved.triplets[:, 0], retrieved.average_precision
        groups, scenes = self.sample.relation.groups.numpy()[queries], self.sample.scene_ids[queries]
        parts = {}
        for index, scene in enumerate(self.sample.scene_names):
            inside = scenes == index
            if inside.any():
                parts[scene] = bootstrap_mean(precision[inside], seed, clusters=groups[inside])
        _, first, group = np.unique(groups, return_index=True, return_inverse=True)
        sums, counts = np.bincount(group, precision), np.bincount(group)

        def mean_over_queries(weights: NDArray[np.float64]) -> float:
            return float((weights @ sums) / (weights @ counts))

        total = bootstrap_interval(mean_over_queries, len(sums), seed, clusters=scenes[first])
        return Figure("retrieval mAP", "higher", "scenes", total, parts, part_unit="groups")

    def _matching_figure(self, descriptors: Tensor, seed: int) -> Figure:
        """Return the AP of nearest neighbours by scene, and its mean over scenes."""
        matches = {}
        for index, scene in enumerate(self.sample.scene_names):
            first, second = _first_two_of_each_group(self.sample, index)
            if len(first) > 1:
                matches[scene] = match_nearest(descriptors, self.sample.relation, first, second)
        sizes = [len(distances) for distances, _ in matches.values()]

        def mean_over_scenes(weights: NDArray[np.float64]) -> float:
            total = drawn = 0.0
            for found, weight in zip(matches.values(), np.split(weights, np.cumsum(sizes)[:-1]), strict=True):
                # A scene that was drawn twice counts twice.
                if times := float(weight.mean()):
                    total += times * match_precision(*found, weight)
                    drawn += times
            return total / drawn

        scene_of_group = np.repeat(np.arange(len(sizes)), sizes)
        total = bootstrap_interval(mean_over_scenes, sum(sizes), seed, clusters=scene_of_group)
        parts = {
            scene: bootstrap_interval(partial(match_precision, *found), len(found[0]), seed)
            for scene, found in matches.items()
        }
        return Figure("matching mAP", "higher", "scenes", total, parts, part_unit="groups")


def match_nearest(
    descriptors: Tensor, relation: Relation, first: NDArray[np.int64], second: NDArray[np.int64]
) -> tuple[Tensor, Tensor]:
    """Match each of `first` (N,) items with its nearest of `second` (N,), which it does not ignore.

    Returns:
        (N,) distances and (N,) bool, whether both items are of one group. The first of equal distances counts.
    """
    queries, gallery = (torch.from_numpy(items) for items in (first, second))
    same_group = relation.groups[queries, None] == relation.groups[gallery]
    allowed = torch.ones(len(queries), len(relation), dtype=torch.bool)
    QueryPairs(relation, 0, len(relation)).fill_ignored(allowed, queries, False)
    distances = table_distances(descriptors[queries], descriptors[gallery])
    nearest = distances.masked_fill(~(allowed[:, gallery] | same_group), torch.inf).min(dim=1)
    return nearest.values, same_group[torch.arange(len(queries)), nearest.indices]


def match_precision(distances: Tensor, correct: Tensor, weights: NDArray[np.float64]) -> float:
    """Return the AP of N matches ranked by distance, where every query counts as a positive, `weights` times."""
    times = torch.from_numpy(weights).long()
    distances, correct = distances.repeat_interleave(times), correct.repeat_interleave(times)
    precision = average_precision(distances[None], correct[None], without_positives=0.0)
    return float(precision) * float(correct.double().mean())


def _first_two_of_each_group(sample: PatchSample, scene: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first (N,) and second (N,) patches of each group of a scene; every group has two or more."""
    inside = np.flatnonzero(sample.scene_ids == scene)
    first = inside[np.unique(sample.relation.groups.numpy()[inside], return_index=True)[1]]
    return first, first + 1
