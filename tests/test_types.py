"""Validation of relations and matches."""

import numpy as np
import pytest
import torch

from doap._support.errors import ArgumentError, ShapeError
from doap.types import Matches, Relation

GROUPS = torch.tensor([0, 0, 1])
ASYMMETRIC = torch.tensor([[False, True], [False, False]])


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ({"groups": GROUPS[:, None]}, ShapeError),
        ({"ignored_pairs": torch.zeros(2, 3, dtype=torch.long)}, ShapeError),
        ({"ignored_pairs": torch.rand(1, 2)}, ArgumentError),
        ({"clusters": GROUPS}, ArgumentError),
        ({"clusters": torch.tensor([0, 1, 2]), "ignored_clusters": torch.eye(2).bool()}, ArgumentError),
        ({"clusters": torch.tensor([0, 1, -1]), "ignored_clusters": torch.eye(2).bool()}, ArgumentError),
        ({"clusters": GROUPS, "ignored_clusters": ASYMMETRIC}, ArgumentError),
        ({"clusters": GROUPS, "ignored_clusters": torch.eye(2)}, ArgumentError),
    ],
)
def test_an_invalid_relation_is_an_error(parts, error):
    with pytest.raises(error):
        Relation(**{"groups": GROUPS, **parts})


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.int64])
def test_integers_of_any_type_are_accepted(dtype):
    relation = Relation(GROUPS.to(dtype), torch.tensor([[0, 1]], dtype=dtype))
    assert relation.groups.dtype == relation.ignored_pairs.dtype == torch.int64


@pytest.mark.parametrize("shapes", [((2, 3), (2,)), ((2, 2), (3,))])
def test_matches_of_different_lengths_are_refused(shapes):
    with pytest.raises(ShapeError):
        Matches(*(np.zeros(shape, np.float32) for shape in shapes))
