"""One-to-one matches and their precision, compared with slow loops; `test_oxford` has whole image pairs."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from doap.evaluation.image_pair import (
    RECALLS,
    Photo,
    make_pair,
    match_one_to_one,
    precision_at,
    score_one_to_one,
)
from doap.images import frames_from_arrays


@given(st.integers(0, 8), st.integers(0, 8), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_one_to_one_matches_equal_a_greedy_loop(number0, number1, values, seed):
    """Few distinct values make many ties; the lowest row, then the lowest column, comes first."""
    distances = np.random.default_rng(seed).integers(0, values, (number0, number1)).astype(np.float32) / 3
    left = sorted((float(distances[row, column]), row, column) for row in range(number0) for column in range(number1))
    expected = []
    while left:
        expected.append(left[0])
        left = [one for one in left if one[1] != expected[-1][1] and one[2] != expected[-1][2]]
    # −0 counts as 0.
    pairs, apart = match_one_to_one(torch.from_numpy(np.where(distances == 0, np.float32(-0.0), distances)))
    assert [(float(d), *pair) for d, pair in zip(apart, pairs.tolist(), strict=True)] == expected


def test_precision_is_that_at_the_first_threshold_with_the_recall():
    distances = np.array([0.1, 0.2, 0.2, 0.3, 0.4], np.float32)
    right = np.array([True, True, False, False, True])
    # Equal distances are accepted together, so the precision 2 / 2 does not occur.
    expected = [1, 2 / 3, 3 / 5, 0]
    np.testing.assert_allclose(precision_at(np.array([0.25, 0.5, 0.75, 1]), distances, right, 4), expected)
    empty = precision_at(np.array([0.5]), distances[:0], right[:0], 4)
    assert empty.tolist() == [0]


@pytest.mark.parametrize(("percent", "positives"), [(7, 100), (14, 50), (28, 25), (55, 100), (95, 20)])
def test_rounding_does_not_require_one_correct_match_too_many(percent, positives):
    """28 % of 25 are 7 matches, but 0.28·25 is a little more than 7 in floating point."""
    needed = percent * positives // 100
    correct = np.arange(positives) < needed
    found = precision_at(np.array([percent / 100]), np.arange(positives, dtype=np.float32), correct, positives)
    assert found.tolist() == [1.0]


@pytest.fixture
def row_of_four():
    """Two equal images with four keypoints each, in reverse order in image 1, and descriptors with two wrong matches.

    By position, the descriptors are 0, 10, 20, 30 and 1, 22, 13, 34: the matches are 0-0, 2-1, 1-2 and 3-3, at the
    distances 1, 2, 3 and 4.
    """
    frames = frames_from_arrays([[40, 100], [80, 100], [120, 100], [160, 100]], [7, 7, 7, 7])
    image = np.zeros((200, 200), np.uint8)
    pair = make_pair("row", Photo(image, frames), Photo(image, frames[::-1].copy()), np.eye(3), 0.4)
    return pair, torch.tensor([[0.0], [10], [20], [30]]), torch.tensor([[34.0], [13], [22], [1]])


def test_one_to_one_matches_have_the_known_scores(row_of_four):
    pair, *descriptors = row_of_four
    found = score_one_to_one(pair, *descriptors)
    # Right, wrong, wrong, right: precisions 1 and 1/2, for four correspondences.
    assert found.recall == 0.5
    assert found.average_precision == pytest.approx((1 + 1 / 2) / 4)
    expected = [1.0 if recall <= 0.25 else 0.5 if recall <= 0.5 else 0.0 for recall in RECALLS]
    assert found.precision.tolist() == pytest.approx(expected)
    assert (RECALLS[0], RECALLS[-1]) == (0.02, 1)
    assert sorted(found.match_distances.tolist()) == [1, 4, 7, 12]
