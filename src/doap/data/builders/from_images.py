"""Plain photographs → a patch-group set: real tracks where photos of a place overlap, made-up views of each photo."""

from __future__ import annotations

import csv
import multiprocessing
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from doap.data.builders.cut import Cut, cut_tracks
from doap.data.builders.structure import reconstruct
from doap.data.builders.synthetic import synthetic_groups
from doap.data.builders.tracks import read_tracks
from doap.data.writer import SetWriter, UnitGroups
from doap.errors import ArgumentError, DataError
from doap.images import list_images
from doap.images.synthetic_views import Views
from doap.processes import follow_parent
from doap.types import Progress, no_progress


def build_from_images(
    folder: Path,
    out: Path,
    *,
    ledger: Path | None = None,
    split: str | None = None,
    size: int = 32,
    extent: float = 1.0,
    views: Views | None = None,
    tracks: bool = True,
    without_tracks: Sequence[str] = (),
    workers: int = 1,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Path:
    """Make a set of a folder of photos; the same call resumes a killed build and gives the same bytes.

    A folder inside `folder` is a place; photos that lie in `folder` itself are a place of its name. A ledger says
    instead which photos there are, their places and their split.

    Args:
        folder: the photos.
        out: the set to make.
        ledger: a CSV with the columns file, place, split and whatever else is known; its rows go into the set.
        split: which of the ledger's splits to take; all if not given.
        size: S, side of the patches in pixels.
        extent: side of a patch over the twelve σ of a keypoint that SIFT looks at. A descriptor that is trained on the
            set looks at as much when it is used.
        views: what to make up of each photo.
        tracks: whether to reconstruct the places; that takes most of the time.
        without_tracks: places whose photos are known not to overlap: each of them is a place of its own.
        workers: processes; the result does not depend on it.
        seed: the one seed of the set.
        progress: called with units done, units in all, and the one at hand.
    """
    views = views or Views()
    rows = _read_ledger(ledger, split) if ledger else _walk(folder)
    if missing := [row["file"] for row in rows if not (folder / row["file"]).is_file()]:
        raise DataError(f"{folder}: expected {len(rows)} photos, got no {missing[0]} ({len(missing)} missing)")
    places: dict[str, list[str]] = {}
    for row in rows:
        places.setdefault(row["place"], []).append(row["file"])
    if unknown := set(without_tracks) - set(places):
        raise ArgumentError(f"without_tracks: expected places of {folder}, got {', '.join(sorted(unknown))}")
    photos = [(place, name) for place, names in places.items() for name in names]
    builder = {
        "command": "from-images",
        "photos": [name for _, name in photos],
        "split": split,
        "without_tracks": sorted(without_tracks),
        "views": asdict(views),
        "seed": seed,
        "size": size,
        "extent": extent,
        "tracks": tracks,
    }
    writer = SetWriter(out, size, builder, rows if ledger else [])
    # Here, so that what a killed worker leaves behind goes with the unfinished set.
    work = writer.folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    tasks: list[_Place | _Photo] = [
        _Place(folder, place, tuple(names), size, extent, work)
        for place, names in places.items()
        if tracks and len(names) > 1 and place not in without_tracks
    ]
    for number, (place, name) in enumerate(photos):
        sequence = name if place in without_tracks else place
        tasks.append(_Photo(folder, sequence, name, size, extent, seed, number, views))
    by_name = {task.unit: task for task in tasks}
    left = [by_name[name] for name in writer.remaining(list(by_name))]
    for task, (patches, groups) in zip(left, _in_order(left, workers), strict=True):
        writer.add(task.unit, patches, groups)
        progress(writer.done, len(tasks), task.unit)
    return writer.finish()


@dataclass(frozen=True)
class _Place:
    """Real tracks of one place, from all models that its photos give."""

    folder: Path
    place: str
    names: tuple[str, ...]
    size: int
    extent: float
    work: Path

    @property
    def unit(self) -> str:
        return f"tracks of {self.place}"

    def __call__(self) -> Cut:
        with tempfile.TemporaryDirectory(dir=self.work) as work:
            database, models = reconstruct(self.folder, self.names, Path(work))
            parts, seen = [], set[tuple[str, int]]()
            for model in models:
                # A smaller model may be a second copy of a part of a larger one, point by point.
                tracks = read_tracks(model, database).without(seen)
                seen.update(tracks.observations())
                parts.append(cut_tracks(tracks, self.folder, self.place, self.size, extent=self.extent))
        return _joined(parts, self.place, self.size)


@dataclass(frozen=True)
class _Photo:
    """Made-up views of one photo."""

    folder: Path
    sequence: str
    name: str
    size: int
    extent: float
    seed: int
    number: int
    views: Views

    @property
    def unit(self) -> str:
        return self.name

    def __call__(self) -> Cut:
        photo = self.folder / self.name
        return synthetic_groups(
            photo, self.sequence, self.name, self.size, self.seed, self.number, self.views, self.extent
        )


def _joined(parts: list[Cut], place: str, size: int) -> Cut:
    """The models of one place as one unit.

    Models may share photos, and so see one spot twice by different keypoints: each is a source of its own, and
    sources of one place ignore each other.
    """
    none = (
        np.empty((0, size, size), np.uint8),
        UnitGroups(np.empty(0, np.int64), place, np.empty((0, 3), np.float32), "tracks", np.empty((0, 2), np.int64)),
    )
    every = [none, *parts]
    before = np.cumsum([0, *(len(groups.count) for _, groups in every)])
    names = ["tracks", *("tracks" if model == 1 else f"tracks {model}" for model in range(1, len(parts) + 1))]
    groups = UnitGroups(
        np.concatenate([one.count for _, one in every]),
        place,
        np.concatenate([one.position for _, one in every]),
        [name for (_, one), name in zip(every, names, strict=True) for _ in one.count],
        np.concatenate([one.ignore + first for (_, one), first in zip(every, before[:-1], strict=True)]),
    )
    return np.concatenate([patches for patches, _ in every]), groups


def _in_order(tasks: Sequence[Callable[[], Cut]], workers: int) -> Iterator[Cut]:
    """Results of the tasks in their order, worked on by several processes that run ahead by a bounded number."""
    if workers == 1:
        yield from (task() for task in tasks)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=_begin_worker) as pool:
        ahead: deque[Future[Cut]] = deque()
        try:
            for task in tasks:
                ahead.append(pool.submit(task))
                # A photo weighs a megabyte or two; a place that takes minutes must not keep the others waiting.
                if len(ahead) >= 64 * workers:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin_worker() -> None:
    """One thread each, and no life after the parent's: a killed build must not leave workers behind."""
    import cv2

    cv2.setNumThreads(1)
    follow_parent()


def _walk(folder: Path) -> list[dict[str, Any]]:
    names = [path.relative_to(folder) for path in list_images(folder)]
    own = folder.resolve().name
    return [{"file": name.as_posix(), "place": name.parts[0] if len(name.parts) > 1 else own} for name in names]


def _read_ledger(path: Path, split: str | None) -> list[dict[str, Any]]:
    if not path.is_file():
        raise DataError(f"{path}: expected a ledger, got nothing there; check --ledger")
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if missing := {"file", "place", "split"} - set(reader.fieldnames or []):
            raise DataError(f"{path}: expected the columns file, place and split, got no {', '.join(sorted(missing))}")
        rows = [row for row in reader if split is None or row["split"] == split]
    if not rows:
        raise DataError(f"{path}: expected photos of split {split!r}, got none")
    return sorted(rows, key=lambda row: (row["place"], row["file"]))
