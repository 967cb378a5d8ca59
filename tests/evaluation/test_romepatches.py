"""The benchmark `romepatches` on small halves in its format, whose patches encode their group."""

from dataclasses import replace

import numpy as np
import pytest

from data.readers import formats
from doap._support.errors import DataError
from doap.evaluation.candidates import CONTROLS, open_candidate
from doap.evaluation.romepatches import RomePatchesBenchmark
from oracles.coded_patches import coded_patches, noisy, perfect
from oracles.ranking import textbook_ap

SIDE = 51
GROUPS, PER_GROUP = 30, 4


def write_half(root, split, seed):
    """Write one query of each group first, as in the release, then the database in random order."""
    others = np.random.default_rng(seed).permutation(np.repeat(np.arange(GROUPS), PER_GROUP - 1))
    labels = np.concatenate([np.arange(GROUPS), others])
    patches = coded_patches(labels, SIDE, seed)
    formats.write_romepatches(root, split, patches, labels.tolist(), queries=GROUPS)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rome")
    write_half(folder, "train", 0)
    write_half(folder, "test", 1)
    return folder


@pytest.fixture(scope="module")
def rome(root):
    return RomePatchesBenchmark(root)


def figures(benchmark, describer):
    return {figure.name: figure for figure in benchmark.evaluate(open_candidate(describer), seed=0).figures}


def test_perfect_descriptor_scores_one(rome):
    for figure in figures(rome, perfect(SIDE)).values():
        assert [figure.total.value, *(part.value for part in figure.parts.values())] == pytest.approx([1, 1, 1])


@pytest.mark.parametrize("name", CONTROLS)
def test_controls_score_chance(rome, name):
    for figure in figures(rome, CONTROLS[name]()).values():
        # Three matches among 90 in random order.
        assert figure.total.value < 0.12


def test_map_equals_a_loop_over_queries(rome):
    split = rome.halves["test"]
    described = open_candidate(noisy(SIDE)).describe_patches(split.patches).double()
    precision = []
    for query in range(GROUPS):
        ranked = sorted(
            range(GROUPS, 120),
            key=lambda item: float((described[query] - described[item]).norm()),
        )
        precision.append(textbook_ap([bool(split.labels[item] == split.labels[query]) for item in ranked]))
    figure = figures(rome, noisy(SIDE))["mAP"]
    assert 0.2 < np.mean(precision) < 0.99
    assert figure.total.value == pytest.approx(np.mean(precision), abs=1e-6)


def test_total_is_of_the_test_half_and_over_groups(rome):
    for figure in figures(rome, noisy(SIDE)).values():
        assert list(figure.parts) == ["train", "test"]
        assert replace(figure.total, resampled=[]) == figure.parts["test"] != figure.parts["train"]
        assert (figure.unit, figure.total.units) == ("groups", GROUPS)
        assert figure.total.low < figure.total.value < figure.total.high


def test_queries_without_a_match_are_left_out_and_counted(tmp_path):
    labels = [7, 1, 2, 1, 1, 2, 9]
    formats.write_romepatches(tmp_path, "test", coded_patches(np.array(labels), SIDE), labels, queries=3)
    rome = RomePatchesBenchmark(tmp_path)
    assert rome.protocol["queries without a match, left out"] == {"test": 1}
    assert figures(rome, perfect(SIDE))["mAP"].total.units == 2


def test_half_without_matches_is_refused(tmp_path):
    labels = [1, 2, 3, 4]
    formats.write_romepatches(tmp_path, "test", coded_patches(np.array(labels), SIDE), labels, queries=2)
    with pytest.raises(DataError):
        RomePatchesBenchmark(tmp_path)
