"""Make an index from features, add images to it, remove images from it."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.errors import ArgumentError, DataError
from doap.files import atomic_write, make_folder
from doap.random_streams import stream
from doap.scale.features import FeatureSet, StoredImage
from doap.scale.index.engine import IndexKind, new_engine, plan_index, read_engine, write_engine
from doap.scale.index.folder import FORMAT, NO_IMAGES, clean, read_images, read_meta, write_change
from doap.types import Progress, no_progress


@dataclass(frozen=True)
class Change:
    """What a change has done, in numbers of images; `kept_out` are those that were removed before."""

    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    kept_out: int = 0
    removed: int = 0


def build_index(
    features: FeatureSet,
    out: str | Path,
    *,
    kind: IndexKind | None = None,
    shards: int = 1,
    max_keypoints: int | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Path:
    """Make an index of the descriptors of many images.

    Features are read four times (to count, to train, to add, for their checksum), a few images in memory at a time;
    beside them there are the sample that is trained on, 64 descriptors for each list, and one shard.

    Args:
        features: of the images.
        out: the folder to make; it must not exist, and does not until it is finished.
        kind: of the index; by the number of descriptors if not given, see `plan_index`.
        shards: files of nearly equal size, which are searched as one; fewer if there are fewer images.
        max_keypoints: descriptors of an image, those of the strongest keypoints; all if not given.
        seed: of the sample.
        progress: told of each image read.
    """
    out = Path(out)
    if out.exists():
        raise DataError(f"{out}: exists; remove it, choose another --out, or add to it with doap index add")
    if shards < 1 or (max_keypoints is not None and max_keypoints < 1):
        raise ArgumentError(f"shards and max_keypoints: expected 1 or more, got {shards} and {max_keypoints}")
    rounds = _Rounds(features, features.names, max_keypoints, progress)
    count = rounds.count()
    if not count.sum():
        raise DataError(f"{features.folder}: expected features of one keypoint or more, got none; look at its errors")
    plan = plan_index(int(count.sum()), features.kind, features.dim, kind)
    engine = new_engine(plan, features.kind, features.dim)
    rounds.total = len(count) * (3 if plan.sample else 2)
    if plan.sample:
        engine.train(rounds.sample(count, plan.sample, seed))
    unfinished = out.with_name(out.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    make_folder(unfinished)
    with atomic_write(unfinished / "trained.faiss") as file:
        write_engine(engine, file)
    written = rounds.write_shards(unfinished, count, plan.kind, first=0, serial=1, shards=shards)
    meta = {
        "format": FORMAT,
        "changes": 0,
        "index": dataclasses.asdict(plan) | {"metric": "hamming" if features.kind == "binary" else "euclidean"},
        "extractor": features.meta["extractor"],
        "training": {"sample": plan.sample, "seed": seed, "max_keypoints": max_keypoints},
        "shards": written,
        "sources": [_source(features, len(count), int(count.sum()))],
        "files": {},
    }
    images = NO_IMAGES.and_more(rounds.names, rounds.checksums, count, without=[])
    write_change(unfinished, meta, images)
    unfinished.rename(out)
    return out


def add_images(folder: str | Path, features: FeatureSet, *, progress: Progress = no_progress) -> Change:
    """Add those images of `features` that an index does not have, as a shard of their own, all or none.

    An image whose file has changed takes the place of the old one. One that was removed stays out, whatever the
    features hold: who asked for it to go need not ask twice.
    """
    folder = Path(folder)
    meta = read_meta(folder)
    images = read_images(folder, meta)
    check_extractor(folder, meta, features)
    gone = set(images.names) - images.number_of.keys()
    known = {name: images.checksums[number] for name, number in images.number_of.items()}
    kept_out = gone.intersection(features.names)
    names = [name for name in features.names if name not in gone and known.get(name) != features.checksums[name]]
    replaced = [name for name in names if name in known]
    unchanged = len(features) - len(names) - len(kept_out)
    if not names:
        return Change(unchanged=unchanged, kept_out=len(kept_out))
    clean(folder, meta)
    rounds = _Rounds(features, names, meta["training"]["max_keypoints"], progress)
    count = rounds.count()
    rounds.total = 2 * len(count)
    serial = 1 + max(int(shard["index"][6:12]) for shard in meta["shards"])
    kind, first = meta["index"]["kind"], int(images.count.sum())
    written = rounds.write_shards(folder, count, kind, first=first, serial=serial, shards=1)
    meta["shards"] += written
    meta["sources"].append(_source(features, len(count), int(count.sum())))
    write_change(folder, meta, images.and_more(rounds.names, rounds.checksums, count, without=replaced))
    return Change(len(names) - len(replaced), len(replaced), unchanged, len(kept_out))


def remove_images(folder: str | Path, names: Collection[str]) -> Change:
    """Remove images from an index: once this returns they are never found again, and cannot be added again.

    Their descriptors stay in the shards, and are dropped whenever these are opened; an index of which much was removed
    is better built anew.
    """
    folder = Path(folder)
    meta = read_meta(folder)
    images = read_images(folder, meta)
    if unknown := sorted(set(names) - images.number_of.keys()):
        what = "removed before" if unknown[0] in images.names else "no such image"
        raise ArgumentError(f"{unknown[0]}: expected the name of an image of {folder}, got {what}")
    clean(folder, meta)
    write_change(folder, meta, images.and_more([], [], np.empty(0, np.int64), without=sorted(set(names))))
    return Change(removed=len(set(names)))


def check_extractor(folder: Path, meta: dict[str, Any], features: FeatureSet) -> None:
    """Refuse features that cannot be compared with those of an index."""
    mine, other = meta["extractor"], features.meta["extractor"]
    if mine["fingerprint"] != other["fingerprint"]:
        differ = [key for key in sorted(mine) if key != "fingerprint" and mine[key] != other.get(key)]
        told = ", ".join(f"{key} {other.get(key)!r} instead of {mine[key]!r}" for key in differ) or "other weights"
        raise DataError(f"{features.folder}: expected features made like those of {folder}, got {told}")


class _Rounds:
    """Features of some images, read several times in one order."""

    def __init__(
        self, features: FeatureSet, names: Sequence[str], max_keypoints: int | None, progress: Progress
    ) -> None:
        self.features, self._wanted, self._max_keypoints, self._progress = features, names, max_keypoints, progress
        self.names: list[str] = []
        self.checksums: list[str] = []
        self.total, self._done = 0, 0

    def count(self) -> NDArray[np.int64]:
        """(I,) descriptors of each image; names and checksums are known from here on."""
        count = []
        for image in self._images():
            self.names.append(image.name)
            self.checksums.append(image.checksum)
            count.append(len(image.features))
        return np.array(count, np.int64)

    def sample(self, count: NDArray[np.int64], size: int, seed: int) -> NDArray[Any]:
        """(size, D) descriptors at random, in order."""
        random = stream(seed, "index")
        chosen = np.sort(random.choice(int(count.sum()), size, replace=False, shuffle=False))
        # (I + 1,) both: image i has the ids from ids[i] on, and of those chosen[ends[i] : ends[i + 1]] are chosen.
        ids = np.concatenate([[0], count.cumsum()])
        ends = np.searchsorted(chosen, ids)
        rows = []
        for number, image in enumerate(self._images()):
            rows.append(image.features.descriptors.numpy()[chosen[ends[number] : ends[number + 1]] - ids[number]])
        return np.concatenate(rows)

    def write_shards(
        self, folder: Path, count: NDArray[np.int64], kind: IndexKind, *, first: int, serial: int, shards: int
    ) -> list[dict[str, Any]]:
        """Write all descriptors with ids from `first` on; return what meta.json has to say of each shard."""
        starts = count.cumsum() - count
        places = starts * shards // max(1, int(count.sum()))
        written = []
        rows = zip(places.tolist(), (first + starts).tolist(), self._images(), strict=True)
        for number, (_, part) in enumerate(groupby(rows, key=itemgetter(0)), start=serial):
            engine = read_engine(folder / "trained.faiss", self.features.kind)
            frames = [np.empty((0, 2, 3), np.float32)]
            begin = None
            names = {"index": f"shard-{number:06}.faiss", "frames": f"frames-{number:06}.npy"}
            with ExitStack() as files:
                kept = None
                if kind == "ivf-pq":
                    names["rows"] = f"rows-{number:06}.float16"
                    kept = files.enter_context(files.enter_context(atomic_write(folder / names["rows"])).open("wb"))
                for _, start, image in part:
                    begin = start if begin is None else begin
                    descriptors = image.features.descriptors.contiguous().numpy()
                    engine.add_with_ids(descriptors, np.arange(start, start + len(descriptors)))
                    frames.append(image.features.frames)
                    if kept:
                        kept.write(descriptors.astype(np.float16).tobytes())
            with atomic_write(folder / names["index"]) as unfinished:
                write_engine(engine, unfinished)
            with atomic_write(folder / names["frames"]) as unfinished, unfinished.open("wb") as file:
                np.save(file, np.concatenate(frames))
            written.append({**names, "first": begin, "count": sum(map(len, frames))})
        return written

    def _images(self) -> Iterator[StoredImage]:
        for image in self.features.stream(self._wanted):
            self._done += 1
            self._progress(self._done, self.total, image.name)
            yield dataclasses.replace(image, features=image.features.strongest(self._max_keypoints))


def _source(features: FeatureSet, images: int, descriptors: int) -> dict[str, Any]:
    return {"checksum": features.checksum(), "images": images, "descriptors": descriptors}
