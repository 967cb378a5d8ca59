"""Confidence intervals have their nominal coverage, and clusters count once."""

import numpy as np
import pytest

from doap._support.errors import ArgumentError
from doap._support.random_streams import stream
from doap.evaluation.bootstrap import bootstrap_interval, bootstrap_mean, central_interval


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_independent_units_have_a_value_but_no_interval(count):
    values = np.arange(4.0 * count)
    clusters = np.arange(count).repeat(4)
    nothing = (None, None, count, [])
    for found in (
        bootstrap_mean(values[:count], seed=0),
        bootstrap_mean(values, seed=0, clusters=clusters),
        bootstrap_interval(lambda weights: float(weights @ values[:count]) / count, count, seed=0),
        bootstrap_interval(lambda weights: float(weights.mean()), len(values), seed=0, clusters=clusters),
    ):
        assert (found.low, found.high, found.units, found.resampled) == nothing
        assert np.isnan(found.bounds).all()
    assert bootstrap_mean(values[:count], seed=0).value == values[:count].mean()


def test_nothing_to_resample_is_an_error():
    for values in ([], 0.5, [[0.5, 1.0]]):
        with pytest.raises(ArgumentError):
            bootstrap_mean(values, seed=0)
    with pytest.raises(ArgumentError):
        bootstrap_interval(lambda weights: 0.0, 0, seed=0)


def weighted_mean(values):
    return lambda weights: float(weights @ values / weights.sum())


def test_two_stages_equal_a_loop_that_draws_clusters_and_then_values_in_them():
    """The oracle writes down the values of each resample; clusters have different sizes."""
    scenes = {"a": [0.1, 0.9, 0.4], "b": [0.5], "c": [0.2, 0.3], "d": [0.7, 0.8, 0.6, 1.0, 0.0]}
    values = np.array([value for some in scenes.values() for value in some])
    labels = [name for name, some in scenes.items() for _ in some]
    generator, medians = stream(7, "bootstrap"), []
    for _ in range(60):
        drawn = []
        for number in generator.integers(4, size=4):
            some = list(scenes.values())[number]
            drawn += [some[index] for index in generator.integers(len(some), size=len(some))]
        medians.append(float(np.median(drawn)))

    def median(weights):
        return float(np.median(np.repeat(values, weights.astype(int))))

    found = bootstrap_interval(median, len(values), 7, 60, clusters=labels)
    assert found.resampled == pytest.approx(medians, abs=1e-6)
    assert (found.low, found.high) == pytest.approx(central_interval(medians))
    assert (found.value, found.units) == (np.median(values), 4)


def test_nineteen_of_twenty_clustered_intervals_contain_the_true_mean_and_those_by_pair_do_not():
    """Twenty scenes of five pairs, whose mean varies more than the pairs of a scene."""
    random, scenes = np.random.default_rng(2), np.arange(20).repeat(5)
    held = {"scenes": 0, "pairs": 0}
    for seed in range(60):
        values = random.normal(size=20)[scenes] + 0.3 * random.normal(size=100)
        for name, clusters in (("scenes", scenes), ("pairs", None)):
            found = bootstrap_interval(weighted_mean(values), 100, seed, 100, clusters=clusters)
            held[name] += found.low <= 0 <= found.high
    assert 0.85 <= held["scenes"] / 60 <= 0.99
    assert held["pairs"] / 60 < 0.75
