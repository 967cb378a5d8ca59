"""Build a patch set from photos: tracks where photos overlap, and synthetic views of each photo."""

from __future__ import annotations

import csv
import io
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import ArgumentError, DataError
from doap._support.files import check_inside
from doap._support.processes import begin_worker, check_workers, end_on_interrupt, starting_workers, worker_context
from doap.data.builders.cut import Cut, cut_tracks, cut_unchanged
from doap.data.builders.structure import reconstruct_scene
from doap.data.builders.synthetic import synthetic_groups
from doap.data.builders.tracks import read_tracks
from doap.data.writer import SetWriter, UnitGroups
from doap.images import list_images
from doap.images.synthetic_views import SyntheticViews
from doap.types import Progress, no_progress

# Finished tasks that may wait for an earlier one, per worker. The patches of a photo take 1 to 2
# MB.
_TASKS_AHEAD = 64


def build_from_images(
    folder: str | Path,
    out: str | Path,
    *,
    ledger: str | Path | None = None,
    split: str | None = None,
    patch_size: int = 32,
    extent: float = 1.0,
    views: SyntheticViews | None = None,
    tracks: bool = True,
    without_tracks: Sequence[str] = (),
    workers: int = 1,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Path:
    """Build a patch set from a folder of photos.

    Each subfolder of `folder` is a scene. Photos directly in `folder` form one scene, named after
    it. A ledger may list photos, scenes and splits instead. Resumable: call it again to continue an
    interrupted build. The result has the same bytes as an uninterrupted build.

        build_from_images("photos", "my.patches", views=SyntheticViews(count=7), workers=4)

    Args:
        folder: Folder of the photos.
        out: Folder of the new set. It must not exist.
        ledger: CSV file with the columns file, scene and split, and any others. Its rows are stored
            in the set. The scene column may be called `place`.
        split: Split of the ledger to use; None uses all rows.
        patch_size: Side S of the patches in pixels.
        extent: Patch side relative to SIFT's support of 12 σ: 1.5 gives a patch side of 18 σ. A
            descriptor trained on the set uses the same extent.
        views: Synthetic views to render of each photo.
        tracks: Reconstruct every scene with COLMAP and use its tracks. This takes most of the time. The set lists the
            photos that COLMAP could not register.
        without_tracks: Scenes whose photos do not overlap. Each of their photos becomes a scene of
            its own.
        workers: Number of processes. The result does not depend on it.
        seed: Random seed of the set.
        progress: Called after each unit (the tracks of a scene, or a photo).
    """
    check_workers(workers)
    folder = Path(folder)
    rows = read_ledger(Path(ledger), split) if ledger else _list_photos(folder)
    scenes = _group_by_scene(rows, folder, without_tracks)
    settings = _Settings(patch_size, extent, views or SyntheticViews(), tracks, sorted(without_tracks), seed)
    photos = [name for names in scenes.values() for name in names]
    builder = {"command": "from-images", "photos": photos, "split": split, **asdict(settings)}
    with SetWriter(out, patch_size, builder, rows if ledger else []) as writer:
        writer.check_inputs({name: folder / name for name in photos})
        _run(_tasks(folder, scenes, settings, writer.folder / "work"), writer, workers, progress)
        return writer.finish()


@dataclass(frozen=True)
class _Settings:
    """Settings that determine the patches; see `build_from_images`."""

    patch_size: int
    extent: float
    views: SyntheticViews
    tracks: bool
    without_tracks: list[str]
    seed: int


@dataclass(frozen=True)
class _Tracks:
    """The tracks of one scene, from all COLMAP models of its photos."""

    folder: Path
    scene: str
    names: tuple[str, ...]
    settings: _Settings
    work: Path

    @property
    def unit(self) -> str:
        return f"tracks of {self.scene}"

    def __call__(self) -> Cut:
        return cut_unchanged({name: self.folder / name for name in self.names}, self._cut)

    def _cut(self) -> Cut:
        with tempfile.TemporaryDirectory(dir=self.work) as work:
            database, models = reconstruct_scene(self.folder, self.names, Path(work))
            parts, used, registered = [], set[tuple[str, int]](), set[str]()
            for model in models:
                # A smaller model may repeat part of a larger one, point by point.
                tracks = read_tracks(model, database).without(used)
                used.update(tracks.observations())
                registered.update(tracks.images)
                patch_size, extent = self.settings.patch_size, self.settings.extent
                parts.append(cut_tracks(tracks, self.folder, self.scene, patch_size, extent=extent))
        patches, groups = _join_models(parts, self.scene, self.settings.patch_size)
        unregistered = [name for name in self.names if name not in registered]
        return patches, replace(groups, unregistered=unregistered)


@dataclass(frozen=True)
class _Photo:
    """Synthetic views of one photo."""

    folder: Path
    scene: str
    name: str
    number: int
    settings: _Settings

    @property
    def unit(self) -> str:
        return self.name

    def __call__(self) -> Cut:
        return cut_unchanged({self.name: self.folder / self.name}, self._cut)

    def _cut(self) -> Cut:
        return synthetic_groups(
            self.folder / self.name,
            self.scene,
            self.name,
            self.settings.patch_size,
            self.settings.seed,
            self.number,
            self.settings.views,
            self.settings.extent,
        )


def _tasks(folder: Path, scenes: dict[str, list[str]], settings: _Settings, work: Path) -> list[_Tracks | _Photo]:
    """Return the tasks of a build in order: the tracks of all scenes, then all photos."""
    # `work` is inside the unfinished set: files left by a killed worker are removed with it.
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    tasks: list[_Tracks | _Photo] = [
        _Tracks(folder, scene, tuple(names), settings, work)
        for scene, names in scenes.items()
        if settings.tracks and len(names) > 1 and scene not in settings.without_tracks
    ]
    photos = [(scene, name) for scene, names in scenes.items() for name in names]
    for number, (scene, name) in enumerate(photos):
        own_scene = name if scene in settings.without_tracks else scene
        tasks.append(_Photo(folder, own_scene, name, number, settings))
    return tasks


def _run(tasks: Sequence[_Tracks | _Photo], writer: SetWriter, workers: int, progress: Progress) -> None:
    """Run the tasks that are not yet in the set and add their results in order."""
    by_unit = {task.unit: task for task in tasks}
    remaining = [by_unit[unit] for unit in writer.remaining(list(by_unit))]
    progress(writer.done, len(tasks), "starting")
    for task, (patches, groups) in zip(remaining, _results_in_order(remaining, workers), strict=True):
        writer.add(task.unit, patches, groups)
        progress(writer.done, len(tasks), task.unit)


def _join_models(parts: list[Cut], scene: str, patch_size: int) -> Cut:
    """Concatenate the models of one scene into one unit.

    Models may share photos and show the same point through different keypoints. Each model is
    therefore a source of its own, because sources of one scene ignore each other.
    """
    no_patches = np.empty((0, patch_size, patch_size), np.uint8)
    counts: list[NDArray[np.integer]] = [np.empty(0, np.int64)]
    positions: list[NDArray[np.float32]] = [np.empty((0, 3), np.float32)]
    ignored: list[NDArray[np.integer]] = [np.empty((0, 2), np.int64)]
    sources: list[str] = []
    for model, (_, groups) in enumerate(parts, start=1):
        ignored.append(groups.ignore + len(sources))
        counts.append(groups.count)
        positions.append(groups.position)
        sources += ["tracks" if model == 1 else f"tracks {model}"] * len(groups.count)
    joined = UnitGroups(np.concatenate(counts), scene, np.concatenate(positions), sources, np.concatenate(ignored))
    return np.concatenate([no_patches, *(patches for patches, _ in parts)]), joined


def _results_in_order(tasks: Sequence[Callable[[], Cut]], workers: int) -> Iterator[Cut]:
    """Yield the results of the tasks in order. Workers run ahead by a bounded number of tasks."""
    if workers == 1:
        yield from (task() for task in tasks)
        return
    context = worker_context(__name__)
    with ProcessPoolExecutor(workers, context, initializer=_begin_worker, initargs=(dict(os.environ),)) as pool:
        ahead: deque[Future[Cut]] = deque()
        try:
            for task in tasks:
                with starting_workers():
                    ahead.append(pool.submit(task))
                # Not fewer: a scene takes minutes, and the other workers need something to do
                # meanwhile.
                if len(ahead) >= _TASKS_AHEAD * workers:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin_worker(environment: Mapping[str, str]) -> None:
    """Use one thread, and end with the parent process, so that an interrupted or killed build leaves no workers."""
    import cv2

    end_on_interrupt()
    cv2.setNumThreads(1)
    begin_worker(environment)


def _group_by_scene(rows: list[dict[str, Any]], folder: Path, without_tracks: Sequence[str]) -> dict[str, list[str]]:
    """Map each scene to its files after checking that the files exist."""
    if missing := [row["file"] for row in rows if not (folder / row["file"]).is_file()]:
        raise DataError(f"{folder}: expected {len(rows)} photos, but {len(missing)} are missing, such as {missing[0]}.")
    scenes: dict[str, list[str]] = {}
    for row in rows:
        scenes.setdefault(row["scene"], []).append(row["file"])
    if unknown := set(without_tracks) - set(scenes):
        raise ArgumentError(f"without_tracks: expected scenes of {folder}, got {', '.join(sorted(unknown))}.")
    return scenes


def _list_photos(folder: Path) -> list[dict[str, Any]]:
    """Return a row for each photo of a folder without a ledger."""
    names = [path.relative_to(folder) for path in list_images(folder)]
    own = folder.resolve().name
    return [{"file": name.as_posix(), "scene": name.parts[0] if len(name.parts) > 1 else own} for name in names]


def read_ledger(path: Path, split: str | None) -> list[dict[str, Any]]:
    """Return the rows of a split, sorted by scene and file."""
    if not path.is_file():
        raise DataError(f"{path}: no such ledger. Check --ledger.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected a CSV file in UTF-8, got {error}. Save it as UTF-8.") from error
    try:
        rows = _parse_ledger(path, text)
    except csv.Error as error:
        raise DataError(f"{path}: expected a CSV file, got {error}.") from error
    rows = [row for row in rows if split is None or row["split"] == split]
    if not rows:
        raise DataError(f"{path}: no photos of split {split!r}. Check --split.")
    return sorted(rows, key=lambda row: (row["scene"], row["file"]))


def _parse_ledger(path: Path, text: str) -> list[dict[str, Any]]:
    """Return all rows of a ledger. Every row has a value for every column."""
    reader = csv.DictReader(io.StringIO(text, newline=""))
    # Published ledgers call the scene column `place`.
    columns = list(reader.fieldnames or [])
    if "scene" not in columns:
        columns = ["scene" if name == "place" else name for name in columns]
    if missing := {"file", "scene", "split"} - set(columns):
        raise DataError(
            f"{path}: expected the columns file, scene and split, but {', '.join(sorted(missing))} is missing."
        )
    if len(set(columns)) < len(columns):
        raise DataError(f"{path}: expected every column once, got {', '.join(columns)}.")
    reader.fieldnames = columns
    rows = []
    for row in reader:
        # Missing values are None, and surplus values have the key None.
        if None in row or None in row.values():
            raise DataError(f"{path}, line {reader.line_num}: expected {len(columns)} values, as in the first line.")
        if "\0" in row["file"] or not row["file"] or not row["scene"]:
            raise DataError(f"{path}, line {reader.line_num}: expected the name of a file and of its scene.")
        check_inside(row["file"], f"{path}, line {reader.line_num}")
        rows.append(row)
    return rows
