"""Data types shared by several packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap._support.checks import check_shape
from doap._support.errors import ArgumentError

Kind = Literal["real", "binary"]
"""Type of a descriptor: real numbers or bits."""

Progress = Callable[[int, int, str], None]
"""Progress callback of long functions: units done, total units, name of the current unit."""


def no_progress(done: int, total: int, name: str) -> None:
    """Ignore progress: the default callback."""


@dataclass(frozen=True)
class Features:
    """Keypoints of one image and their descriptors.

    >>> frames = np.array([[[8, 0, 20], [0, 8, 30]]], np.float32)
    >>> features = Features(frames, np.ones(1, np.float32), torch.rand(1, 128), (480, 640))
    >>> len(features), features.keypoints.tolist()
    (1, [[20.0, 30.0]])

    Attributes:
        frames: (N, 2, 3) float32 affine frames [A | t], which map the square [−1, 1]² onto the
            keypoint's region. The first pixel has its centre at (0, 0).
        responses: (N,) float32 responses of the detector; larger is stronger.
        descriptors: (N, D) float32, or (N, D/8) uint8 for bits, on the device of the descriptor.
        image_size: (height, width) of the image in pixels.
        fingerprint: Checksum of the descriptor, so that `doap.match` can refuse features of another one; None if
            unknown.
    """

    frames: NDArray[np.float32]
    responses: NDArray[np.float32]
    descriptors: Tensor
    image_size: tuple[int, int]
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        count = check_shape(self.frames, "N 2 3", name="frames")["N"]
        check_shape(self.responses, str(count), name="responses")
        check_shape(self.descriptors, f"{count} D", name="descriptors")

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def keypoints(self) -> NDArray[np.float32]:
        """(N, 2) float32 centres of the frames as (x, y)."""
        return self.frames[:, :, 2]

    def strongest(self, limit: int | None) -> Features:
        """Return the `limit` features with the largest responses, in their present order."""
        if limit is None or len(self) <= limit:
            return self
        kept = np.sort(np.argsort(-self.responses, kind="stable")[:limit])
        return replace(
            self, frames=self.frames[kept], responses=self.responses[kept], descriptors=self.descriptors[kept]
        )


@dataclass(frozen=True)
class Matches:
    """Matches of the keypoints of two images; returned by `doap.match`.

    Attributes:
        indices: (M, 2) int64 rows of `Features` 0 and 1, sorted by the first.
        scores: (M,) float32, larger is better; the negative distance for nearest neighbours.
    """

    indices: NDArray[np.int64]
    scores: NDArray[np.float32]

    def __post_init__(self) -> None:
        count = check_shape(self.indices, "M 2", name="indices")["M"]
        check_shape(self.scores, str(count), name="scores")

    def __len__(self) -> int:
        return len(self.indices)

    def points(self, features0: Features, features1: Features) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the positions (M, 2) of the matches in both images as (x, y)."""
        return features0.keypoints[self.indices[:, 0]], features1.keypoints[self.indices[:, 1]]


@dataclass(frozen=True)
class Geometry:
    """Geometry of two images, estimated from M matches; returned by `doap.verify`.

    Attributes:
        matrix: (3, 3) homography or fundamental matrix from image 0 to image 1; None if none was found.
        inliers: (M,) bool, the matches that agree with the matrix.
    """

    matrix: NDArray[np.float64] | None
    inliers: NDArray[np.bool_]


@dataclass(frozen=True)
class Relation:
    """Relation of the pairs in a batch of M descriptors: match, distractor or ignore.

    Two items of the same group match. All other pairs are distractors, except for the ignored
    pairs, which count neither for nor against a query. The relation is stored compactly, not as an
    (M, M) table.

    Attributes:
        groups: (M,) integers; items with equal values match. The item of a group of one is a
            distractor for all others and never a query.
        ignored_pairs: (P, 2) values of `groups`; all items of these two groups ignore each other.
            The order does not matter, and groups outside the batch have no effect.
        clusters: (M,) integers in 0…C−1; requires `ignored_clusters`.
        ignored_clusters: (C, C) symmetric bool; items of these two clusters ignore each other
            unless they match.
    """

    groups: Tensor
    ignored_pairs: Tensor | None = None
    clusters: Tensor | None = None
    ignored_clusters: Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("groups", "ignored_pairs", "clusters"):
            value = getattr(self, name)
            if value is not None and value.is_floating_point():
                raise ArgumentError(f"{name}: expected integers, got {value.dtype}")
            # torch searches and indexes only in tensors of the same integer type.
            object.__setattr__(self, name, None if value is None else value.long())
        size = check_shape(self.groups, "M", name="groups")["M"]
        if self.ignored_pairs is not None:
            check_shape(self.ignored_pairs, "P 2", name="ignored_pairs")
        if (self.clusters is None) != (self.ignored_clusters is None):
            raise ArgumentError("clusters and ignored_clusters: give both or neither, got only one.")
        if self.clusters is not None and self.ignored_clusters is not None:
            check_shape(self.clusters, str(size), name="clusters")
            count = check_shape(self.ignored_clusters, "C C", name="ignored_clusters")["C"]
            if size and not 0 <= int(self.clusters.min()) <= int(self.clusters.max()) < count:
                raise ArgumentError(f"clusters: expected rows of ignored_clusters, 0 to {count - 1}, got others.")
            if self.ignored_clusters.dtype != torch.bool or not self.ignored_clusters.equal(self.ignored_clusters.T):
                raise ArgumentError("ignored_clusters: expected a symmetric table of bool, got another one.")

    def __len__(self) -> int:
        return len(self.groups)

    def to(self, device: torch.device) -> Relation:
        """Return the relation on another device."""
        if self.groups.device == device:
            return self
        ignored = (self.ignored_pairs, self.clusters, self.ignored_clusters)
        return Relation(self.groups.to(device), *(None if part is None else part.to(device) for part in ignored))
