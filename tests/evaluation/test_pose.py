"""The benchmark `pose`: an oracle scores 1, controls score chance, and figures equal slow computations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from doap._support.errors import ArgumentError
from doap.evaluation.candidates import CONTROLS, open_candidate
from doap.evaluation.homography import area_under_recall
from doap.evaluation.pair_matcher import RATIOS, PairMatcher, SharedKeypoints
from doap.evaluation.pose import BANDS, PoseBenchmark
from doap.evaluation.scenes import draw_images
from oracles.posed_scene import POINTS, PosedScene

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
    return PoseBenchmark(root, detector=scene, seeds=2)


def evaluate(benchmark, describer):
    return benchmark.evaluate(open_candidate(describer), 0)


def brute_force_area(errors, limit, steps=200_000):
    """Integrate the cumulative error curve on a fine grid, with linear interpolation between errors."""
    ordered = np.sort(errors)
    below = ordered[ordered < limit]
    heights = np.arange(1, len(below) + 1) / len(ordered)
    grid = (np.arange(steps) + 0.5) / steps * limit
    return float(np.interp(grid, np.r_[0, below], np.r_[0, heights]).mean())


@pytest.mark.parametrize("estimator", ["opencv", "poselib"])
def test_oracle_scores_1(root, scene, estimator):
    scores = evaluate(PoseBenchmark(root, detector=scene, estimator=estimator, seeds=1), scene)
    values = {figure.name: figure.total.value for figure in scores.figures}
    assert set(values) >= {"AUC@5", "AUC@10", "AUC@20", "mAA@10"}
    assert min(values.values()) > 0.99


@pytest.mark.parametrize("control", CONTROLS)
def test_controls_score_chance(benchmark, control):
    scores = evaluate(benchmark, CONTROLS[control]())
    values = {figure.name: figure.total.value for figure in scores.figures}
    # A random pose is within 10° in about one of 300 cases; small baselines favour small rotations.
    assert values["AUC@10"] < 0.06
    assert values["AUC@5"] < 0.04


@pytest.mark.parametrize("limit", [0.5, 5, 10, 20])
def test_area_agrees_with_a_brute_force_integral(limit):
    random = np.random.default_rng(3)
    errors = np.r_[random.exponential(6, 200), np.full(20, np.inf)]
    assert area_under_recall(errors, limit) == pytest.approx(brute_force_area(errors, limit), abs=1e-5)


def test_headline_is_the_mean_over_scenes_of_auc_at_10(benchmark):
    scores = evaluate(benchmark, CONTROLS["shuffled"]())
    headline = scores.figures[0]
    assert headline.name == "AUC@10"
    assert set(headline.parts) == set(NAMES)
    assert headline.total.value == pytest.approx(np.mean([part.value for part in headline.parts.values()]))
    assert headline.total.units == len(NAMES)


def test_pairs_come_from_all_bands_in_equal_numbers_as_far_as_there_are_enough(root, scene):
    drawn = PoseBenchmark(root, detector=scene, pairs=6).test
    for name in NAMES:
        overlaps = [pair.overlap for pair in drawn if pair.scene == name]
        assert len(overlaps) == 6
        assert sorted(sum(low <= overlap < high for overlap in overlaps) for low, high in BANDS.values()) == [2, 2, 2]


def test_the_same_pairs_are_drawn_every_time(root, scene):
    first, again = (PoseBenchmark(root, detector=scene, pairs=5).test for _ in range(2))
    assert [pair.name for pair in first] == [pair.name for pair in again]


def test_validation_scenes_select_the_ratio_and_are_not_scored(root, scene):
    benchmark = PoseBenchmark(root, detector=scene, validation="arc, bow", seeds=1)
    scores = evaluate(benchmark, scene)
    assert scores.selected["ratio"] in RATIOS
    assert set(scores.figures[0].parts) == {"curve"}
    assert benchmark.protocol["ratio"] == "selected on arc, bow by AUC@10"


def test_selected_ratio_is_the_best_of_all_on_the_validation_scenes(root, scene):
    """Half of the points get the descriptor of a neighbour in odd images, so that ratios matter."""

    class Confused(PosedScene):
        def describe(self, image, frames):
            described = super().describe(image, frames)
            blurred = described + 0.8 * described.roll(1, 1) * float(image[0, 1] % 2)
            return blurred / blurred.norm(dim=1, keepdim=True)

    describer = Confused(6)
    settings = {"detector": scene, "pairs": 4, "seeds": 2}
    selected = evaluate(PoseBenchmark(root, validation="arc", **settings), describer).selected["ratio"]
    areas = {}
    for ratio in RATIOS:
        fixed = PoseBenchmark(root, ratio=ratio, **settings)
        areas[ratio] = evaluate(fixed, describer).figures[0].parts["arc"].value
    assert areas[selected] == max(areas.values())


def test_unknown_validation_scene_is_named(root, scene):
    with pytest.raises(ArgumentError, match=r"unknown scene harbour.*arc, bow, curve"):
        PoseBenchmark(root, detector=scene, validation="harbour")


def test_images_are_limited_per_scene(root, scene):
    benchmark = PoseBenchmark(root, detector=scene, images=4)
    for name in NAMES:
        assert len({path for pair in benchmark.test if pair.scene == name for path in pair.paths}) <= 4


def test_test_scenes_can_be_chosen_and_must_not_be_validation_scenes(root, scene):
    chosen = PoseBenchmark(root, detector=scene, validation="arc", test="curve")
    assert {pair.scene for pair in chosen.test} == {"curve"}
    with pytest.raises(ArgumentError, match="got arc in both"):
        PoseBenchmark(root, detector=scene, validation="arc", test="arc,curve")


def test_drawn_images_do_not_depend_on_the_others():
    paths = [Path(f"{number}.png") for number in range(50)]
    drawn = draw_images(paths, 10)
    assert draw_images([*paths[25:], *drawn], 10) == drawn
    assert draw_images(paths, 100) == sorted(paths)


def test_a_scene_must_be_left_for_the_test(root, scene):
    with pytest.raises(ArgumentError, match="left for the test"):
        PoseBenchmark(root, detector=scene, validation="arc,bow,curve")


def test_checksum_depends_on_images_and_poses(root, scene, tmp_path):
    other = PosedScene(6)
    other.poses[1] = other.poses[2]
    other.write_colmap(tmp_path / "arc")
    scene.write_colmap(tmp_path / "same" / "arc")
    first = PoseBenchmark(tmp_path / "same", detector=scene).dataset.sha256
    assert first != PoseBenchmark(tmp_path, detector=scene).dataset.sha256


def test_matched_points_of_the_oracle_are_projections_of_the_same_points(scene, tmp_path):
    paths = scene.write_images(tmp_path)
    matcher = PairMatcher(open_candidate(scene), SharedKeypoints(scene, 2048))
    xy0, xy1 = matcher.matched_points(paths[0], paths[1])
    assert len(xy0) == POINTS
    number = [int(np.linalg.norm(scene.positions[0] - point, axis=1).argmin()) for point in xy0]
    np.testing.assert_allclose(xy1, scene.positions[1][number], atol=1e-4)
    assert len(matcher.match(paths[0], paths[1], ratio=1.0)) == POINTS


@pytest.mark.data("photos")
def test_strict_and_loose_ratios_keep_fewer_and_more_matches_of_real_photos(data_folder):
    photos = sorted((data_folder / "photos" / "fountain").glob("*.jpg"))[:2]
    from doap.baselines import rootsift
    from doap.detectors import sift

    matcher = PairMatcher(open_candidate(rootsift()), SharedKeypoints(sift(), 512))
    counts = [len(matcher.match(*photos, ratio)) for ratio in (*RATIOS, 1.0)]
    assert counts == sorted(counts)
    assert counts[-1] == len(matcher.match(*photos))
