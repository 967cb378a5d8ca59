"""An open index: search it, and report or check its contents."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.errors import DataError
from doap.scale.extractor import ExtractorInfo
from doap.scale.features import FeatureSet, as_feature_set
from doap.scale.index.base import BaseIndex
from doap.scale.index.build import check_extractor
from doap.scale.index.engine import (
    EngineFile,
    IndexKind,
    IndexPlan,
    count_lists,
    list_ids,
    merge_into,
    missing_distance,
    read_engine,
    replace_ids,
    search_without,
    set_probes,
    stack_lists,
)
from doap.scale.index.folder import check_files, map_frames, map_rows, read_images, trained_file
from doap.scale.index.snapshots import check_objects, open_snapshot
from doap.scale.storage import Storage, open_storage
from doap.text import counted

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
        segments: Number of segments.
        bytes: Size of all files.
        bytes_per_descriptor: Size of the segments per descriptor, including 8 bytes for the id. The original
            descriptors that `ivf-pq` keeps on disk are not included.
        memory: Bytes of memory of an open index: the segments, unless they stay on disk, and 300 bytes per image.
        compared: Number of descriptors and list centres that a query descriptor is compared with.
    """

    kind: IndexKind
    rule: str
    images: int
    descriptors: int
    removed_images: int
    removed_descriptors: int
    segments: int
    bytes: int
    bytes_per_descriptor: float
    memory: int
    compared: int


class Index(BaseIndex):
    """An index, in its state at the time of opening: later changes of its folder have no effect on it.

    It keeps its files open, so that it can read them even after `compact_index` has deleted them. This does not hold
    on network file systems if another machine changes the index. The first search reads the descriptors.

    Args:
        folder: Folder or URL written by `build_index`. Files at a URL are copied to a cache on this machine first.
        in_memory: Read all descriptors or codes into memory. Otherwise the inverted lists stay on disk and are mapped
            into memory, and the system caches as much of them as fits. The results are the same. A flat index has no
            lists and is always read.

    Attributes:
        folder: Folder of the files; for an index at a URL, the folder of their copies.
        meta: Contents of meta.json, with the names of the files in the folder.
        extractor: Identity and settings of the extractor of the features.
        images: Names and ids. The id of a descriptor is the first id of its image plus its position there.
        plan: Kind and parameters.
    """

    def __init__(self, folder: str | Path | Storage, *, in_memory: bool = True) -> None:
        self._storage = open_storage(folder) if isinstance(folder, str | Path) else folder
        self.in_memory = in_memory
        open_snapshot(self._storage, self._open)

    def _open(self, folder: Path, meta: dict[str, Any]) -> None:
        """Open all files that are read later, because they may be deleted."""
        self.folder, self.meta = folder, meta
        self.extractor = ExtractorInfo(**meta["extractor"])
        parameters = {name: value for name, value in meta["index"].items() if name != "metric"}
        self.plan = IndexPlan(**parameters)
        self.images = read_images(self.folder, meta)
        self._trained = EngineFile(self.folder / trained_file(meta["files"]), self.kind)
        segments = meta["segments"]
        self._files = [EngineFile(self.folder / segment["index"], self.kind) for segment in segments]
        self._frames = [map_frames(self.folder, segment) for segment in segments]
        self._rows = [map_rows(self.folder, segment, self.dim, sequential=False) for segment in segments]

    @property
    def name(self) -> str:
        """Folder or URL of the index, for messages."""
        return str(self._storage)

    def nearest(self, queries: NDArray[Any], k: int, probes: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the neighbours by the data in the lists; see `BaseIndex.nearest`."""
        if self.plan.lists:
            set_probes(self._engine, probes)
        if self._removed is not None and not self._is_read:
            return search_without(self._engine, queries, k, self._removed)
        return self._engine.search(queries, k)  # type: ignore[no-any-return]

    def compare(self, queries: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the squared distances to the original descriptors; see `BaseIndex.compare`."""
        squared = np.full(ids.shape, missing_distance(np.dtype(np.float32)), np.float32)
        starts = [segment["first_id"] for segment in self.meta["segments"]]
        for start in range(0, len(queries), _QUERIES_PER_BLOCK):
            block = slice(start, start + _QUERIES_PER_BLOCK)
            segment_of = np.where(ids[block] < 0, -1, np.searchsorted(starts, ids[block], side="right") - 1)
            for number in np.unique(segment_of[segment_of >= 0]).tolist():
                query, column = np.nonzero(segment_of == number)
                rows = self._rows[number]
                assert rows is not None
                found = rows[ids[block][query, column] - starts[number]]
                squared[block][query, column] = np.square(found - queries[block][query]).sum(axis=1)
        return squared

    def frames(self, number: int) -> NDArray[np.float32]:
        """Read the frames (N, 2, 3) of the descriptors of an image, in their order."""
        first_id, count = int(self.images.first_ids[number]), int(self.images.counts[number])
        for segment, frames in zip(self.meta["segments"], self._frames, strict=True):
            start = first_id - segment["first_id"]
            if count and 0 <= start < segment["count"]:
                return np.array(frames[start : start + count])
        return np.empty((0, 2, 3), np.float32)

    def info(self) -> IndexInfo:
        """Return contents and costs."""
        plan, images, files = self.plan, self.images, self.meta["files"]
        stored = int(images.counts.sum())
        segments = sum(files[segment["index"]]["bytes"] for segment in self.meta["segments"])
        searched = plan.probes / plan.lists if plan.lists else 1
        return IndexInfo(
            kind=plan.kind,
            rule=plan.rule,
            images=len(images.numbers),
            descriptors=len(self),
            removed_images=len(set(images.names) - images.numbers.keys()),
            removed_descriptors=stored - len(self),
            segments=len(self.meta["segments"]),
            bytes=sum(file["bytes"] for file in files.values()),
            bytes_per_descriptor=segments / max(1, stored),
            memory=(segments if self._is_read else files[trained_file(files)]["bytes"]) + 300 * len(images),
            compared=plan.lists + round(searched * len(self)),
        )

    def verify(self, features: str | Path | FeatureSet | None = None) -> None:
        """Read all files and compare them with their checksums; raise `DataError` at the first difference.

        The files of an index that was changed since it was opened may be missing. At a URL, this reads the files there
        and their copies on this machine.

        Args:
            features: Check also that the index contains all of these features in their current state.
        """
        if self._storage.local is None:
            check_objects(self._storage)
        check_files(self.folder, self.meta)
        for segment in self.meta["segments"]:
            engine = self._check(segment, read_engine(self.folder / segment["index"], self.kind))
            ids = np.sort(list_ids(engine, self.plan.kind))
            first_id = segment["first_id"]
            if not np.array_equal(ids, np.arange(first_id, first_id + segment["count"])):
                raise DataError(
                    f"{self.folder / segment['index']}: the ids do not start at {first_id:,} or are not consecutive. "
                    "Build the index again."
                )
        if features is not None:
            self._verify_source(as_feature_set(features))

    def _verify_source(self, features: FeatureSet) -> None:
        check_extractor(self.name, self.extractor, features)
        if features.checksum() not in {source["checksum"] for source in self.meta["sources"]}:
            raise DataError(
                f"{features.folder}: {self.name} was not built from these features, or they have changed. Add them "
                "with doap index add."
            )

    @property
    def _is_read(self) -> bool:
        """Whether the descriptors are in memory after the first search."""
        return self.in_memory or not self.plan.lists

    @cached_property
    def _removed(self) -> NDArray[np.bool_] | None:
        """(N,) mask of the descriptors of removed images, by id; None if there are none."""
        removed = np.repeat(self.images.removed, self.images.counts)
        return removed if removed.any() else None

    @cached_property
    def _engine(self) -> Any:
        """One FAISS index of all segments, without the removed images if it is in memory."""
        if not self._files:
            return self._trained.read()
        first, others = self._read(0, tables=True), range(1, len(self._files))
        if self._is_read:
            for number in others:
                merge_into(first, self._read(number))
            if (removed := self._removed) is not None:
                replace_ids(first, self.plan.kind, lambda ids: np.where(removed[ids], -1, ids))
            return first
        if not others:
            return first
        engine = self._trained.read()
        self._stacked = stack_lists(engine, [first, *map(self._read, others)])
        return engine

    def _read(self, number: int, tables: bool = False) -> Any:
        engine = self._files[number].read(in_memory=self._is_read, tables=tables)
        return self._check(self.meta["segments"][number], engine)

    def _check(self, segment: dict[str, Any], engine: Any) -> Any:
        """Return the FAISS index of a segment if it has the size, dimension and number of lists in meta.json."""
        expected = segment["count"], self.dim, self.plan.lists
        found = engine.ntotal, engine.d, count_lists(engine)
        if found != expected:
            wanted, got = (
                f"{counted(count, 'descriptor')} with D = {dim} in {counted(lists, 'list')}"
                for count, dim, lists in (expected, found)
            )
            path = self.folder / segment["index"]
            raise DataError(f"{path}: expected {wanted}, got {got}. Copy or build the index again.")
        return engine
