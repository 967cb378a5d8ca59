"""The benchmark `phototour` on small sets in its format, whose patches encode their point."""

import numpy as np
import pytest

from data.readers import formats
from doap.evaluation.candidates import CONTROLS, open_candidate
from doap.evaluation.phototour import PhotoTourBenchmark
from oracles.coded_patches import coded_patches, noisy, perfect

SIDE = 64
POINTS = 80
PER_POINT = 3


def write_set(root, seed):
    """Write points of three patches in four reference images, with equally many matching and non-matching pairs."""
    generator = np.random.default_rng(seed)
    points = generator.permutation(np.repeat(np.arange(POINTS), PER_POINT))
    first, second = generator.integers(len(points), size=(2, 2000))
    apart = points[first] != points[second]
    members = [np.flatnonzero(points == point).tolist() for point in range(POINTS)]
    positives = [(one[a], one[b]) for one in members for a, b in ((0, 1), (0, 2), (1, 2))]
    negatives = list(zip(first[apart].tolist(), second[apart].tolist(), strict=True))[: len(positives)]
    patches = coded_patches(points, SIDE, seed)
    return formats.write_phototour(root, patches, points.tolist(), (points % 4).tolist(), positives + negatives)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("phototour")
    for seed, name in enumerate(("liberty", "notredame", "yosemite")):
        write_set(folder / name, seed)
    return folder


@pytest.fixture(scope="module")
def liberty(root):
    return PhotoTourBenchmark(root / "liberty")


def totals(benchmark, describer):
    return {figure.name: figure.total for figure in benchmark.evaluate(open_candidate(describer), seed=0).figures}


def test_perfect_descriptor_makes_no_error(liberty):
    values = {name: total.value for name, total in totals(liberty, perfect(SIDE)).items()}
    assert values == pytest.approx({"FPR95": 0, "FPR95 optimistic": 0, "FPR95 expected": 0, "verification AP": 1})


@pytest.mark.parametrize("name", CONTROLS)
def test_controls_score_chance(liberty, name):
    found = totals(liberty, CONTROLS[name]())
    assert found["FPR95 expected"].value == pytest.approx(0.95, abs=0.05)
    assert found["verification AP"].value == pytest.approx(0.5, abs=0.08)


def test_three_sets_give_parts_and_their_mean(root):
    benchmark = PhotoTourBenchmark(root)
    for figure in benchmark.evaluate(open_candidate(noisy(SIDE, 1.5)), seed=0).figures:
        assert list(figure.parts) == ["liberty", "notredame", "yosemite"]
        assert figure.total.value == pytest.approx(np.mean([part.value for part in figure.parts.values()]))
        assert figure.total.low < figure.total.value < figure.total.high
