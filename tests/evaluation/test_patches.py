"""The benchmark `patches`: figures equal slow loops, controls score chance, an oracle scores one."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

from doap._support.random_streams import stream
from doap.describer import from_function
from doap.evaluation.candidates import CONTROLS, open_candidate
from doap.evaluation.patches import PatchesBenchmark, match_nearest, match_precision
from doap.evaluation.validation import retrieve
from doap.metrics import average_precision
from oracles.coded_patches import write_units
from oracles.listwise import relation_tables

SIDE = 32


def sizes(groups):
    return np.random.default_rng(groups).integers(2, 5, groups).tolist()


def group_of(patches):
    pixels = (patches[:, 0, 0, :2] * 255).round().long()
    return pixels[:, 0] * 256 + pixels[:, 1]


def oracle(patches):
    return torch.nn.functional.one_hot(group_of(patches) % 256, 256).float()


def weak(patches):
    """Describe patches better than chance and far from perfect, with ties."""
    coarse = torch.nn.functional.one_hot(group_of(patches) // 4 % 64, 64).float()
    return torch.cat([coarse, (patches.flatten(1)[:, 8:40] > 0.5).float() / 4], dim=1)


def weak_bits(patches):
    return np.packbits(weak(patches).numpy() > 0, axis=1)


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    """Two scenes: one with two groups that ignore each other, one with two photos whose groups ignore each other."""
    units = [("wall", "tracks", sizes(40)), ("graf", "a.png", sizes(30)), ("graf", "b.png", sizes(30))]
    return PatchesBenchmark(
        write_units(tmp_path_factory.mktemp("sets") / "own", SIDE, units, ignore=[(0, 1)]), pairs=1000
    )


@functools.cache
def evaluate(benchmark, function):
    result = benchmark.evaluate(open_candidate(from_function(function)), seed=0)
    return {figure.name: figure for figure in result.figures}


@functools.cache
def table(benchmark, function):
    """Return the (M, M) distances, computed one by one."""
    described = np.asarray(function(torch.from_numpy(benchmark.sample.patches)[:, None] / 255))
    if described.dtype == np.uint8:
        bits = np.unpackbits(described, axis=1).astype(np.int64)
        return np.abs(bits[:, None] - bits).sum(2).astype(np.float64)
    return np.sqrt(((described[:, None].astype(np.float64) - described) ** 2).sum(2)).round(6)


@pytest.mark.parametrize("function", [weak, weak_bits])
def test_retrieval_equals_a_slow_loop(benchmark, function):
    figures = evaluate(benchmark, function)
    distances, (positive, distractor) = table(benchmark, function), relation_tables(benchmark.sample.relation)
    values = []
    for query in range(len(distances)):
        counted = positive[query] | distractor[query]
        row = torch.from_numpy(distances[query])[counted][None]
        values.append(float(average_precision(row, positive[query][counted][None])))
    assert figures["retrieval mAP"].total.value == pytest.approx(np.mean(values), abs=1e-9)
    of_wall = [value for value, scene in zip(values, benchmark.sample.scene_ids, strict=True) if scene == 0]
    assert figures["retrieval mAP"].parts["wall"].value == pytest.approx(np.mean(of_wall), abs=1e-9)


@pytest.mark.parametrize("function", [weak, weak_bits])
def test_matching_equals_a_slow_loop(benchmark, function):
    figures = evaluate(benchmark, function)
    sample, distances = benchmark.sample, table(benchmark, function)
    groups, (_, distractor) = sample.relation.groups.tolist(), relation_tables(sample.relation)
    by_scene = {}
    for index, scene in enumerate(sample.scene_names):
        members = {}
        for item, group in enumerate(groups):
            if sample.scene_ids[item] == index:
                members.setdefault(group, []).append(item)
        firsts, seconds = ([items[k] for items in members.values()] for k in (0, 1))
        answers = []
        for first in firsts:
            allowed = [item for item in seconds if groups[item] == groups[first] or distractor[first, item]]
            found = min(allowed, key=lambda item: distances[first, item])
            answers.append((distances[first, found], groups[found] == groups[first]))
        apart, right = (torch.tensor(column)[None] for column in zip(*answers, strict=True))
        precision = float(average_precision(apart, right, without_positives=0.0))
        by_scene[scene] = precision * float(right.double().mean())
    assert figures["matching mAP"].parts["graf"].value == pytest.approx(by_scene["graf"], abs=1e-9)
    assert figures["matching mAP"].total.value == pytest.approx(np.mean(list(by_scene.values())), abs=1e-9)


def test_oracle_scores_one(benchmark):
    figures = evaluate(benchmark, oracle)
    assert figures["retrieval mAP"].total.value == pytest.approx(1)
    assert figures["matching mAP"].total.value == pytest.approx(1)
    assert figures["verification AP"].total.value == pytest.approx(1)
    assert figures["FPR95"].total.value == 0


@pytest.mark.parametrize("name", CONTROLS)
def test_controls_score_chance(benchmark, name):
    result = benchmark.evaluate(open_candidate(CONTROLS[name]()), seed=0)
    figures = {figure.name: figure.total for figure in result.figures}
    # One to three matches among some 200 patches, one correct answer among 30 to 60.
    assert figures["retrieval mAP"].value < 0.06
    assert figures["matching mAP"].value < 0.01
    assert figures["FPR95"].value > 0.85
    share = len(benchmark.sample.positives) / (len(benchmark.sample.positives) + len(benchmark.sample.negatives))
    assert figures["verification AP"].value == pytest.approx(share, abs=0.02)


def test_retrieval_resamples_scenes_then_groups_with_all_their_queries(tmp_path):
    """The oracle pools the queries of the drawn groups of the drawn scenes."""
    units = [(scene, "a.png", sizes(number)) for scene, number in (("wall", 6), ("graf", 9), ("boat", 4))]
    benchmark = PatchesBenchmark(write_units(tmp_path / "three", SIDE, units), pairs=200)
    described = open_candidate(from_function(weak)).describe_patches(benchmark.sample.patches)
    retrieved = retrieve(described, benchmark.sample.relation)
    scenes: dict[int, dict[int, list[float]]] = {}
    for query, precision in zip(retrieved.triplets[:, 0], retrieved.average_precision, strict=True):
        scene, group = int(benchmark.sample.scene_ids[query]), int(benchmark.sample.relation.groups[query])
        scenes.setdefault(scene, {}).setdefault(group, []).append(float(precision))
    ordered = [[groups[group] for group in sorted(groups)] for _, groups in sorted(scenes.items())]
    generator, means = stream(0, "bootstrap"), []
    for _ in range(200):
        drawn: list[float] = []
        for scene in generator.integers(3, size=3):
            groups = ordered[scene]
            for group in generator.integers(len(groups), size=len(groups)):
                drawn += groups[group]
        means.append(np.mean(drawn))
    figures = evaluate(benchmark, weak)
    assert figures["retrieval mAP"].total.resampled == pytest.approx(means, abs=1e-6)


def test_a_wrong_match_lowers_recall_and_precision():
    distances, right = torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([True, False, True, False])
    assert match_precision(distances, right, np.ones(4)) == pytest.approx((1 + 2 / 3) / 4)
    assert match_precision(distances, right, np.array([2.0, 0, 0, 2])) == pytest.approx((1 + 1) / 4)
    assert match_precision(distances, ~right | right & False, np.array([0.0, 1, 0, 1])) == 1


def test_ties_go_to_the_first_item(benchmark):
    first, second = np.array([0, 40]), np.array([1, 41])
    described = torch.ones(len(benchmark.sample.patches), 4)
    distances, right = match_nearest(described, benchmark.sample.relation, first, second)
    assert distances.tolist() == [0, 0]
    assert right.tolist() == [True, False]
