"""Validation of relations and matches."""

import numpy as np
import pytest
import torch

from doap._support.errors import ArgumentError, ShapeError
from doap.types import Features, Matches, Relation

GROUPS = torch.tensor([0, 0, 1])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"ignored_pairs": torch.rand(1, 2)}, "ignored_pairs: expected integers, got torch.float32"),
        ({"clusters": GROUPS}, "give both or neither"),
        (
            {"clusters": torch.tensor([0, 1, 2]), "ignored_clusters": torch.eye(2).bool()},
            "clusters: expected rows of ignored_clusters, 0 to 1, got 0 to 2",
        ),
        (
            {"clusters": GROUPS, "ignored_clusters": torch.tensor([[False, True], [False, False]])},
            "expected a symmetric table",
        ),
        ({"clusters": GROUPS, "ignored_clusters": torch.eye(2)}, "ignored_clusters: expected bool"),
    ],
)
def test_an_invalid_relation_is_an_error(parts, message):
    with pytest.raises(ArgumentError, match=message):
        Relation(GROUPS, **parts)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.int64])
def test_integers_of_any_type_are_accepted(dtype):
    relation = Relation(GROUPS.to(dtype), torch.tensor([[0, 1]], dtype=dtype))
    assert relation.groups.dtype == relation.ignored_pairs.dtype == torch.int64


def test_wrong_shapes_are_an_error():
    with pytest.raises(ShapeError, match=r"ignored_pairs: expected \(P, 2\), got \(2, 3\)"):
        Relation(GROUPS, torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(ShapeError, match=r"groups: expected \(M\), got \(3, 1\)"):
        Relation(GROUPS[:, None])


def test_matched_points_are_keypoints_with_their_offsets():
    frames = np.zeros((3, 2, 3), np.float32)
    frames[:, :, 2] = [[1, 2], [3, 4], [5, 6]]
    features = Features(frames, np.ones(3, np.float32), torch.zeros(3, 1), (9, 9))
    indices, scores = np.array([[0, 2], [2, 1]]), np.ones(2, np.float32)
    points0, points1 = Matches(indices, scores).points(features, features)
    assert (points0.tolist(), points1.tolist()) == ([[1, 2], [5, 6]], [[5, 6], [3, 4]])
    offsets = np.array([[[0.5, 0], [0, 0]], [[0, 0], [-1, 0.25]]], np.float32)
    moved0, moved1 = Matches(indices, scores, offsets).points(features, features)
    assert (moved0.tolist(), moved1.tolist()) == ([[1.5, 2], [5, 6]], [[5, 6], [2, 4.25]])


@pytest.mark.parametrize("shapes", [((2, 3), (2,), None), ((2, 2), (3,), None), ((2, 2), (2,), (2, 2))])
def test_matches_of_different_lengths_are_refused(shapes):
    with pytest.raises(ShapeError):
        Matches(*(None if shape is None else np.zeros(shape, np.float32) for shape in shapes))
