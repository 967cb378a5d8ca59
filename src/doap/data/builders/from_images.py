"""Build a patch set from photos: tracks where photos overlap, and synthetic views of each photo."""

from __future__ import annotations

import csv
import io
import logging
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import ArgumentError, DataError
from doap._support.files import check_inside
from doap._support.processes import begin_worker, check_workers, end_on_interrupt, starting_workers, worker_context
from doap.data.builders.from_colmap import cut_tracks
from doap.data.builders.synthetic import synthetic_groups
from doap.data.builders.tracks import read_tracks
from doap.data.colmap_model import reconstruct_scene
from doap.data.writer import SetWriter, UnitGroups
from doap.images import list_images
from doap.images.synthetic_views import SyntheticViews
from doap.types import Progress, no_progress

Cut = tuple[NDArray[np.uint8], UnitGroups]
"""Patches (N, S, S), ordered by group, and the groups."""
# Finished tasks that may wait for an earlier one, per worker. The patches of a photo take 1 to 2 MB.
_TASKS_AHEAD = 64
_LOG = logging.getLogger(__name__)


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

    Each subfolder of `folder` is a scene. Photos directly in `folder` form one scene, named after it. A ledger may list
    photos, scenes and splits instead. Resumable: call it again to continue an interrupted build. The result has the
    same bytes as an uninterrupted build.

        build_from_images("photos", "my.patches", views=SyntheticViews(count=7), workers=4)

    Args:
        folder: Folder of the photos.
        out: Folder of the new set. It must not exist.
        ledger: CSV file with the columns file, scene and split, and any others. Its rows are stored in the set.
        split: Split of the ledger to use; None uses all rows.
        patch_size: Side S of the patches in pixels.
        extent: Patch side relative to SIFT's support of 12 σ: 1.5 gives a patch side of 18 σ. A descriptor trained on
            the set uses the same extent.
        views: Synthetic views to render of each photo.
        tracks: Reconstruct every scene with COLMAP and use its tracks. This takes most of the time. A warning lists the
            photos that COLMAP could not register.
        without_tracks: Scenes whose photos do not overlap. Each of their photos becomes a scene of its own.
        workers: Number of processes. The result does not depend on it.
        seed: Random seed of the set.
        progress: Called after each unit (the tracks of a scene, or a photo).
    """
    check_workers(workers)
    folder, views = Path(folder), views or SyntheticViews()
    rows = read_ledger(Path(ledger), split) if ledger else _list_photos(folder)
    scenes = _group_by_scene(rows, folder, without_tracks)
    photos = [(scene, name) for scene, names in scenes.items() for name in names]
    builder = {
        "command": "from-images",
        "photos": [name for _, name in photos],
        "split": split,
        "patch_size": patch_size,
        "extent": extent,
        "views": asdict(views),
        "tracks": tracks,
        "without_tracks": sorted(without_tracks),
        "seed": seed,
    }
    inputs = {name: folder / name for _, name in photos}
    with SetWriter(out, patch_size, builder, rows if ledger else [], inputs) as writer:
        # Files that a killed worker left are removed with the unfinished set.
        work = writer.folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        tasks: dict[str, Callable[[], Cut]] = {
            f"tracks of {scene}": partial(_cut_scene, folder, scene, names, patch_size, extent, work)
            for scene, names in scenes.items()
            if tracks and len(names) > 1 and scene not in without_tracks
        }
        for number, (scene, name) in enumerate(photos):
            own = name if scene in without_tracks else scene
            tasks[name] = partial(synthetic_groups, folder / name, own, name, patch_size, seed, number, views, extent)
        units = writer.remaining(list(tasks))
        progress(writer.done, len(tasks), "starting")
        for unit, cut in zip(units, _results_in_order([tasks[unit] for unit in units], workers), strict=True):
            writer.add(unit, *cut)
            progress(writer.done, len(tasks), unit)
        return writer.finish()


def _cut_scene(folder: Path, scene: str, names: Sequence[str], patch_size: int, extent: float, work: Path) -> Cut:
    """Return the patches and groups of the tracks of one scene, from all COLMAP models of its photos."""
    with tempfile.TemporaryDirectory(dir=work) as own:
        database, models = reconstruct_scene(folder, names, Path(own))
        parts, used, registered = [], set[tuple[str, int]](), set[str]()
        for model in models:
            # A smaller model may repeat part of a larger one, point by point.
            tracks = read_tracks(model, database).without(used)
            used.update(tracks.observations())
            registered.update(tracks.images)
            parts.append(cut_tracks(tracks, folder, scene, patch_size, extent=extent))
    if lonely := [name for name in names if name not in registered]:
        _LOG.warning("tracks of %r: COLMAP did not register %r: synthetic views only", scene, lonely)
    return _join_models(parts, scene, patch_size)


def _join_models(parts: list[Cut], scene: str, patch_size: int) -> Cut:
    """Concatenate the models of one scene into one unit.

    Models may share photos and show the same point through different keypoints. Each model is therefore a source of its
    own, because sources of one scene ignore each other.
    """
    no_patches = np.empty((0, patch_size, patch_size), np.uint8)
    counts: list[NDArray[np.integer]] = [np.empty(0, np.int64)]
    ignored: list[NDArray[np.integer]] = [np.empty((0, 2), np.int64)]
    sources: list[str] = []
    for model, (_, groups) in enumerate(parts, start=1):
        ignored.append(groups.ignore + len(sources))
        counts.append(groups.count)
        sources += ["tracks" if model == 1 else f"tracks {model}"] * len(groups.count)
    joined = UnitGroups(np.concatenate(counts), scene, sources, np.concatenate(ignored))
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
                # Not fewer: a scene takes minutes, and the other workers need something to do meanwhile.
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
