"""The benchmark `pose`: an oracle scores 1, controls score chance, and figures equal slow computations."""

import numpy as np
import pytest

from doap.evaluation.candidates import CONTROLS, open_candidate
from doap.evaluation.homography import area_under_recall
from doap.evaluation.pair_matcher import RATIOS, PairMatcher, SharedKeypoints
from doap.evaluation.pose import BANDS, PoseBenchmark, pose_errors
from oracles.posed_scene import PosedScene

NAMES = ("arc", "bow", "curve")


@pytest.fixture(scope="module")
def scene():
    return PosedScene(6)


@pytest.fixture(scope="module")
def root(scene, tmp_path_factory):
    """Three scenes with the same cameras; image i sees a window of 40 points, so that all bands occur."""
    folder = tmp_path_factory.mktemp("posed")
    seen = [np.arange(first, first + 40) for first in (0, 8, 28, 36, 45, 50)]
    for name in NAMES:
        scene.write_colmap(folder / name, seen)
    return folder


@pytest.fixture(scope="module")
def benchmark(root, scene):
    return PoseBenchmark(root, detector=scene)


def evaluate(benchmark, describer):
    return benchmark.evaluate(open_candidate(describer), 0)


def test_oracle_scores_1(benchmark, scene):
    scores = evaluate(benchmark, scene)
    values = {figure.name: figure.total.value for figure in scores.figures}
    assert set(values) >= {"AUC@5", "AUC@10", "AUC@20", "mAA@10"}
    assert min(values.values()) > 0.99


@pytest.mark.parametrize("control", CONTROLS)
def test_controls_score_chance(benchmark, control):
    scores = evaluate(benchmark, CONTROLS[control]())
    values = {figure.name: figure.total.value for figure in scores.figures}
    headline = scores.figures[0]
    assert (headline.name, set(headline.parts), headline.total.units) == ("AUC@10", set(NAMES), len(NAMES))
    assert headline.total.value == pytest.approx(np.mean([part.value for part in headline.parts.values()]))
    # A random pose is within 10° in about one of 300 cases; small baselines favour small rotations.
    assert values["AUC@10"] < 0.06
    assert values["AUC@5"] < 0.04


def test_pairs_come_from_all_bands_in_equal_numbers_as_far_as_there_are_enough(root, scene):
    drawn, again = (PoseBenchmark(root, detector=scene, images=5, pairs=6).test for _ in range(2))
    assert [pair.name for pair in drawn] == [pair.name for pair in again]
    for name in NAMES:
        assert len({path for pair in drawn if pair.scene == name for path in pair.paths}) <= 5
        overlaps = [pair.overlap for pair in drawn if pair.scene == name]
        assert len(overlaps) == 6
        assert sorted(sum(low <= overlap < high for overlap in overlaps) for low, high in BANDS.values()) == [2, 2, 2]


def test_validation_scenes_select_the_ratio_and_are_not_scored(root, scene):
    benchmark = PoseBenchmark(root, detector=scene, validation="arc", test="curve", pairs=4)
    scores = evaluate(benchmark, scene)
    matcher = PairMatcher(open_candidate(scene), SharedKeypoints(scene, 2048))
    areas = {ratio: area_under_recall(pose_errors(matcher, benchmark.validation, ratio), 10) for ratio in RATIOS}
    assert areas[scores.selected["ratio"]] == max(areas.values())
    assert set(scores.figures[0].parts) == {"curve"}
    assert benchmark.protocol["ratio"] == "selected on arc by AUC@10"


def test_checksum_depends_on_images_and_poses(root, scene, tmp_path):
    other = PosedScene(6)
    other.poses[1] = other.poses[2]
    other.write_colmap(tmp_path / "arc")
    scene.write_colmap(tmp_path / "same" / "arc")
    first = PoseBenchmark(tmp_path / "same", detector=scene).dataset.sha256
    assert first != PoseBenchmark(tmp_path, detector=scene).dataset.sha256


def test_fewer_keypoints_score_as_a_benchmark_with_that_maximum(root, scene):
    few = PoseBenchmark(root, detector=scene, max_keypoints=12, validation="arc")
    both = PoseBenchmark(root, detector=scene, fewer_keypoints=12, validation="arc")
    scores, of_few = evaluate(both, scene), evaluate(few, scene)
    figure = next(figure for figure in scores.figures if figure.name == "AUC@10, 12 keypoints")
    assert figure.total == of_few.figures[0].total
    assert figure.total.value < scores.figures[0].total.value
    assert scores.selected["ratio, 12 keypoints"] == of_few.selected["ratio"]


def test_a_full_turn_changes_nothing(root, scene):
    """The second photos of a turn by 360° are warped and described again."""
    scores = evaluate(PoseBenchmark(root, detector=scene, turned="360", pairs=6), scene)
    figures = {figure.name: figure for figure in scores.figures}
    assert figures["AUC@10, turned by 360°"].total == figures["AUC@10"].total
    (rotation,) = (curve for curve in scores.curves if curve.name == "rotation")
    assert rotation.points == [(degrees, figures["AUC@10"].total.value) for degrees in (0, 360)]
