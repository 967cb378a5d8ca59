"""Overlap of ellipses, compared with Monte Carlo areas, closed forms and loops over all pairs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from doap.evaluation.overlap import correspondences, one_to_one, overlap_errors
from doap.images import frames_from_arrays, transform_frames

HOMOGRAPHY = np.array([[1.1, 0.2, -20], [-0.1, 0.9, 15], [3e-4, -2e-4, 1]])


def region(x=0.0, y=0.0, long=1.0, short=1.0, degrees=0.0):
    """Return the frame (1, 2, 3) of an ellipse with the given semi-axes."""
    turn = np.radians(degrees)
    axes = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]) * [long, short]
    return np.concatenate([axes, [[x], [y]]], axis=1)[None]


def monte_carlo_error(frame0, frame1, samples=200_000):
    """Estimate the overlap error from random points of region 0."""
    inside = np.random.default_rng(0).uniform(-1, 1, (samples, 2))
    inside = inside[(inside**2).sum(axis=1) <= 1]
    points = inside @ frame0[:, :2].T + frame0[:, 2]
    hits = (np.linalg.solve(frame1[:, :2], (points - frame1[:, 2]).T) ** 2).sum(axis=0) <= 1
    area0, area1 = (abs(np.linalg.det(frame[:, :2])) for frame in (frame0, frame1))
    shared = hits.mean() * area0
    return 1 - shared / (area0 + area1 - shared)


@pytest.mark.parametrize(
    ("frame0", "frame1"),
    [
        pytest.param(region(), region(x=0.3), id="circles"),
        pytest.param(region(long=3, short=0.7, degrees=20), region(x=0.5, long=2, short=1, degrees=70), id="stretched"),
        pytest.param(region(long=5, short=0.5), region(long=5, short=0.5, degrees=90), id="crossed"),
        pytest.param(region(), region(x=1.5, y=0.2, long=1.2, short=0.8), id="centres outside"),
        pytest.param(region(), region(x=50), id="far"),
        pytest.param(region(long=4, short=3), region(x=1, long=1, short=0.5, degrees=30), id="contained"),
        pytest.param(region(long=1, short=0.5), region(x=1, long=4, short=3, degrees=30), id="containing"),
        pytest.param(region(), region(x=1.99), id="touching"),
        pytest.param(region(long=1, short=-1), region(x=0.3, long=-1), id="mirrored"),
    ],
)
def test_overlap_agrees_with_monte_carlo(frame0, frame1):
    assert overlap_errors(frame0, frame1)[0] == pytest.approx(monte_carlo_error(frame0[0], frame1[0]), abs=0.01)


numbers = st.floats(-1, 1, width=32)
frames = st.builds(
    lambda xy, axes, degrees: region(*(2 * xy), *axes, degrees)[0],
    arrays(np.float64, 2, elements=numbers),
    arrays(np.float64, 2, elements=st.floats(0.5, 3, width=32)),
    st.floats(0, 180),
)


@given(frames)
def test_identical_regions_have_no_error(frame):
    assert overlap_errors(frame[None], frame[None])[0] == pytest.approx(0, abs=1e-9)


@given(frames, frames)
def test_overlap_is_symmetric(frame0, frame1):
    forth, back = overlap_errors(np.stack([frame0, frame1]), np.stack([frame1, frame0]))
    assert forth == pytest.approx(back, abs=1e-3 if min(forth, back) < 0.5 else 5e-3)


@given(frames, frames, frames)
def test_a_common_linear_map_changes_nothing(frame0, frame1, change):
    moved0, moved1 = (change[:, :2] @ frame for frame in (frame0, frame1))
    before, after = overlap_errors(np.stack([frame0, moved0]), np.stack([frame1, moved1]))
    assert before == pytest.approx(after, abs=1e-3 if min(before, after) < 0.5 else 5e-3)


def random_frames(number, seed, width=200, height=150):
    random = np.random.default_rng(seed)
    centre = random.uniform(0, 1, (number, 2)) * [width, height]
    return frames_from_arrays(centre, np.exp(random.normal(2, 0.3, number)), random.uniform(0, 360, number))


def every_pair(frames0, frames1, homography, threshold):
    """Apply the definition pair by pair."""
    found = {}
    projected = transform_frames(frames1, np.linalg.inv(homography)).astype(float)
    for index0, frame0 in enumerate(frames0.astype(float)):
        for index1, frame1 in enumerate(projected):
            factor = 30 / np.sqrt(abs(np.linalg.det(frame0[:, :2])))
            scaled0, scaled1 = (np.c_[frame[:, :2] * factor, frame[:, 2]] for frame in (frame0, frame1))
            error = overlap_errors(scaled0[None], scaled1[None])[0]
            if error <= threshold:
                found[index0, index1] = error
    return found


@pytest.mark.parametrize("threshold", [0.2, 0.4, 0.5])
def test_correspondences_equal_a_loop_over_all_pairs(threshold):
    frames0 = random_frames(40, seed=0)
    frames1 = transform_frames(random_frames(40, seed=0), HOMOGRAPHY)
    frames1[:, :, 2] += np.random.default_rng(1).normal(0, 6, (40, 2))
    pairs, errors = correspondences(frames0, frames1, HOMOGRAPHY, threshold)
    expected = every_pair(frames0, frames1, HOMOGRAPHY, threshold)
    assert len(expected) > 10
    assert {tuple(pair) for pair in pairs.tolist()} == set(expected)
    np.testing.assert_allclose(errors, [expected[tuple(pair)] for pair in pairs.tolist()])
    assert (np.diff(errors) >= 0).all()


@pytest.mark.parametrize("axis", [0, 1])
def test_correspondences_of_affine_frames_equal_a_loop_over_all_pairs(axis):
    frames0 = random_frames(20, seed=0)
    # Along the long axis, a region may be shifted by more than its short axis.
    shift = np.random.default_rng(1).uniform(-4, 4, (20, 1)) * frames0[:, :, axis]
    frames0[:, :, axis] *= 5
    frames1 = frames0.copy()
    frames1[:, :, 2] += shift
    pairs, _ = correspondences(frames0, frames1, np.eye(3), 0.5)
    expected = every_pair(frames0, frames1, np.eye(3), 0.5)
    assert len(expected) > 10
    assert {tuple(pair) for pair in pairs.tolist()} == set(expected)


def test_correspondences_do_not_depend_on_the_other_keypoints():
    """So many keypoints need several blocks of rows, whose size is not a power of two."""
    frames0, frames1 = (random_frames(number, number, 20_000, 20_000) for number in (900, 5000))
    frames0[800:] = frames1[:100]
    pairs, _ = correspondences(frames0, frames1, np.eye(3))
    few, _ = correspondences(frames0[800:], frames1, np.eye(3))
    assert len(few) >= 100
    np.testing.assert_array_equal(pairs[pairs[:, 0] >= 800], few + np.array([800, 0]))


def test_frames_at_infinity_or_without_area_have_no_correspondence():
    frames = frames_from_arrays([[100, 10], [200, 10], [300, 10]], [5, 5, 5])
    to_infinity = np.array([[1, 0, 0], [0, 1, 0], [-1 / 200, 0, 1]])
    projected = transform_frames(frames, to_infinity)
    projected[1] = frames[1]
    projected[2, :, :2] = 0
    pairs, _ = correspondences(frames, projected, to_infinity)
    assert pairs.tolist() == [[0, 0]]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), max_size=60))
def test_one_to_one_takes_each_item_once_in_order(pairs):
    used0, used1, expected = set(), set(), []
    for index, (item0, item1) in enumerate(pairs):
        if item0 not in used0 and item1 not in used1:
            used0.add(item0)
            used1.add(item1)
            expected.append(index)
    assert one_to_one(np.array(pairs, np.int64).reshape(-1, 2), 7, 5).tolist() == expected


def test_one_to_one_takes_all_pairs_of_a_long_list_without_conflicts():
    """The list is processed in several chunks."""
    pairs = np.stack([np.arange(100_000), np.arange(100_000)[::-1]], axis=1)
    np.testing.assert_array_equal(one_to_one(pairs, 100_000, 100_000), np.arange(100_000))


@pytest.mark.parametrize(("long0", "long1"), [(1.5, 2.0), (2.0, 1.5)])
def test_concentric_circles_with_exactly_the_largest_difference_in_size_are_kept(long0, long1):
    """The error of circles with radii 3 and 4 is 1 − 9/16, and √(9/16), the limit of the ratio, is exact."""
    pairs, errors = correspondences(region(long=long0, short=long0), region(long=long1, short=long1), np.eye(3), 7 / 16)
    assert pairs.tolist() == [[0, 0]]
    assert errors[0] == pytest.approx(7 / 16)
