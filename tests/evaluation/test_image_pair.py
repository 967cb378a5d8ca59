"""One-to-one matches and their precision, compared with slow loops; `test_oxford` has whole image pairs."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from doap.evaluation.image_pair import match_one_to_one, precision_at


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
