"""Train the quantiser of an index, and build an index from features."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.errors import ArgumentError, DataError
from doap.files import OutputLock, atomic_write, beside, make_folder
from doap.scale.extractor import ExtractorInfo
from doap.scale.features import FeatureSet, as_feature_set
from doap.scale.index.engine import MIN_PER_LIST, IndexKind, IndexPlan, new_engine, plan_index, write_engine
from doap.scale.index.folder import FORMAT, NO_IMAGES, trained_file, write_change
from doap.scale.index.segments import FeatureReader
from doap.scale.index.snapshots import open_snapshot, working_folder
from doap.scale.storage import Storage, open_storage
from doap.types import Progress, no_progress


def build_index(
    features: str | Path | FeatureSet,
    out: str | Path,
    *,
    kind: IndexKind | None = None,
    quantiser: str | Path | None = None,
    segments: int = 1,
    max_keypoints: int | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Path | str:
    """Build an index of the local descriptors of many images.

    The features are read four times (to count, train, add and hash), with a few images in memory at a time. Memory also
    holds the training sample, 64 descriptors per list, and one segment.

    Args:
        features: Features of the images, from `doap.extract_folder`.
        out: Folder or URL of the index. It must not exist, and appears when it is complete.
        kind: Kind of the index; None chooses it by the number of descriptors, see `plan_index`.
        quantiser: Index to take the trained quantiser, the kind and `max_keypoints` from, such as one written by
            `train_index`. Indexes with the same quantiser can be searched as one, see `ShardedIndex`.
        segments: Number of files of nearly equal size, which are searched as one; at most one per image.
        max_keypoints: Maximum number of keypoints per image; None uses all.
        seed: Random seed of the training sample.
        progress: Called for every image that is read.

    Returns:
        `out`, as a path unless it is a URL of an object store.
    """
    features = as_feature_set(features)
    if segments < 1 or (max_keypoints is not None and max_keypoints < 1):
        raise ArgumentError(f"segments and max_keypoints: expected 1 or more, got {segments} and {max_keypoints}.")
    if quantiser is not None and (kind, max_keypoints) != (None, None):
        raise ArgumentError(f"kind and max_keypoints: expected None, because {quantiser} determines them.")
    storage = open_storage(out)
    with _new_folder(storage) as folder:
        if quantiser is not None:
            meta = _copy_quantiser(open_storage(quantiser), folder, features)
            max_keypoints = meta["training"]["max_keypoints"]
        reader = FeatureReader(features, features.names, max_keypoints, progress)
        counts = _count(reader)
        if quantiser is None:
            plan = plan_index(int(counts.sum()), features.kind, features.dim, kind)
            meta = _train(reader, counts, folder, plan, max_keypoints, seed, passes=2)
        else:
            reader.total = 2 * len(counts)
        reader.write_segments(folder, meta, counts, segments)
        meta["sources"].append(describe_source(features, counts))
        write_change(folder, meta, NO_IMAGES.extend(reader.names, reader.checksums, counts, remove=[]))
    return storage.local or str(out)


def train_index(
    features: str | Path | FeatureSet,
    out: str | Path,
    *,
    kind: IndexKind | None = None,
    descriptors: int | None = None,
    max_keypoints: int | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Path | str:
    """Train the quantiser of a sharded index, and write it as an index without images.

    Pass it to `build_index` as `quantiser` for every shard.

    Args:
        features: Features of a representative part of the collection, or of all of it.
        out: Folder or URL of the index. It must not exist, and appears when it is complete.
        kind: Kind of the index; None chooses it by the number of descriptors, see `plan_index`.
        descriptors: Number of descriptors in all shards together, which determines the kind and the number of lists;
            None is the number in `features`.
        max_keypoints: Maximum number of keypoints per image, here and in the shards; None uses all.
        seed: Random seed of the training sample.
        progress: Called for every image that is read.

    Returns:
        `out`, as a path unless it is a URL of an object store.
    """
    features = as_feature_set(features)
    storage = open_storage(out)
    for name, value in (("descriptors", descriptors), ("max_keypoints", max_keypoints)):
        if value is not None and value < 1:
            raise ArgumentError(f"{name}: expected 1 or more, got {value}.")
    with _new_folder(storage) as folder:
        reader = FeatureReader(features, features.names, max_keypoints, progress)
        counts = _count(reader)
        available = int(counts.sum())
        plan = plan_index(descriptors or available, features.kind, features.dim, kind)
        if available < (needed := MIN_PER_LIST * plan.lists):
            raise ArgumentError(
                f"{features.folder}: expected {needed:,} descriptors or more to train {plan.lists:,} lists, got "
                f"{available:,}. Extract more images."
            )
        plan = dataclasses.replace(plan, sample=min(plan.sample, available))
        meta = _train(reader, counts, folder, plan, max_keypoints, seed, passes=1)
        write_change(folder, meta, NO_IMAGES)
    return storage.local or str(out)


@contextmanager
def _new_folder(storage: Storage) -> Iterator[Path]:
    """Yield an empty folder, which becomes that of the index on success, or is published at its URL."""
    if (out := storage.local) is None:
        with working_folder(storage, None) as folder:
            yield folder
        return
    with OutputLock(make_folder(out.parent) / out.name):
        if out.exists():
            hint = "Delete it, choose another folder, or add to it with doap index add."
            raise DataError(f"{out}: already exists. {hint}")
        unfinished = beside(out, "{}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            yield make_folder(unfinished)
        except Exception:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        unfinished.rename(out)


def _count(reader: FeatureReader) -> NDArray[np.int64]:
    counts = reader.count()
    if not counts.sum():
        raise DataError(f"{reader.features.folder}: none of the images has a keypoint.")
    return counts


def _train(
    reader: FeatureReader,
    counts: NDArray[np.int64],
    folder: Path,
    plan: IndexPlan,
    max_keypoints: int | None,
    seed: int,
    *,
    passes: int,
) -> dict[str, Any]:
    """Write the trained index and return the metadata of an index without images.

    Args:
        passes: Number of times that the features are read without training, for the display of progress.
    """
    features = reader.features
    engine = new_engine(plan, features.kind, features.dim)
    reader.total = len(counts) * (passes + (plan.sample > 0))
    if plan.sample:
        engine.train(reader.sample(counts, plan.sample, seed))
    with atomic_write(folder / "trained.faiss") as file:
        write_engine(engine, file)
    return {
        "format": FORMAT,
        "revision": 0,
        "index": dataclasses.asdict(plan) | {"metric": "hamming" if features.kind == "binary" else "euclidean"},
        "extractor": dataclasses.asdict(features.extractor),
        "training": {"sample": plan.sample, "seed": seed, "max_keypoints": max_keypoints},
        "segments": [],
        "next_segment": 1,
        "sources": [],
        "files": {},
    }


def _copy_quantiser(quantiser: Storage, folder: Path, features: FeatureSet) -> dict[str, Any]:
    """Copy the trained index of another index and return the metadata of an index without images."""

    def copy(source: Path, meta: dict[str, Any]) -> dict[str, Any]:
        check_extractor(str(quantiser), ExtractorInfo(**meta["extractor"]), features)
        with atomic_write(folder / "trained.faiss") as file:
            shutil.copyfile(source / trained_file(meta["files"]), file)
        return meta

    meta = open_snapshot(quantiser, copy, needed=("trained",))
    return {**meta, "revision": 0, "segments": [], "next_segment": 1, "sources": [], "files": {}}


def check_extractor(index: str, extractor: ExtractorInfo, features: FeatureSet) -> None:
    """Refuse features that cannot be compared with the descriptors of the named index."""
    if difference := extractor.difference(features.extractor):
        raise DataError(f"{features.folder}: the features do not fit the index {index}: {difference}.")


def describe_source(features: FeatureSet, counts: NDArray[np.int64]) -> dict[str, Any]:
    """Return the entry of a feature set in meta.json."""
    return {"checksum": features.checksum(), "images": len(counts), "descriptors": int(counts.sum())}
