"""An open index in a folder: search it, and report or check its contents."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from doap._support.errors import ArgumentError, DataError
from doap.collection.extractor import ExtractorInfo
from doap.collection.features import FeatureSet, as_feature_set
from doap.collection.index.engine import EngineFile, missing_distance, search_without, set_probes
from doap.collection.index.folder import (
    check_files,
    check_sizes,
    current_file,
    local_folder,
    map_frames,
    map_rows,
    read_images,
    read_meta,
)
from doap.collection.index.plan import IndexKind, IndexPlan
from doap.collection.index.protocol import (
    DescriptorIndex,
    IndexedImage,
    check_extractor,
    check_probes,
    check_queries,
)

CANDIDATES = 32
"""Additional neighbours by code that are compared exactly. Among a million descriptors the nearest one was the first by
code for 47 % of the queries, and among the first 32 for 92 %."""
# 17 MB of descriptors with 64 candidates and 128 dimensions.
_QUERIES_PER_BLOCK = 512


@dataclass(frozen=True)
class IndexInfo:
    """Contents and costs of an index.

    Attributes:
        kind: Kind of the index.
        rule: Explanation of the choice.
        images: Number of searchable images.
        descriptors: Number of searchable descriptors.
        removed_images: Number of images that were removed, and therefore cannot be added.
        removed_descriptors: Number of descriptors of removed and replaced images that are still in the files.
        bytes: Size of all files.
        bytes_per_descriptor: Size of the FAISS index per descriptor, including 8 bytes for the id. The frames, and the
            original descriptors that `ivf-pq` keeps on disk, are not included.
        memory: Bytes of memory of an open index: the FAISS index, unless its lists stay on disk, and 300 bytes per
            image.
        compared: Number of descriptors and list centres that a query descriptor is compared with.
    """

    kind: IndexKind
    rule: str
    images: int
    descriptors: int
    removed_images: int
    removed_descriptors: int
    bytes: int
    bytes_per_descriptor: float
    memory: int
    compared: int


class Index:
    """An index, in its state at the time of opening: later changes of its folder have no effect on it.

    It keeps its files open, so that it can read them even after a change has deleted them. This does not hold on
    network file systems if another machine changes the index. The first search reads the descriptors.

    Args:
        folder: Folder written by `build_index`.
        in_memory: Read all descriptors or codes into memory. Otherwise the inverted lists stay on disk and are mapped
            into memory, and the system caches as much of them as fits. The results are the same. A flat index has no
            lists and is always read.

    Attributes:
        folder: The folder.
        meta: Contents of meta.json.
        extractor: Identity and settings of the extractor of the features.
        images: Names and ids. The id of a descriptor is the first id of its image plus its position there.
        plan: Kind and parameters.
    """

    def __init__(self, folder: str | Path, *, in_memory: bool = True) -> None:
        self.folder, self.in_memory = local_folder(folder), in_memory
        while True:
            self.meta = read_meta(self.folder)
            try:
                return self._open()
            except DataError:
                # A file is missing because a change has taken effect in the meantime.
                if read_meta(self.folder) == self.meta:
                    raise

    def _open(self) -> None:
        """Open all files that are read later, because they may be deleted."""
        folder, meta = self.folder, self.meta
        check_sizes(folder, meta)
        self.extractor, self.plan = ExtractorInfo(**meta["extractor"]), IndexPlan(**meta["index"])
        self.images = read_images(folder, meta)
        self._file = EngineFile(current_file(folder, meta, "descriptors"), self.extractor.kind)
        self._frames, self._rows = map_frames(folder, meta), map_rows(folder, meta)
        if isinstance(self._rows, np.memmap) and hasattr(mmap, "MADV_RANDOM"):
            # The system would read up to megabytes around every row.
            self._rows._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]

    @property
    def name(self) -> str:
        """Folder of the index, for messages."""
        return str(self.folder)

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
        """Find the nearest descriptors of each query, as described for `DescriptorIndex`.

        Args:
            descriptors: (Q, D) floats or, for binary descriptors, (Q, D/8) uint8.
            k: Number of neighbours; at most the number of descriptors in the index.
            probes: Number of lists searched per query; None is the index's default. Flat indexes have no lists.
            candidates: For `ivf-pq`: the k + `candidates` nearest neighbours by code are compared again with the
                original descriptors on disk. 0 uses codes only, and returns their distances.
        """
        queries = check_queries(self.extractor, descriptors)
        if not 1 <= k <= len(self):
            raise ArgumentError(f"k: expected 1 to {len(self):,}, the number of descriptors in the index, got {k}.")
        check_probes(probes, self.plan.lists)
        if self.plan.lists:
            set_probes(self._engine, probes or self.plan.probes)
        rerank = bool(candidates) and self._rows is not None
        wanted = min(k + candidates, len(self)) if rerank else k
        if self.images.removed.any():
            distances, ids = search_without(self._engine, queries, wanted, self._is_removed)
        else:
            distances, ids = self._engine.search(queries, wanted)
        if rerank:
            distances = self._compare(queries, ids)
            order = np.argsort(distances, axis=1, kind="stable")[:, :k]
            distances, ids = np.take_along_axis(distances, order, 1), np.take_along_axis(ids, order, 1)
        if self.extractor.kind == "real":
            # Rounding may produce values slightly below 0 for identical descriptors.
            np.sqrt(np.maximum(distances, 0, out=distances), out=distances)
        return distances, ids

    def image_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the images of descriptor ids of any shape; −1 for −1."""
        return self.images.image_of(ids)

    def images_at(self, numbers: Iterable[int]) -> list[IndexedImage]:
        """Return images by number."""
        table = self.images
        return [IndexedImage(table.names[n], table.checksums[n], int(table.counts[n])) for n in numbers]

    def find(self, name: str) -> int | None:
        """Return the number of a searchable image; None if there is none of this name."""
        return self.images.numbers.get(name)

    def frames(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read the frames (N, 2, 3) of descriptors with ids (N,)."""
        return np.array(self._frames[self.images.position_of(ids)])

    def info(self) -> IndexInfo:
        """Return contents and costs."""
        plan, images, files, stored = self.plan, self.images, self.meta["files"], self.meta["stored"]
        size = files["descriptors"]["bytes"]
        in_memory = self.in_memory or not plan.lists
        bits = 1 if self.extractor.kind == "binary" else 32
        return IndexInfo(
            kind=plan.kind,
            rule=plan.rule,
            images=len(images.numbers),
            descriptors=len(self),
            removed_images=len(set(images.names) - images.numbers.keys()),
            removed_descriptors=stored - len(self),
            bytes=sum(file["bytes"] for file in files.values()),
            bytes_per_descriptor=size / max(1, stored),
            memory=(size if in_memory else plan.lists * self.extractor.dim * bits // 8) + 300 * len(images),
            compared=plan.lists + round((plan.probes / plan.lists if plan.lists else 1) * len(self)),
        )

    def verify(self, features: str | Path | FeatureSet | None = None) -> None:
        """Read all files and compare them with their checksums; raise `DataError` at the first difference.

        The files of an index that was changed since it was opened may be missing.

        Args:
            features: Check also that the index contains all of these features in their current state.
        """
        check_files(self.folder, self.meta)
        assert self._engine is not None
        if features is None:
            return
        features = as_feature_set(features)
        check_extractor(self.name, self.extractor, features)
        if features.checksum() not in self.meta["sources"]:
            raise DataError(
                f"{features.folder}: {self.name} was not built from these features, or they have changed. Add them "
                "with doap index add."
            )

    @cached_property
    def _engine(self) -> Any:
        """The FAISS index, with the descriptors of removed images."""
        plan = self.plan
        in_memory = self.in_memory or not plan.lists
        return self._file.read(self.meta["stored"], self.extractor.dim, plan.lists, in_memory=in_memory)

    def _is_removed(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether ids of any shape belong to removed images; not for −1."""
        return (ids >= 0) & self.images.removed[self.images.image_of(ids)]

    def _compare(self, queries: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the squared distances (Q, C) of queries (Q, D) to the original descriptors with ids (Q, C).

        For the id −1, the distance is the largest float.
        """
        assert self._rows is not None
        squared = np.full(ids.shape, missing_distance(np.dtype(np.float32)), np.float32)
        for start in range(0, len(queries), _QUERIES_PER_BLOCK):
            block = slice(start, start + _QUERIES_PER_BLOCK)
            query, column = np.nonzero(ids[block] >= 0)
            found = self._rows[self.images.position_of(ids[block][query, column])]
            squared[block][query, column] = np.square(found - queries[block][query]).sum(axis=1)
        return squared


def as_index(index: str | Path | DescriptorIndex) -> DescriptorIndex:
    """Open an index given by its folder; return an open one unchanged."""
    return Index(index) if isinstance(index, str | Path) else index
