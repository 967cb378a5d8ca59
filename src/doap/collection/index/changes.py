"""Build an index from features, and change it: add and remove images, and compact its files."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import ArgumentError, DataError
from doap._support.files import atomic_write, new_folder
from doap._support.random_streams import stream
from doap.collection.extractor import ExtractorInfo
from doap.collection.features import FeatureSet, StoredImage, as_feature_set
from doap.collection.index.engine import EngineFile, new_engine, write_engine
from doap.collection.index.folder import (
    FORMAT,
    NO_IMAGES,
    Append,
    ImageTable,
    array_files,
    change_folder,
    commit,
    current_file,
    local_folder,
    map_frames,
    map_rows,
    new_file,
    read_images,
)
from doap.collection.index.plan import IndexKind, plan_index
from doap.collection.index.protocol import IndexChange, check_extractor, plan_change
from doap.types import Progress, no_progress

# 16 MB of descriptors with 128 dimensions.
_ROWS_PER_BLOCK = 1 << 16


@dataclass(frozen=True)
class Compaction:
    """Effect of `compact_index`.

    Attributes:
        descriptors: Number of descriptors that were deleted from the files.
        bytes_before: Size of all files before.
        bytes_after: Size of all files after.
    """

    descriptors: int
    bytes_before: int
    bytes_after: int


def build_index(
    features: str | Path | FeatureSet,
    out: str | Path,
    *,
    kind: IndexKind | None = None,
    max_keypoints: int | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Path:
    """Build an index of the local descriptors of many images.

    The features are read three times (to count, train and add), with a few images in memory at a time. Memory also
    holds the training sample, 64 descriptors per list, and the index.

    Args:
        features: Features of the images, from `doap.extract_folder`.
        out: Folder of the index. It must not exist, and appears when it is complete.
        kind: Kind of the index; None chooses it by the number of descriptors, see `plan_index`.
        max_keypoints: Maximum number of keypoints per image; None uses all.
        seed: Random seed of the training sample.
        progress: Called for every image that is read.

    Returns:
        `out` as a path.
    """
    features, folder = as_feature_set(features), local_folder(out)
    if max_keypoints is not None and max_keypoints < 1:
        raise ArgumentError(f"max_keypoints: expected 1 or more, got {max_keypoints}.")
    with new_folder(folder, "Choose another folder, or add to it with doap index add.") as unfinished:
        reader = FeatureReader(features, features.names, max_keypoints, progress)
        counts = reader.count()
        if not counts.sum():
            raise DataError(f"{features.folder}: none of the images has a keypoint.")
        plan = plan_index(int(counts.sum()), features.kind, features.dim, kind)
        engine = new_engine(plan, features.kind, features.dim)
        reader.total = len(counts) * (3 if plan.sample else 2)
        if plan.sample:
            engine.train(reader.sample(counts, plan.sample, seed))
        meta = {
            "format": FORMAT,
            "revision": 0,
            "index": dataclasses.asdict(plan),
            "extractor": dataclasses.asdict(features.extractor),
            "seed": seed,
            "max_keypoints": max_keypoints,
            "stored": 0,
            "sources": [],
            "files": {},
        }
        _write(unfinished, meta, engine, NO_IMAGES, reader, counts)
    return folder


def add_images(
    index: str | Path, features: str | Path | FeatureSet, *, progress: Progress = no_progress
) -> IndexChange:
    """Add the images of a feature set that are not in an index yet, atomically.

    An image whose file has changed replaces the old one. An image that was removed from the index is never added again.
    The files are written again, so the time grows with the size of the index. An open `Index` does not see the change.

    Args:
        index: Folder of the index.
        features: Features from the same extractor.
        progress: Called for every image that is read.
    """
    folder, features = local_folder(index), as_feature_set(features)
    with change_folder(folder) as meta:
        check_extractor(str(folder), ExtractorInfo(**meta["extractor"]), features)
        images = read_images(folder, meta)
        known = {name: images.checksums[number] for name, number in images.numbers.items()}
        change, names = plan_change(features, known, set(images.names) - known.keys())
        if names:
            reader = FeatureReader(features, names, meta["max_keypoints"], progress)
            counts = reader.count()
            reader.total = 2 * len(counts)
            replaced = [name for name in names if name in known]
            _write(folder, meta, _read_engine(folder, meta), images, reader, counts, replaced)
    return change


def remove_images(index: str | Path, names: Collection[str]) -> IndexChange:
    """Remove images from an index permanently: searches do not return them, and they cannot be added again.

    Their descriptors stay in the files until `compact_index` deletes them. An open `Index` does not see the change.

    Args:
        index: Folder of the index.
        names: Images to remove.
    """
    folder = local_folder(index)
    with change_folder(folder) as meta:
        images = read_images(folder, meta)
        if unknown := sorted(set(names) - images.numbers.keys()):
            reason = "it was removed before" if unknown[0] in images.names else "no such image"
            raise ArgumentError(f"{unknown[0]}: not in {folder}: {reason}.")
        commit(folder, meta, images.extend([], [], np.empty(0, np.int64), remove=sorted(set(names))))
    return IndexChange(removed=len(set(names)))


def compact_index(index: str | Path) -> Compaction:
    """Delete the descriptors of removed and replaced images from the files of an index.

    Searches return the same images as before. The old files are deleted when the new ones are complete; an open `Index`
    keeps using them, and the system frees their space when it is closed.

    Args:
        index: Folder of the index.
    """
    folder = local_folder(index)
    with change_folder(folder) as meta:
        images = read_images(folder, meta)
        dropped = int(images.counts[images.removed].sum())
        before = after = sum(file["bytes"] for file in meta["files"].values())
        if dropped:
            engine = _read_engine(folder, meta)
            removed = [images.ids_of(number) for number in np.flatnonzero(images.removed).tolist()]
            engine.remove_ids(np.concatenate(removed))
            with array_files(folder, meta, meta["stored"] - dropped) as append:
                _copy(folder, meta, append, np.repeat(~images.removed, images.counts))
            with atomic_write(new_file(folder, meta, "descriptors")) as file:
                write_engine(engine, file)
            after = sum(file["bytes"] for file in commit(folder, meta, images.compact())["files"].values())
    return Compaction(dropped, before, after)


class FeatureReader:
    """Reads the features of some images several times in the same order."""

    def __init__(
        self, features: FeatureSet, names: Sequence[str], max_keypoints: int | None, progress: Progress
    ) -> None:
        self.features, self._wanted, self._max_keypoints, self._progress = features, names, max_keypoints, progress
        self.names: list[str] = []
        self.checksums: list[str] = []
        self.total, self._done = 0, 0

    def count(self) -> NDArray[np.int64]:
        """Return the number of descriptors per image (I,), and set names and checksums."""
        counts = []
        for image in self.images():
            self.names.append(image.name)
            self.checksums.append(image.checksum)
            counts.append(len(image.features))
        return np.array(counts, np.int64)

    def sample(self, counts: NDArray[np.int64], size: int, seed: int) -> NDArray[Any]:
        """Return random descriptors (size, D), in their order."""
        random = stream(seed, "index")
        chosen = np.sort(random.choice(int(counts.sum()), size, replace=False, shuffle=False))
        # (I + 1,) each: image i starts at starts[i], and chosen[ends[i] : ends[i + 1]] are its chosen rows.
        starts = np.concatenate([[0], counts.cumsum()])
        ends = np.searchsorted(chosen, starts)
        rows = []
        for number, image in enumerate(self.images()):
            rows.append(image.features.descriptors.numpy()[chosen[ends[number] : ends[number + 1]] - starts[number]])
        return np.concatenate(rows)

    def images(self) -> Iterator[StoredImage]:
        """Yield the images, each with its strongest keypoints."""
        for image in self.features.stream(self._wanted):
            self._done += 1
            self._progress(self._done, self.total, image.name)
            yield dataclasses.replace(image, features=image.features.strongest(self._max_keypoints))


def _write(
    folder: Path,
    meta: dict[str, Any],
    engine: Any,
    images: ImageTable,
    reader: FeatureReader,
    counts: NDArray[np.int64],
    replaced: Sequence[str] = (),
) -> None:
    """Append images to the files of an index, and make the change take effect."""
    extended = images.extend(reader.names, reader.checksums, counts, remove=replaced)
    with array_files(folder, meta, int(extended.counts.sum())) as append:
        if len(images):
            _copy(folder, meta, append)
        for number, image in enumerate(reader.images(), start=len(images)):
            descriptors = image.features.descriptors.contiguous().numpy()
            engine.add_with_ids(descriptors, extended.ids_of(number))
            append(image.features.frames, descriptors)
    with atomic_write(new_file(folder, meta, "descriptors")) as file:
        write_engine(engine, file)
    commit(folder, {**meta, "sources": [*meta["sources"], reader.features.checksum()]}, extended)


def _read_engine(folder: Path, meta: dict[str, Any]) -> Any:
    extractor = ExtractorInfo(**meta["extractor"])
    file = EngineFile(current_file(folder, meta, "descriptors"), extractor.kind)
    return file.read(meta["stored"], extractor.dim, meta["index"]["lists"])


def _copy(folder: Path, meta: dict[str, Any], append: Append, kept: NDArray[np.bool_] | None = None) -> None:
    """Append the current frames and original descriptors, or those of a mask (N,), in their order."""
    frames, rows = map_frames(folder, meta), map_rows(folder, meta)
    for start in range(0, meta["stored"], _ROWS_PER_BLOCK):
        block = slice(start, start + _ROWS_PER_BLOCK)
        chosen = slice(None) if kept is None else kept[block]
        append(frames[block][chosen], frames if rows is None else rows[block][chosen])
