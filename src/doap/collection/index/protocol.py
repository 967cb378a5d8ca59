"""What all indexes share, whichever engine holds them: their interface, their size and their changes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from doap._support.checks import check_choice, check_finite, check_shape
from doap._support.errors import ArgumentError, DataError
from doap.collection.extractor import ExtractorInfo
from doap.collection.features import FeatureSet
from doap.types import Kind, Progress, no_progress

IndexKind = Literal["flat", "ivf"]
"""`flat` compares all descriptors, `ivf` those of the nearest lists."""

_FLAT_LIMITS: dict[Kind, int] = {"real": 100_000, "binary": 1_000_000}
# FAISS warns if it has fewer training descriptors per list.
_MIN_PER_LIST = 39
REMOVED = "removed"
"""Checksum of an image without descriptors that was removed from an index, and cannot be added again."""
Count = Annotated[int, Field(ge=0, le=1 << 40, strict=True)]


class IndexedImage(NamedTuple):
    """An image of an index: its name, the checksum of its file, and its number of descriptors."""

    name: str
    checksum: str
    descriptors: Count


class DescriptorIndex(Protocol):
    """An open index of local descriptors. Images have numbers and descriptors have ids; both are integers from 0."""

    name: str
    """Name of the index, for messages."""
    extractor: ExtractorInfo
    """Identity and settings of the extractor of the features."""

    def __len__(self) -> int:
        """Return the number of descriptors."""

    def add(self, features: FeatureSet, *, progress: Progress = no_progress) -> IndexChange:
        """Add the new and the changed images of a feature set; an image that was removed earlier stays out."""

    def remove(self, names: Collection[str]) -> IndexChange:
        """Remove images permanently: their descriptors are gone, and they cannot be added again."""

    def search(
        self, descriptors: Tensor | NDArray[Any], k: int, *, probes: int | None = None
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Find the nearest descriptors of each query.

        Args:
            descriptors: (Q, D) floats or, for binary descriptors, (Q, D/8) uint8.
            k: Number of neighbours; at most the number of descriptors in the index.
            probes: Number of lists searched per query; None is √lists. Flat indexes have no lists.

        Returns:
            Distances (Q, k), Euclidean float32 or Hamming int32, increasing, and ids (Q, k). Neighbours at the same
            distance are in any order, and which of those at the k-th distance are returned is not defined. If the
            searched lists hold fewer than k descriptors, the remaining ids are −1, and their distances are meaningless.
        """

    def image_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the images of descriptor ids of any shape; −1 for −1."""

    def images_at(self, numbers: Iterable[int]) -> list[IndexedImage]:
        """Return images by number."""

    def find(self, name: str) -> IndexedImage | None:
        """Return an image by name; None if the index does not contain it."""


def choose_lists(count: int, descriptors: Kind, kind: IndexKind | None = None) -> int:
    """Return the number of lists of an index of N = `count` descriptors; 0 for a flat one, the choice for a small N.

    There are 2·√N lists, and √lists of them are searched per query. Both parts of a search, finding the lists and
    comparing their descriptors, then grow more slowly than N. Twice as many lists would take four times as long to
    train.

    >>> choose_lists(100_000, "real"), choose_lists(1_000_000, "real"), choose_lists(1_000_000, "binary")
    (0, 2000, 0)
    """
    if kind is not None:
        check_choice(kind, get_args(IndexKind), name="kind")
    if kind == "flat" or (kind is None and count <= _FLAT_LIMITS[descriptors]):
        return 0
    return max(1, min(round(2 * math.sqrt(count)), count // _MIN_PER_LIST))


@dataclass(frozen=True)
class IndexChange:
    """Numbers of images that a change affected.

    Attributes:
        added: New images.
        replaced: Images whose file had changed.
        unchanged: Images that were already in the index.
        excluded: Images that were removed from the index earlier and therefore not added.
        removed: Removed images.
        gone: Names of images that are in the index, but no longer in the features.
    """

    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    excluded: int = 0
    removed: int = 0
    gone: tuple[str, ...] = ()


def plan_change(features: FeatureSet, known: dict[str, str]) -> tuple[IndexChange, list[str]]:
    """Return what adding features changes, and the names of the images to write.

    Args:
        features: The features.
        known: Checksums of the images of the index, by name; `REMOVED` for those that were removed from it.
    """
    excluded = {name for name in features.names if known.get(name) == REMOVED}
    names = [name for name in features.names if name not in excluded and known.get(name) != features.checksums[name]]
    replaced = sum(name in known for name in names)
    former = set(features.manifest["name"].to_pylist()).difference(features.names)
    change = IndexChange(
        added=len(names) - replaced,
        replaced=replaced,
        unchanged=len(features) - len(names) - len(excluded),
        excluded=len(excluded),
        gone=tuple(sorted(name for name in former if known.get(name, REMOVED) != REMOVED)),
    )
    return change, names


def check_extractor(index: str, extractor: ExtractorInfo, features: FeatureSet) -> None:
    """Refuse features that cannot be compared with the descriptors of the named index."""
    if difference := extractor.difference(features.extractor):
        raise DataError(f"{features.folder}: the features do not fit the index {index}: {difference}.")


def check_queries(extractor: ExtractorInfo, descriptors: Tensor | NDArray[Any]) -> NDArray[Any]:
    """Return query descriptors (Q, D) float32 or (Q, D/8) uint8, contiguous, of the kind of an index."""
    binary = extractor.kind == "binary"
    check_shape(descriptors, f"Q {extractor.dim // 8 if binary else extractor.dim}", name="descriptors")
    queries = np.asarray(descriptors.cpu() if isinstance(descriptors, Tensor) else descriptors)
    if (queries.dtype == np.uint8) != binary:
        raise ArgumentError(f"descriptors: expected {extractor.kind} descriptors as in the index, got {queries.dtype}.")
    if binary:
        return np.ascontiguousarray(queries)
    queries = np.ascontiguousarray(queries, np.float32)
    check_finite(torch.from_numpy(queries), name="descriptors")
    return queries


def check_probes(probes: int | None, lists: int) -> int:
    """Return the number of lists to search per query; 0 for a flat index."""
    if probes is None:
        return math.ceil(math.sqrt(lists))
    if not lists:
        raise ArgumentError(f"probes: expected None because a flat index has no lists, got {probes}.")
    if not 1 <= probes <= lists:
        raise ArgumentError(f"probes: expected 1 to {lists}, the number of lists, got {probes}.")
    return probes
