"""An index that is open: search it, ask what it holds, check it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from doap.checks import check_shape
from doap.errors import ArgumentError, DataError
from doap.scale.features import FeatureSet
from doap.scale.index.build import check_extractor
from doap.scale.index.engine import IndexKind, ids_of, merge_into, read_engine, set_probes
from doap.scale.index.folder import check_files, read_images, read_meta
from doap.types import Kind

CANDIDATES = 32
"""Of a million descriptors the nearest was the nearest by its code for 47 in 100 queries, and among 32 for 92."""
# 17 MB of descriptors, with 64 candidates of 128 numbers.
_QUERIES_AT_ONCE = 512


@dataclass(frozen=True)
class IndexInfo:
    """What an index holds and costs.

    Attributes:
        kind, rule: of the index, and why it was chosen.
        images, descriptors: that can be found.
        removed_images, removed_descriptors: that are in the files and cannot.
        shards: files that hold the descriptors.
        bytes: of all files.
        bytes_per_descriptor: of the shards, which are what is in memory; ids are 8 of them. Not the descriptors
            themselves that `ivf-pq` has on disk beside its codes.
        memory: bytes that an open index needs: the shards, and about 300 for each image.
        compared: descriptors and centres of lists that one query descriptor is compared with.
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
    """An index, as it is when it is opened; the descriptors are read at the first search.

    Args:
        folder: that `build_index` made.

    Attributes:
        meta: what meta.json holds.
        images: names and ids; a descriptor's id is its image's first id and its place there.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.meta: dict[str, Any] = read_meta(self.folder)
        self.images = read_images(self.folder, self.meta)

    @property
    def kind(self) -> Kind:
        """Of the descriptors: `real` or `binary`."""
        kind: Kind = self.meta["extractor"]["kind"]
        return kind

    @property
    def dim(self) -> int:
        """D, numbers or bits."""
        return int(self.meta["extractor"]["dim"])

    @property
    def names(self) -> list[str]:
        """Of the images that can be found, sorted."""
        return sorted(self.images.number_of)

    def __len__(self) -> int:
        """Descriptors that can be found."""
        return int(self.images.count[~self.images.removed].sum())

    def search(
        self,
        descriptors: Tensor | NDArray[Any],
        k: int,
        *,
        probes: int | None = None,
        candidates: int = CANDIDATES,
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The nearest descriptors.

        Args:
            descriptors: (Q, D) floats or, for bits, (Q, D/8) uint8.
            k: how many; not more than there are.
            probes: lists to look through for each query; as the index was planned if not given. Flat has no lists.
            candidates: for codes (`ivf-pq`): the k + `candidates` nearest by their codes are compared again by the
                descriptors themselves, which are on disk. With 0 codes decide, and distances are theirs.

        Returns:
            Distances (Q, k), Euclidean float32 or Hamming int32, increasing, and ids (Q, k). Where the lists that were
            looked through hold fewer than k, the id is −1 and the distance is meaningless and large.
        """
        binary = self.kind == "binary"
        check_shape(descriptors, f"Q {self.dim // 8 if binary else self.dim}", name="descriptors")
        queries = np.asarray(descriptors.cpu() if isinstance(descriptors, Tensor) else descriptors)
        if (queries.dtype == np.uint8) != binary:
            raise ArgumentError(f"descriptors: expected {self.kind} ones, as in the index, got {queries.dtype}")
        if not 1 <= k <= len(self):
            raise ArgumentError(f"k: expected 1 to {len(self):,}, the descriptors of the index, got {k}")
        self._set_probes(probes)
        if binary:
            return self._engine.search(np.ascontiguousarray(queries), k)  # type: ignore[no-any-return]
        queries = np.ascontiguousarray(queries, np.float32)
        if candidates and self.meta["index"]["kind"] == "ivf-pq":
            squared, ids = self._compared(queries, self._engine.search(queries, min(k + candidates, len(self)))[1], k)
        else:
            squared, ids = self._engine.search(queries, k)
        # Rounding may leave a little less than 0 where a descriptor meets itself.
        return np.sqrt(np.maximum(squared, 0, out=squared), out=squared), ids

    def image_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of the images that descriptors are from, of any shape; −1 for −1."""
        # Images without descriptors have the first id of the next: the last of equals is the one that has the id.
        return np.where(ids < 0, -1, np.searchsorted(self.images.first, ids, side="right") - 1)

    def frames(self, number: int) -> NDArray[np.float32]:
        """(N, 2, 3) of the descriptors of an image, in their order; only they are read."""
        first, count = int(self.images.first[number]), int(self.images.count[number])
        for shard in self.meta["shards"]:
            begin = first - shard["first"]
            if count and 0 <= begin < shard["count"]:
                return np.array(self._map_frames(shard)[begin : begin + count])
        return np.empty((0, 2, 3), np.float32)

    def info(self) -> IndexInfo:
        """Counts and costs."""
        plan, images, files = self.meta["index"], self.images, self.meta["files"]
        held = int(images.count.sum())
        shards = sum(files[shard["index"]]["bytes"] for shard in self.meta["shards"])
        share = plan["probes"] / plan["lists"] if plan["lists"] else 1
        return IndexInfo(
            kind=plan["kind"],
            rule=plan["rule"],
            images=len(images.number_of),
            descriptors=len(self),
            removed_images=int(images.removed.sum()),
            removed_descriptors=held - len(self),
            shards=len(self.meta["shards"]),
            bytes=sum(file["bytes"] for file in files.values()),
            bytes_per_descriptor=shards / held,
            memory=shards + 300 * len(images),
            compared=plan["lists"] + round(share * len(self)),
        )

    def verify(self, features: FeatureSet | None = None) -> None:
        """Read all files, and raise `DataError` at the first thing that is not as it was written.

        Args:
            features: that should be all in the index as they are now, if given.
        """
        check_files(self.folder, self.meta)
        expected = 0
        for shard in self.meta["shards"]:
            engine = self._read_shard(shard)
            ids = np.sort(ids_of(engine, self.meta["index"]["kind"]))
            if shard["first"] != expected or not np.array_equal(ids, np.arange(expected, expected + shard["count"])):
                raise DataError(
                    f"{self.folder / shard['index']}: expected the ids from {expected:,} on, got others; "
                    "build the index again"
                )
            expected += shard["count"]
            if self._map_frames(shard).shape != (shard["count"], 2, 3):
                raise DataError(
                    f"{self.folder / shard['frames']}: expected a frame for each descriptor, got others; "
                    "build the index again"
                )
        if (held := int(self.images.count.sum())) != expected:
            raise DataError(f"{self.folder}: expected images of {expected:,} descriptors, got {held:,}; build it again")
        if features is not None:
            check_extractor(self.folder, self.meta, features)
            if features.checksum() not in {source["checksum"] for source in self.meta["sources"]}:
                raise DataError(
                    f"{features.folder}: expected the features that {self.folder} was made from, got others or changed "
                    "ones; add them with doap index add"
                )

    def _compared(
        self, queries: NDArray[np.float32], ids: NDArray[np.int64], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The nearest k of candidates (Q, C) by the descriptors themselves: squared distances (Q, k) and ids (Q, k)."""
        squared = np.full(ids.shape, np.finfo(np.float32).max, np.float32)
        starts = [shard["first"] for shard in self.meta["shards"]]
        for begin in range(0, len(queries), _QUERIES_AT_ONCE):
            some = slice(begin, begin + _QUERIES_AT_ONCE)
            shard_of = np.searchsorted(starts, ids[some], side="right") - 1
            for number in np.unique(shard_of[shard_of >= 0]).tolist():
                query, column = np.nonzero(shard_of == number)
                rows = self._rows[number][ids[some][query, column] - starts[number]]
                squared[some][query, column] = np.square(rows - queries[some][query]).sum(axis=1)
        order = np.argsort(squared, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(squared, order, 1), np.take_along_axis(ids, order, 1)

    @cached_property
    def _rows(self) -> dict[int, NDArray[np.float16]]:
        """(N, D) of each shard that has any, mapped: what is not asked for is not read."""
        return {
            number: np.memmap(self.folder / shard["rows"], np.float16, "r", shape=(shard["count"], self.dim))
            for number, shard in enumerate(self.meta["shards"])
            if shard["count"]
        }

    @cached_property
    def _engine(self) -> Any:
        """All shards as one index of FAISS, without what was removed."""
        whole, *others = (self._read_shard(shard) for shard in self.meta["shards"])
        for other in others:
            merge_into(whole, other)
        removed = np.flatnonzero(self.images.removed)
        if len(removed):
            first, count = self.images.first[removed], self.images.count[removed]
            # FAISS takes ids one by one: those of an image follow each other.
            whole.remove_ids(np.concatenate([np.arange(f, f + c) for f, c in zip(first, count, strict=True)]))
        return whole

    def _set_probes(self, probes: int | None) -> None:
        plan = self.meta["index"]
        if probes is not None and not 1 <= probes <= plan["lists"]:
            told = f"1 to {plan['lists']}, the lists of the index" if plan["lists"] else "none, for flat has no lists"
            raise ArgumentError(f"probes: expected {told}, got {probes}")
        if plan["lists"]:
            set_probes(self._engine, probes or plan["probes"])

    def _read_shard(self, shard: dict[str, Any]) -> Any:
        engine = read_engine(self.folder / shard["index"], self.kind)
        if engine.ntotal != shard["count"] or engine.d != self.dim:
            found = f"{engine.ntotal:,} of {engine.d}"
            raise DataError(
                f"{self.folder / shard['index']}: expected {shard['count']:,} descriptors of {self.dim}, got {found}; "
                "copy or build the index again"
            )
        return engine

    def _map_frames(self, shard: dict[str, Any]) -> NDArray[np.float32]:
        path = self.folder / shard["frames"]
        try:
            return np.load(path, mmap_mode="r" if shard["count"] else None, allow_pickle=False)  # type: ignore[no-any-return]
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: expected frames, got a damaged file; copy or build the index again") from error
