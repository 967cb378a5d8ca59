"""Change an index: add and remove images, and compact its files."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.errors import ArgumentError
from doap.scale.extractor import ExtractorInfo
from doap.scale.features import FeatureSet, as_feature_set
from doap.scale.index.build import check_extractor, describe_source
from doap.scale.index.engine import EngineFile, merge_into, replace_ids
from doap.scale.index.folder import map_frames, map_rows, read_images, write_change
from doap.scale.index.segments import FeatureReader, SegmentWriter, next_id
from doap.scale.index.snapshots import change_index
from doap.scale.storage import open_storage
from doap.types import Progress, no_progress

# 16 MB of descriptors with 128 dimensions.
_ROWS_PER_BLOCK = 1 << 16


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


@dataclass(frozen=True)
class Compaction:
    """Effect of `compact_index`.

    Attributes:
        descriptors: Number of descriptors that were deleted from the files.
        bytes_before: Size of all files before.
        bytes_after: Size of all files after.
        segments: Number of segments after.
    """

    descriptors: int
    bytes_before: int
    bytes_after: int
    segments: int


def add_images(
    index: str | Path, features: str | Path | FeatureSet, *, progress: Progress = no_progress
) -> IndexChange:
    """Add the images of a feature set that are not in an index yet, as a new segment, atomically.

    An image whose file has changed replaces the old one. An image that was removed from the index is never added again.
    An open `Index` does not see the change.

    Args:
        index: Folder or URL of the index.
        features: Features from the same extractor.
        progress: Called for every image that is read.
    """
    storage, features = open_storage(index), as_feature_set(features)
    with change_index(storage, needed=("trained", "images")) as (folder, meta):
        check_extractor(str(storage), ExtractorInfo(**meta["extractor"]), features)
        return _add(folder, meta, features, progress)


def _add(folder: Path, meta: dict[str, Any], features: FeatureSet, progress: Progress) -> IndexChange:
    images = read_images(folder, meta)
    removed = set(images.names) - images.numbers.keys()
    known = {name: images.checksums[number] for name, number in images.numbers.items()}
    excluded = removed.intersection(features.names)
    names = [name for name in features.names if name not in removed and known.get(name) != features.checksums[name]]
    replaced = [name for name in names if name in known]
    gone = tuple(sorted(images.numbers.keys() & set(features.manifest["name"].to_pylist()).difference(features.names)))
    unchanged = len(features) - len(names) - len(excluded)
    if not names:
        return IndexChange(unchanged=unchanged, excluded=len(excluded), gone=gone)
    reader = FeatureReader(features, names, meta["training"]["max_keypoints"], progress)
    counts = reader.count()
    reader.total = 2 * len(counts)
    reader.write_segments(folder, meta, counts, segments=1)
    meta["sources"].append(describe_source(features, counts))
    write_change(folder, meta, images.extend(reader.names, reader.checksums, counts, remove=replaced))
    return IndexChange(len(names) - len(replaced), len(replaced), unchanged, len(excluded), gone=gone)


def remove_images(index: str | Path, names: Collection[str]) -> IndexChange:
    """Remove images from an index permanently: searches do not return them, and they cannot be added again.

    Their descriptors stay in the files until `compact_index` deletes them. An open `Index` does not see the change.

    Args:
        index: Folder or URL of the index.
        names: Images to remove.
    """
    storage = open_storage(index)
    with change_index(storage, needed=("images",)) as (folder, meta):
        images = read_images(folder, meta)
        if unknown := sorted(set(names) - images.numbers.keys()):
            reason = "it was removed before" if unknown[0] in images.names else "no such image"
            raise ArgumentError(f"{unknown[0]}: not in {storage}: {reason}.")
        write_change(folder, meta, images.extend([], [], np.empty(0, np.int64), remove=sorted(set(names))))
    return IndexChange(removed=len(set(names)))


def compact_index(index: str | Path, *, segments: int = 1) -> Compaction:
    """Delete the descriptors of removed and replaced images from the files of an index, and merge its segments.

    Searches return the same images as before. The old files are deleted when the new ones are complete; an open `Index`
    keeps using them, and the system frees their space when it is closed. The ids of descriptors change.

    Args:
        index: Folder or URL of the index.
        segments: Maximum number of segments. Memory holds one of them at a time. Segments are merged but not split.
    """
    if segments < 1:
        raise ArgumentError(f"segments: expected 1 or more, got {segments}.")
    with change_index(open_storage(index)) as (folder, meta):
        images = read_images(folder, meta)
        dropped = int(images.counts[images.removed].sum())
        changed = meta
        if dropped or len(meta["segments"]) > segments:
            changed = {**meta, "segments": []}
            kept = np.repeat(~images.removed, images.counts)
            for group in _group(meta["segments"], segments):
                _merge(folder, changed, group, kept)
            changed = write_change(folder, changed, images.compact())
    before, after = (sum(file["bytes"] for file in one["files"].values()) for one in (meta, changed))
    return Compaction(dropped, before, after, len(changed["segments"]))


def _group(segments: list[dict[str, Any]], number: int) -> list[list[dict[str, Any]]]:
    """Return consecutive segments in at most `number` groups of similar size."""
    total = max(1, sum(segment["count"] for segment in segments))
    return [
        list(group)
        for _, group in groupby(segments, key=lambda segment: min(segment["first_id"], total - 1) * number // total)
    ]


def _merge(folder: Path, meta: dict[str, Any], segments: list[dict[str, Any]], kept: NDArray[np.bool_]) -> None:
    """Write one segment of the kept descriptors, a mask (N,) by id, of some consecutive ones."""
    first, last = segments[0]["first_id"], segments[-1]["first_id"] + segments[-1]["count"]
    if not kept[first:last].any():
        return
    files = [EngineFile(folder / segment["index"], meta["extractor"]["kind"]) for segment in segments]
    engine, *others = (file.read(tables=False) for file in files)
    for other in others:
        merge_into(engine, other)
    new_ids = np.where(kept[first:last], next_id(meta) + np.cumsum(kept[first:last]) - 1, -1)
    replace_ids(engine, meta["index"]["kind"], lambda ids: new_ids[ids - first])
    with SegmentWriter(folder, meta) as writer:
        for segment in segments:
            frames, rows = map_frames(folder, segment), map_rows(folder, segment, meta["extractor"]["dim"])
            for block in range(0, segment["count"], _ROWS_PER_BLOCK):
                position = slice(block, min(block + _ROWS_PER_BLOCK, segment["count"]))
                chosen = kept[segment["first_id"] + block : segment["first_id"] + position.stop]
                writer.add(frames[position][chosen], frames if rows is None else rows[position][chosen])
        writer.finish(engine)
