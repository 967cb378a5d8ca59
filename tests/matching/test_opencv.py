"""OpenCV's cross-check returns the same mutual nearest neighbours, with distances rounded to float32.

Up to version 3.4.4 it kept, for each query, the nearest of the items whose nearest query it is (opencv/opencv#11855).
"""

import cv2
import numpy as np
import pytest
import torch

from doap.matching import match_descriptors


def crosschecked(queries, gallery, norm):
    return [(match.queryIdx, match.trainIdx) for match in cv2.BFMatcher(norm, crossCheck=True).match(queries, gallery)]


def matches(queries, gallery):
    return [tuple(pair) for pair in match_descriptors(torch.from_numpy(queries), torch.from_numpy(gallery))[0].tolist()]


def unit(generator, rows):
    descriptors = generator.standard_normal((rows, 128)).astype(np.float32)
    return descriptors / np.linalg.norm(descriptors, axis=1, keepdims=True)


SETS = {
    "unit rows": (unit, cv2.NORM_L2),
    "a grid with many ties": (lambda g, n: g.integers(0, 2, (n, 4)).astype(np.float32), cv2.NORM_L2),
    "256 bits": (lambda g, n: g.integers(0, 256, (n, 32), dtype=np.uint8), cv2.NORM_HAMMING),
    "8 bits with many ties": (lambda g, n: g.integers(0, 256, (n, 1), dtype=np.uint8), cv2.NORM_HAMMING),
}


@pytest.mark.parametrize("name", SETS)
def test_crosscheck_returns_the_same_mutual_matches(name):
    make, norm = SETS[name]
    generator = np.random.default_rng(0)
    for _ in range(100):
        queries, gallery = (make(generator, int(rows)) for rows in generator.integers(1, 60, 2))
        assert matches(queries, gallery) == crosschecked(queries, gallery, norm)


def test_crosscheck_finds_the_ties_of_float32():
    queries = np.zeros((1, 2), np.float32)
    gallery = np.array([[2, 1e-4], [2, 0]], np.float32)
    assert matches(queries, gallery) == [(0, 1)]
    assert crosschecked(queries, gallery, cv2.NORM_L2) == [(0, 0)]
