"""Accuracy of matches and homographies, compared with slow definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doap._support.errors import ArgumentError
from doap.evaluation.homography import area_under_recall, corner_error, matching_accuracy, reprojection_errors

HOMOGRAPHY = np.array([[1.1, 0.2, -20], [-0.1, 0.9, 15], [3e-4, -2e-4, 1]])


def test_reprojection_error_is_the_distance_to_the_true_position():
    points = np.random.default_rng(0).uniform(0, 300, (20, 2))
    true = np.array([(HOMOGRAPHY @ [x, y, 1])[:2] / (HOMOGRAPHY @ [x, y, 1])[2] for x, y in points])
    np.testing.assert_allclose(reprojection_errors(points, true, HOMOGRAPHY), 0, atol=1e-9)
    np.testing.assert_allclose(reprojection_errors(points, true + np.array([3, -4]), HOMOGRAPHY), 5)


def test_a_point_mapped_to_infinity_has_an_infinite_error():
    to_infinity = np.array([[1, 0, 0], [0, 1, 0], [-1 / 20, 0, 1]])
    errors = reprojection_errors([[20, 5], [0, 5], [20, 0]], [[1, 1], [0, 5], [0, 0]], to_infinity)
    assert errors.tolist() == [np.inf, 0, np.inf]


@given(st.lists(st.floats(0, 20) | st.just(np.inf)))
def test_accuracy_is_the_share_within_each_threshold(errors):
    expected = [sum(error <= limit for error in errors) / max(len(errors), 1) for limit in range(1, 11)]
    assert matching_accuracy(np.array(errors), range(1, 11)).tolist() == pytest.approx(expected)


def test_corner_error_is_zero_for_the_truth_at_any_scale():
    assert corner_error(-2 * HOMOGRAPHY, HOMOGRAPHY, (240, 320)) == pytest.approx(0, abs=1e-9)


def test_corner_error_is_the_mean_of_four_corners():
    aside = np.eye(3)
    aside[:2, 2] = 3, 4
    assert corner_error(aside, np.eye(3), (240, 320)) == pytest.approx(5)
    # The corners are at 0 and 319: those to the right move by 319, those to the left not at all.
    assert corner_error(np.diag([2.0, 1, 1]), np.eye(3), (240, 320)) == pytest.approx(319 / 2)
    assert corner_error(np.diag([1.0, 2, 1]), np.eye(3), (240, 320)) == pytest.approx(239 / 2)


@pytest.mark.parametrize(
    "estimated", [None, np.array([[1.0, 0, 0], [0, 1, 0], [-1 / 319, 0, 1]]), np.full((3, 3), np.nan)]
)
def test_a_missing_homography_has_an_infinite_error(estimated):
    assert corner_error(estimated, np.eye(3), (240, 320)) == np.inf


@given(st.lists(st.floats(0, 8) | st.just(np.inf), min_size=1, max_size=30), st.sampled_from([1, 3, 5]))
def test_area_equals_an_interpolated_integral(errors, threshold):
    ordered = sorted(error for error in errors if error < threshold)
    # A step of its own for each of equal errors, so that interpolation goes through all points.
    x = [0, *(error + 1e-9 * index for index, error in enumerate(ordered, start=1))]
    y = np.arange(len(ordered) + 1) / len(errors)
    grid = np.linspace(0, threshold, 20_001)
    expected = np.interp(grid, x, y).mean()
    assert area_under_recall(errors, threshold) == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize(("errors", "threshold"), [([], 3), ([1.0], 0), ([1.0], float("nan"))])
def test_no_errors_and_no_threshold_are_refused(errors, threshold):
    with pytest.raises(ArgumentError):
        area_under_recall(errors, threshold)
