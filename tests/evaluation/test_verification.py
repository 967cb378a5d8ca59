"""Verification: figures, curves and histograms of labelled pairs."""

import itertools

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from doap.evaluation.bootstrap import bootstrap_interval
from doap.evaluation.verification import (
    distance_histogram,
    verification_scores,
)
from doap.metrics import average_precision


def pairs_of(generator, groups=60):
    """Return all pairs inside groups of three, and random pairs across groups."""
    rows = torch.arange(3 * groups).view(groups, 3)
    positives = torch.cat([rows[:, list(two)] for two in itertools.combinations(range(3), 2)])
    negatives = torch.randint(3 * groups, (400, 2), generator=generator)
    return positives, negatives[negatives[:, 0] // 3 != negatives[:, 1] // 3]


def noisy_groups(generator, groups=60):
    centres = torch.randn(groups, 1, 32, generator=generator)
    return normalize(centres + torch.randn(groups, 3, 32, generator=generator), dim=2).flatten(0, 1)


def figure(scores, name):
    return next(one for one in scores.figures if one.name == name)


@pytest.fixture(scope="module")
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="module")
def real(generator):
    return noisy_groups(generator), *pairs_of(generator)


@pytest.fixture(scope="module")
def scores(real):
    return verification_scores(*real, seed=0)


def slow_distances(real):
    described, positives, negatives = real
    pairs = [*positives.tolist(), *negatives.tolist()]
    distances = [float((described[a].double() - described[b].double()).norm()) for a, b in pairs]
    return np.array(distances), np.arange(len(pairs)) < len(positives)


def test_fpr95_equals_a_scan_of_all_thresholds(real, scores):
    distances, positive = slow_distances(real)
    near, far = distances[positive], distances[~positive]
    scanned = min((far <= threshold).mean() for threshold in near if (near <= threshold).mean() >= 0.95)
    assert figure(scores, "FPR95").total.value == pytest.approx(scanned)


def test_collapsed_descriptor_scores_chance(real):
    _, positives, negatives = real
    constant = normalize(torch.ones(180, 32)) + 1e-9 * torch.randn(180, 32)
    scores = verification_scores(constant, positives, negatives, seed=0)
    share = len(positives) / (len(positives) + len(negatives))
    assert figure(scores, "verification AP").total.value == pytest.approx(share, abs=0.01)
    values = [figure(scores, name).total.value for name in ("FPR95 optimistic", "FPR95 expected", "FPR95")]
    assert values == pytest.approx([0, 0.95, 1], abs=0.01)


def test_intervals_resample_the_scenes_of_the_pairs(real):
    """Compare with the AP of copies of the pairs."""
    described, positives, negatives = real
    scenes = np.arange(len(described)) // 18
    distances, positive = slow_distances(real)
    of_pair = scenes[torch.cat([positives, negatives])[:, 0].numpy()]

    def precision(weights):
        drawn = np.repeat(np.arange(len(distances)), weights.astype(int))
        return float(average_precision(torch.tensor(distances[drawn])[None], torch.tensor(positive[drawn])[None]))

    expected = bootstrap_interval(precision, len(distances), 0, clusters=of_pair)
    found = figure(verification_scores(*real, seed=0, scenes=scenes), "verification AP").total
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-6)


@pytest.mark.parametrize(("largest", "whole"), [(1.7, False), (40, True), (256, True), (0, False), (0, True)])
def test_histogram_counts_every_pair_once(generator, largest, whole):
    distances = largest * torch.rand(500, generator=generator)
    distances = distances.round() if whole else distances
    positive = torch.arange(500) < 100
    histogram = distance_histogram(distances, positive, whole=whole)
    assert len(histogram.edges) - 1 == len(histogram.matches) == len(histogram.others) <= 65
    assert sum(histogram.matches) == pytest.approx(1)
    assert sum(histogram.others) == pytest.approx(1)
