"""The benchmark `sfm`: COLMAP reconstructs synthetic walls, an oracle scores 1, controls and failures score 0."""

from functools import partial
from itertools import permutations

import numpy as np
import pytest

from doap.baselines import rootsift
from doap.evaluation.candidates import CONTROLS, open_candidate
from doap.evaluation.homography import area_under_recall
from doap.evaluation.sfm import SfmBenchmark, relative_pose_errors
from doap.geometry.pose import Pose, pose_error
from oracles.corner_scene import ANGLES, Oracle, pose, surface, write_colmap_scene

SETTINGS = {"max_keypoints": 400}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    write_colmap_scene(folder / "walls")
    return folder


@pytest.fixture(scope="module")
def oracle(root):
    images = sorted((root / "walls" / "images").iterdir())
    return Oracle({path: partial(surface, pose(angle)) for path, angle in zip(images, ANGLES, strict=True)})


@pytest.fixture(scope="module")
def benchmark(root):
    return SfmBenchmark(root, **SETTINGS)


def figures(scores):
    return {figure.name: figure.total for figure in scores.figures}


def random_pose(random):
    rotation = np.linalg.qr(random.normal(size=(3, 3)))[0]
    return Pose(rotation * np.sign(np.linalg.det(rotation)), random.normal(size=3))


def turned(pose, degrees):
    angle = np.radians(degrees)
    about_z = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    return Pose(about_z @ pose.rotation, about_z @ pose.translation)


def test_an_oracle_scores_nearly_one(benchmark, oracle):
    found = figures(benchmark.evaluate(open_candidate(oracle), seed=0))
    assert next(iter(found)) == "AUC@5"
    assert found["AUC@10"].value > 0.8
    assert found["registered"].value == 1
    assert found["reprojection error"].value < 1
    assert found["track length"].value > 3


@pytest.mark.parametrize("control", CONTROLS)
def test_controls_score_zero(root, control):
    benchmark = SfmBenchmark(root, max_keypoints=150, images=3)
    assert len(benchmark.test[0].images) == 3
    found = figures(benchmark.evaluate(open_candidate(CONTROLS[control]()), seed=0))
    assert found["AUC@10"].value < 0.05
    assert found["registered"].value < 0.5


def test_a_reconstruction_is_deterministic(benchmark):
    first, second = (benchmark.evaluate(open_candidate(rootsift()), seed=0).figures for _ in range(2))
    assert first == second


def test_pairs_that_share_no_model_are_failures():
    """Errors do not depend on the coordinate frame of a model or on its scale."""
    random = np.random.default_rng(0)
    truth = {name: random_pose(random) for name in "abcdefg"}
    noisy = {name: turned(one, random.uniform(0, 8)) for name, one in truth.items()}
    # Another coordinate frame: rotated, moved and twice as large.
    frame = random_pose(random)
    models = []
    for names in ("abcd", "def"):
        estimated = {}
        for name in names:
            rotation = noisy[name].rotation @ frame.rotation
            translation = noisy[name].rotation @ frame.translation + noisy[name].translation
            estimated[name] = Pose(rotation, 2 * translation)
        models.append(estimated)
    expected = []
    for first, second in permutations(truth, 2):
        if any(first in names and second in names for names in ("abcd", "def")):
            relative = noisy[second].relative_to(noisy[first])
            expected.append(pose_error(relative, truth[second].relative_to(truth[first]), signed=True))
        else:
            expected.append(np.inf)
    errors = relative_pose_errors(truth, models)
    assert errors.shape == (21, 2)
    assert np.sort(errors.ravel()) == pytest.approx(np.sort(expected), abs=1e-4)
    # g is in no model, and (a, b, c) and (e, f) share none.
    assert np.isinf(errors).all(axis=1).sum() == 6 + 6
    assert area_under_recall(errors.ravel(), 10) < 1 - 12 / 21
