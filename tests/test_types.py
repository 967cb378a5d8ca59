"""Validation of relations."""

import pytest
import torch

from doap.errors import ArgumentError, ShapeError
from doap.types import Relation

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
