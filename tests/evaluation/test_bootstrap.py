"""Confidence intervals have their nominal coverage, and clusters count once."""

from __future__ import annotations

import numpy as np
import pytest

from doap.errors import ArgumentError
from doap.evaluation.bootstrap import bootstrap_interval, bootstrap_mean


def test_interval_of_a_mean_equals_the_normal_approximation():
    values = np.random.default_rng(0).normal(5, 2, 400)
    found = bootstrap_mean(values, seed=0)
    half = 1.96 * values.std() / 20
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - half, abs=0.15 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.15 * half)
    assert found.units == 400


def test_nineteen_of_twenty_intervals_contain_the_true_mean():
    random = np.random.default_rng(1)
    intervals = [bootstrap_mean(random.exponential(size=80), seed, resamples=300) for seed in range(200)]
    held = sum(one.low <= 1 <= one.high for one in intervals)
    assert 0.88 <= held / 200 <= 0.99


def test_values_of_one_cluster_count_once():
    values = np.random.default_rng(2).normal(size=50)
    single, repeated = (
        bootstrap_mean(values, seed=3),
        bootstrap_mean(values.repeat(10), seed=3, clusters=np.arange(50).repeat(10)),
    )
    assert (repeated.low, repeated.high, repeated.units) == pytest.approx((single.low, single.high, 50))
    careless = bootstrap_mean(values.repeat(10), seed=3)
    assert careless.high - careless.low < 0.5 * (single.high - single.low)


def test_clusters_weigh_by_their_number_of_values():
    assert bootstrap_mean([0.0, 0.0, 0.0, 1.0], seed=0, clusters=np.array([7, 7, 7, 2])).value == 0.25


def test_weights_are_whole_numbers_that_sum_to_the_number_of_units():
    drawn = []
    found = bootstrap_interval(lambda weights: drawn.append(weights) or float(weights[0]), 6, seed=0, resamples=20)
    assert all(weights.sum() == 6 and np.array_equal(weights, weights.astype(int)) for weights in drawn)
    assert len(drawn) == 21
    assert found.value == 1
    assert 0 <= found.low <= found.high


def test_the_same_seed_gives_the_same_interval():
    values = np.arange(30.0)
    assert bootstrap_mean(values, seed=5) == bootstrap_mean(values, seed=5)
    assert bootstrap_mean(values, seed=5) != bootstrap_mean(values, seed=6)


def test_one_value_has_no_width():
    found = bootstrap_mean([0.5], seed=0)
    assert (found.low, found.value, found.high) == (0.5, 0.5, 0.5)


def test_nothing_to_resample_is_an_error():
    with pytest.raises(ArgumentError, match="values: expected a non-empty vector"):
        bootstrap_mean([], seed=0)
    with pytest.raises(ArgumentError, match="units: expected 1 or more, got 0"):
        bootstrap_interval(lambda weights: 0.0, 0, seed=0)
