"""Build an index from features, and add or remove images."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.errors import ArgumentError, DataError
from doap.files import OutputLock, atomic_write, make_folder
from doap.random_streams import stream
from doap.scale.extractor import ExtractorInfo
from doap.scale.features import FeatureSet, StoredImage, as_feature_set
from doap.scale.index.engine import IndexKind, new_engine, plan_index, read_engine, write_engine
from doap.scale.index.folder import FORMAT, NO_IMAGES, clean, read_images, read_meta, write_change
from doap.types import Progress, no_progress


@dataclass(frozen=True)
class IndexChange:
    """Numbers of images that a change affected.

    Attributes:
        added: New images.
        replaced: Images whose file had changed.
        unchanged: Images that were already in the index.
        excluded: Images that were removed from the index earlier and therefore not added.
        removed: Removed images.
    """

    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    excluded: int = 0
    removed: int = 0


def build_index(
    features: str | Path | FeatureSet,
    out: str | Path,
    *,
    kind: IndexKind | None = None,
    shards: int = 1,
    max_keypoints: int | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Path:
    """Build an index of the local descriptors of many images.

    The features are read four times (to count, train, add and hash), with a few images in memory at a time. Memory also
    holds the training sample, 64 descriptors per list, and one shard.

    Args:
        features: Features of the images, from `doap.extract_folder`.
        out: Folder of the index. It must not exist, and appears when it is complete.
        kind: Kind of the index; None chooses it by the number of descriptors, see `plan_index`.
        shards: Number of files of nearly equal size, which are searched as one; at most one per image.
        max_keypoints: Maximum number of keypoints per image; None uses all.
        seed: Random seed of the training sample.
        progress: Called for every image that is read.
    """
    features, out = as_feature_set(features), Path(out)
    if shards < 1 or (max_keypoints is not None and max_keypoints < 1):
        raise ArgumentError(f"shards and max_keypoints: expected 1 or more, got {shards} and {max_keypoints}.")
    with OutputLock(make_folder(out.parent) / out.name):
        if out.exists():
            hint = "Delete it, choose another folder, or add to it with doap index add."
            raise DataError(f"{out}: already exists. {hint}")
        _build(features, out, kind, shards, max_keypoints, seed, progress)
    return out


def _build(
    features: FeatureSet,
    out: Path,
    kind: IndexKind | None,
    shards: int,
    max_keypoints: int | None,
    seed: int,
    progress: Progress,
) -> None:
    """Build an index beside `out` and rename it."""
    reader = _Reader(features, features.names, max_keypoints, progress)
    counts = reader.count()
    if not counts.sum():
        raise DataError(f"{features.folder}: none of the images has a keypoint.")
    plan = plan_index(int(counts.sum()), features.kind, features.dim, kind)
    engine = new_engine(plan, features.kind, features.dim)
    reader.total = len(counts) * (3 if plan.sample else 2)
    if plan.sample:
        engine.train(reader.sample(counts, plan.sample, seed))
    unfinished = out.with_name(out.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    make_folder(unfinished)
    with atomic_write(unfinished / "trained.faiss") as file:
        write_engine(engine, file)
    meta = {
        "format": FORMAT,
        "revision": 0,
        "index": dataclasses.asdict(plan) | {"metric": "hamming" if features.kind == "binary" else "euclidean"},
        "extractor": dataclasses.asdict(features.extractor),
        "training": {"sample": plan.sample, "seed": seed, "max_keypoints": max_keypoints},
        "shards": reader.write_shards(unfinished, counts, plan.kind, first_id=0, serial=1, shards=shards),
        "sources": [_describe_source(features, counts)],
        "files": {},
    }
    write_change(unfinished, meta, NO_IMAGES.extend(reader.names, reader.checksums, counts, remove=[]))
    unfinished.rename(out)


def add_images(
    index: str | Path, features: str | Path | FeatureSet, *, progress: Progress = no_progress
) -> IndexChange:
    """Add the images of a feature set that are not in an index yet, as a new shard, atomically.

    An image whose file has changed replaces the old one. An image that was removed from the index is never added again.

    Args:
        index: Folder of the index.
        features: Features from the same extractor.
        progress: Called for every image that is read.
    """
    folder, features = Path(index), as_feature_set(features)
    read_meta(folder)
    with OutputLock(folder, inside=True):
        return _add(folder, features, progress)


def _add(folder: Path, features: FeatureSet, progress: Progress) -> IndexChange:
    meta = read_meta(folder)
    images = read_images(folder, meta)
    check_extractor(folder, meta, features)
    removed = set(images.names) - images.numbers.keys()
    known = {name: images.checksums[number] for name, number in images.numbers.items()}
    excluded = removed.intersection(features.names)
    names = [name for name in features.names if name not in removed and known.get(name) != features.checksums[name]]
    replaced = [name for name in names if name in known]
    unchanged = len(features) - len(names) - len(excluded)
    if not names:
        return IndexChange(unchanged=unchanged, excluded=len(excluded))
    clean(folder, meta)
    reader = _Reader(features, names, meta["training"]["max_keypoints"], progress)
    counts = reader.count()
    reader.total = 2 * len(counts)
    serial = 1 + max(int(shard["index"][6:12]) for shard in meta["shards"])
    kind, first_id = meta["index"]["kind"], int(images.counts.sum())
    meta["shards"] += reader.write_shards(folder, counts, kind, first_id=first_id, serial=serial, shards=1)
    meta["sources"].append(_describe_source(features, counts))
    write_change(folder, meta, images.extend(reader.names, reader.checksums, counts, remove=replaced))
    return IndexChange(len(names) - len(replaced), len(replaced), unchanged, len(excluded))


def remove_images(index: str | Path, names: Collection[str]) -> IndexChange:
    """Remove images from an index permanently: searches do not return them, and they cannot be added again.

    Their descriptors stay in the files and are dropped when the index is opened. After many removals, build a new
    index.

    Args:
        index: Folder of the index.
        names: Images to remove.
    """
    folder = Path(index)
    read_meta(folder)
    with OutputLock(folder, inside=True):
        meta = read_meta(folder)
        images = read_images(folder, meta)
        if unknown := sorted(set(names) - images.numbers.keys()):
            reason = "it was removed before" if unknown[0] in images.names else "no such image"
            raise ArgumentError(f"{unknown[0]}: not in {folder}: {reason}.")
        clean(folder, meta)
        write_change(folder, meta, images.extend([], [], np.empty(0, np.int64), remove=sorted(set(names))))
    return IndexChange(removed=len(set(names)))


def check_extractor(folder: Path, meta: dict[str, Any], features: FeatureSet) -> None:
    """Refuse features that cannot be compared with the descriptors of an index."""
    if difference := ExtractorInfo(**meta["extractor"]).difference(features.extractor):
        raise DataError(f"{features.folder}: the features do not fit the index {folder}: {difference}.")


class _Reader:
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
        for image in self._images():
            self.names.append(image.name)
            self.checksums.append(image.checksum)
            counts.append(len(image.features))
        return np.array(counts, np.int64)

    def sample(self, counts: NDArray[np.int64], size: int, seed: int) -> NDArray[Any]:
        """Return random descriptors (size, D), in their order."""
        random = stream(seed, "index")
        chosen = np.sort(random.choice(int(counts.sum()), size, replace=False, shuffle=False))
        # (I + 1,) each: image i has the ids from ids[i], and chosen[ends[i] : ends[i + 1]] are the chosen ones.
        ids = np.concatenate([[0], counts.cumsum()])
        ends = np.searchsorted(chosen, ids)
        rows = []
        for number, image in enumerate(self._images()):
            rows.append(image.features.descriptors.numpy()[chosen[ends[number] : ends[number + 1]] - ids[number]])
        return np.concatenate(rows)

    def write_shards(
        self, folder: Path, counts: NDArray[np.int64], kind: IndexKind, *, first_id: int, serial: int, shards: int
    ) -> list[dict[str, Any]]:
        """Write all descriptors with consecutive ids; return the entries of the shards for meta.json."""
        starts = counts.cumsum() - counts
        shard_of_image = starts * shards // max(1, int(counts.sum()))
        images = zip(shard_of_image.tolist(), (first_id + starts).tolist(), self._images(), strict=True)
        return [
            self._write_shard(folder, number, kind, ((start, image) for _, start, image in part))
            for number, (_, part) in enumerate(groupby(images, key=itemgetter(0)), start=serial)
        ]

    def _write_shard(
        self, folder: Path, number: int, kind: IndexKind, images: Iterable[tuple[int, StoredImage]]
    ) -> dict[str, Any]:
        engine = read_engine(folder / "trained.faiss", self.features.kind)
        files = {"index": f"shard-{number:06}.faiss", "frames": f"frames-{number:06}.npy"}
        frames, first_id = [np.empty((0, 2, 3), np.float32)], None
        with ExitStack() as stack:
            rows = None
            if kind == "ivf-pq":
                files["rows"] = f"rows-{number:06}.float16"
                rows = stack.enter_context(stack.enter_context(atomic_write(folder / files["rows"])).open("wb"))
            for start, image in images:
                first_id = start if first_id is None else first_id
                descriptors = image.features.descriptors.contiguous().numpy()
                engine.add_with_ids(descriptors, np.arange(start, start + len(descriptors)))
                frames.append(image.features.frames)
                if rows:
                    rows.write(descriptors.astype(np.float16).tobytes())
        with atomic_write(folder / files["index"]) as unfinished:
            write_engine(engine, unfinished)
        with atomic_write(folder / files["frames"]) as unfinished, unfinished.open("wb") as file:
            np.save(file, np.concatenate(frames))
        return {**files, "first_id": first_id, "count": sum(map(len, frames))}

    def _images(self) -> Iterator[StoredImage]:
        for image in self.features.stream(self._wanted):
            self._done += 1
            self._progress(self._done, self.total, image.name)
            yield dataclasses.replace(image, features=image.features.strongest(self._max_keypoints))


def _describe_source(features: FeatureSet, counts: NDArray[np.int64]) -> dict[str, Any]:
    return {"checksum": features.checksum(), "images": len(counts), "descriptors": int(counts.sum())}
