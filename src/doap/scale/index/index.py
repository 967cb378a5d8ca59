"""An open index: search it, and report or check its contents."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.checks import check_finite, check_shape
from doap.errors import ArgumentError, DataError
from doap.scale.extractor import ExtractorInfo
from doap.scale.features import FeatureSet, as_feature_set
from doap.scale.index.build import check_extractor
from doap.scale.index.engine import IndexKind, list_ids, merge_into, read_engine, set_probes
from doap.scale.index.folder import check_files, read_images, read_meta
from doap.types import Kind

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
        removed_images: Number of removed images that are still in the files.
        removed_descriptors: Number of their descriptors.
        shards: Number of shards.
        bytes: Size of all files.
        bytes_per_descriptor: Size of the shards per descriptor, including 8 bytes for the id. Shards are kept in
            memory. The original descriptors that `ivf-pq` keeps on disk are not included.
        memory: Bytes of memory of an open index: the shards and about 300 bytes per image.
        compared: Number of descriptors and list centres that a query descriptor is compared with.
    """

    kind: IndexKind
    rule: str
    images: int
    descriptors: int
    removed_images: int
    removed_descriptors: int
    shards: int
    bytes: int
    bytes_per_descriptor: float
    memory: int
    compared: int


class Index:
    """An index, in its state at the time of opening. The first search reads the descriptors.

    Args:
        folder: Folder written by `build_index`.

    Attributes:
        meta: Contents of meta.json.
        extractor: Identity and settings of the extractor of the features.
        images: Names and ids. The id of a descriptor is the first id of its image plus its position there.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.meta: dict[str, Any] = read_meta(self.folder)
        self.extractor = ExtractorInfo(**self.meta["extractor"])
        self.images = read_images(self.folder, self.meta)

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
            Distances (Q, k), Euclidean float32 or Hamming int32, increasing, and ids (Q, k). If the searched lists hold
            fewer than k descriptors, the remaining ids are −1 and their distances are meaningless.
        """
        binary = self.kind == "binary"
        check_shape(descriptors, f"Q {self.dim // 8 if binary else self.dim}", name="descriptors")
        queries = np.asarray(descriptors.cpu() if isinstance(descriptors, Tensor) else descriptors)
        if (queries.dtype == np.uint8) != binary:
            raise ArgumentError(f"descriptors: expected {self.kind} descriptors as in the index, got {queries.dtype}.")
        if not 1 <= k <= len(self):
            raise ArgumentError(f"k: expected 1 to {len(self):,}, the number of descriptors in the index, got {k}.")
        self._set_probes(probes)
        if binary:
            return self._engine.search(np.ascontiguousarray(queries), k)  # type: ignore[no-any-return]
        queries = np.ascontiguousarray(queries, np.float32)
        check_finite(torch.from_numpy(queries), name="descriptors")
        if candidates and self.meta["index"]["kind"] == "ivf-pq":
            _, ids = self._engine.search(queries, min(k + candidates, len(self)))
            squared, ids = self._compare_exactly(queries, ids, k)
        else:
            squared, ids = self._engine.search(queries, k)
        # Rounding may produce values slightly below 0 for identical descriptors.
        return np.sqrt(np.maximum(squared, 0, out=squared), out=squared), ids

    def image_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the images of descriptor ids of any shape; −1 for −1."""
        # An image without descriptors has the same first id as the next image; the last of them has the descriptor.
        return np.where(ids < 0, -1, np.searchsorted(self.images.first_ids, ids, side="right") - 1)

    def frames(self, number: int) -> NDArray[np.float32]:
        """Read the frames (N, 2, 3) of the descriptors of an image, in their order."""
        first_id, count = int(self.images.first_ids[number]), int(self.images.counts[number])
        for shard in self.meta["shards"]:
            start = first_id - shard["first_id"]
            if count and 0 <= start < shard["count"]:
                return np.array(self._map_frames(shard)[start : start + count])
        return np.empty((0, 2, 3), np.float32)

    def info(self) -> IndexInfo:
        """Return contents and costs."""
        plan, images, files = self.meta["index"], self.images, self.meta["files"]
        stored = int(images.counts.sum())
        shards = sum(files[shard["index"]]["bytes"] for shard in self.meta["shards"])
        searched = plan["probes"] / plan["lists"] if plan["lists"] else 1
        return IndexInfo(
            kind=plan["kind"],
            rule=plan["rule"],
            images=len(images.numbers),
            descriptors=len(self),
            removed_images=int(images.removed.sum()),
            removed_descriptors=stored - len(self),
            shards=len(self.meta["shards"]),
            bytes=sum(file["bytes"] for file in files.values()),
            bytes_per_descriptor=shards / stored,
            memory=shards + 300 * len(images),
            compared=plan["lists"] + round(searched * len(self)),
        )

    def verify(self, features: str | Path | FeatureSet | None = None) -> None:
        """Read all files and compare them with their checksums; raise `DataError` at the first difference.

        Args:
            features: Check also that the index contains all of these features in their current state.
        """
        check_files(self.folder, self.meta)
        expected = 0
        for shard in self.meta["shards"]:
            ids = np.sort(list_ids(self._read_shard(shard), self.meta["index"]["kind"]))
            consecutive = np.array_equal(ids, np.arange(expected, expected + shard["count"]))
            if shard["first_id"] != expected or not consecutive:
                raise DataError(
                    f"{self.folder / shard['index']}: the ids do not start at {expected:,} or are not consecutive. "
                    "Build the index again."
                )
            expected += shard["count"]
            if self._map_frames(shard).shape != (shard["count"], 2, 3):
                raise DataError(
                    f"{self.folder / shard['frames']}: the number of frames differs from the number of descriptors. "
                    "Build the index again."
                )
        if (stored := int(self.images.counts.sum())) != expected:
            raise DataError(
                f"{self.folder}: the shards hold {expected:,} descriptors, but the images {stored:,}. Build it again."
            )
        if features is not None:
            self._verify_source(as_feature_set(features))

    def _verify_source(self, features: FeatureSet) -> None:
        check_extractor(self.folder, self.meta, features)
        if features.checksum() not in {source["checksum"] for source in self.meta["sources"]}:
            raise DataError(
                f"{features.folder}: {self.folder} was not built from these features, or they have changed. Add them "
                "with doap index add."
            )

    def _compare_exactly(
        self, queries: NDArray[np.float32], ids: NDArray[np.int64], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return squared distances (Q, k) and ids (Q, k) of the nearest k of candidates (Q, C)."""
        squared = np.full(ids.shape, np.finfo(np.float32).max, np.float32)
        starts = [shard["first_id"] for shard in self.meta["shards"]]
        for start in range(0, len(queries), _QUERIES_PER_BLOCK):
            block = slice(start, start + _QUERIES_PER_BLOCK)
            shard_of = np.searchsorted(starts, ids[block], side="right") - 1
            for number in np.unique(shard_of[shard_of >= 0]).tolist():
                query, column = np.nonzero(shard_of == number)
                rows = self._rows[number][ids[block][query, column] - starts[number]]
                squared[block][query, column] = np.square(rows - queries[block][query]).sum(axis=1)
        order = np.argsort(squared, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(squared, order, 1), np.take_along_axis(ids, order, 1)

    @cached_property
    def _rows(self) -> dict[int, NDArray[np.float16]]:
        """(N, D) memory-mapped descriptors of each shard that has any."""
        return {
            number: np.memmap(self.folder / shard["rows"], np.float16, "r", shape=(shard["count"], self.dim))
            for number, shard in enumerate(self.meta["shards"])
            if shard["count"]
        }

    @cached_property
    def _engine(self) -> Any:
        """One FAISS index of all shards, without the removed images."""
        engine, *others = (self._read_shard(shard) for shard in self.meta["shards"])
        for other in others:
            merge_into(engine, other)
        removed = np.flatnonzero(self.images.removed)
        if len(removed):
            first_ids, counts = self.images.first_ids[removed], self.images.counts[removed]
            ids = [np.arange(first, first + count) for first, count in zip(first_ids, counts, strict=True)]
            engine.remove_ids(np.concatenate(ids))
        return engine

    def _set_probes(self, probes: int | None) -> None:
        plan = self.meta["index"]
        if probes is not None and not plan["lists"]:
            raise ArgumentError(f"probes: expected None because a flat index has no lists, got {probes}.")
        if probes is not None and not 1 <= probes <= plan["lists"]:
            raise ArgumentError(f"probes: expected 1 to {plan['lists']}, the number of lists, got {probes}.")
        if plan["lists"]:
            set_probes(self._engine, probes or plan["probes"])

    def _read_shard(self, shard: dict[str, Any]) -> Any:
        engine = read_engine(self.folder / shard["index"], self.kind)
        if engine.ntotal != shard["count"] or engine.d != self.dim:
            raise DataError(
                f"{self.folder / shard['index']}: expected {shard['count']:,} descriptors with D = {self.dim}, got "
                f"{engine.ntotal:,} with D = {engine.d}. Copy or build the index again."
            )
        return engine

    def _map_frames(self, shard: dict[str, Any]) -> NDArray[np.float32]:
        path = self.folder / shard["frames"]
        try:
            return np.load(path, mmap_mode="r" if shard["count"] else None, allow_pickle=False)  # type: ignore[no-any-return]
        # numpy parses the header as Python code, whose parser raises many types of errors.
        except Exception as error:
            raise DataError(f"{path}: damaged. Copy or build the index again.") from error


def as_index(index: str | Path | Index) -> Index:
    """Open an index given by its folder; return an open one unchanged."""
    return index if isinstance(index, Index) else Index(index)
