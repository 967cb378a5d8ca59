"""What an index in one folder and a sharded index have in common: queries, re-ranking, and ids of images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.checks import check_finite, check_shape
from doap.errors import ArgumentError
from doap.scale.extractor import ExtractorInfo
from doap.scale.index.engine import IndexPlan
from doap.scale.index.folder import ImageTable
from doap.types import Kind

CANDIDATES = 32
"""Additional neighbours by code that are compared exactly. Among a million descriptors the nearest one was the first by
code for 47 % of the queries, and among the first 32 for 92 %."""


class BaseIndex(ABC):
    """An open index, in its state at the time of opening.

    Attributes:
        extractor: Identity and settings of the extractor of the features.
        images: Names and ids. The id of a descriptor is the first id of its image plus its position there.
        plan: Kind and parameters.
    """

    extractor: ExtractorInfo
    images: ImageTable
    plan: IndexPlan

    @property
    @abstractmethod
    def name(self) -> str:
        """Folder of the index, for messages."""

    @property
    def kind(self) -> Kind:
        """Kind of the descriptors: `real` or `binary`."""
        return self.extractor.kind

    @property
    def dim(self) -> int:
        """D, the number of dimensions or bits."""
        return self.extractor.dim

    @property
    def names(self) -> list[str]:
        """Names of the searchable images, sorted."""
        return sorted(self.images.numbers)

    def __len__(self) -> int:
        """Return the number of searchable descriptors."""
        return int(self.images.counts[~self.images.removed].sum())

    def search(
        self,
        descriptors: Tensor | NDArray[Any],
        k: int,
        *,
        probes: int | None = None,
        candidates: int = CANDIDATES,
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Find the nearest descriptors of each query.

        Args:
            descriptors: (Q, D) floats or, for binary descriptors, (Q, D/8) uint8.
            k: Number of neighbours; at most the number of descriptors in the index.
            probes: Number of lists searched per query; None is the index's default. Flat indexes have no lists.
            candidates: For `ivf-pq`: the k + `candidates` nearest neighbours by code are compared again with the
                original descriptors on disk. 0 uses codes only, and returns their distances.

        Returns:
            Distances (Q, k), Euclidean float32 or Hamming int32, increasing, and ids (Q, k). Neighbours at the same
            distance are sorted by id; which of those at the k-th distance are returned is not defined. If the searched
            lists hold fewer than k descriptors, the remaining ids are −1 and their distances are meaningless.
        """
        queries = self._check_queries(descriptors)
        if not 1 <= k <= len(self):
            raise ArgumentError(f"k: expected 1 to {len(self):,}, the number of descriptors in the index, got {k}.")
        probes = self._check_probes(probes)
        if candidates and self.plan.kind == "ivf-pq":
            _, ids = self.nearest(queries, min(k + candidates, len(self)), probes)
            distances: NDArray[Any] = self.compare(queries, ids)
            order = np.argsort(distances, axis=1, kind="stable")[:, :k]
            distances, ids = np.take_along_axis(distances, order, 1), np.take_along_axis(ids, order, 1)
        else:
            distances, ids = self.nearest(queries, k, probes)
        if self.kind == "real":
            # Rounding may produce values slightly below 0 for identical descriptors.
            np.sqrt(np.maximum(distances, 0, out=distances), out=distances)
        return distances, ids

    @abstractmethod
    def nearest(self, queries: NDArray[Any], k: int, probes: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the neighbours by the data in the lists, which are codes for `ivf-pq`, without checks.

        Args:
            queries: (Q, D) float32 or (Q, D/8) uint8, contiguous.
            k: Number of neighbours, from 1 to the length of the index.
            probes: Number of lists searched per query; not used by flat indexes.

        Returns:
            Squared Euclidean distances (Q, k) float32 or Hamming distances (Q, k) int32, and ids (Q, k).
        """

    @abstractmethod
    def compare(self, queries: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the squared distances (Q, C) of queries (Q, D) to the original descriptors with ids (Q, C).

        For the id −1, the distance is the largest float. Only for `ivf-pq`.
        """

    @abstractmethod
    def frames(self, number: int) -> NDArray[np.float32]:
        """Read the frames (N, 2, 3) of the descriptors of an image, in their order."""

    def image_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the images of descriptor ids of any shape; −1 for −1."""
        # An image without descriptors has the same first id as the next image; the last of them has the descriptor.
        return np.where(ids < 0, -1, np.searchsorted(self.images.first_ids, ids, side="right") - 1)

    def _check_queries(self, descriptors: Tensor | NDArray[Any]) -> NDArray[Any]:
        binary = self.kind == "binary"
        check_shape(descriptors, f"Q {self.dim // 8 if binary else self.dim}", name="descriptors")
        queries = np.asarray(descriptors.cpu() if isinstance(descriptors, Tensor) else descriptors)
        if (queries.dtype == np.uint8) != binary:
            raise ArgumentError(f"descriptors: expected {self.kind} descriptors as in the index, got {queries.dtype}.")
        if binary:
            return np.ascontiguousarray(queries)
        queries = np.ascontiguousarray(queries, np.float32)
        check_finite(torch.from_numpy(queries), name="descriptors")
        return queries

    def _check_probes(self, probes: int | None) -> int:
        lists = self.plan.lists
        if probes is not None and not lists:
            raise ArgumentError(f"probes: expected None because a flat index has no lists, got {probes}.")
        if probes is not None and not 1 <= probes <= lists:
            raise ArgumentError(f"probes: expected 1 to {lists}, the number of lists, got {probes}.")
        return probes or self.plan.probes
