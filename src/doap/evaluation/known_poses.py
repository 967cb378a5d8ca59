"""COLMAP models of scenes whose camera poses are known and whose intrinsics are not.

The Image Matching Challenge publishes poses of resized photographs without intrinsics. With the poses fixed, points are
triangulated from verified matches, and bundle adjustment refines only focal length and radial distortion, each image
with a camera of its own. The points also give the overlap of image pairs. The matches are RootSIFT's by default, so
that pairs which RootSIFT cannot match have no overlap and drop out: a choice that favours the baseline. Several
descriptors give longer tracks, for training sets that are not limited to what one of them can match.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from doap._support.errors import ArgumentError, DataError, import_extra
from doap._support.files import check_inside, make_folder, new_folder
from doap.export.colmap import write_colmap
from doap.geometry.pose import Pose
from doap.types import Progress, no_progress

INITIAL_FOCAL_LENGTH = 1.2
"""Initial focal length over the longer side of the image, as in COLMAP."""
RATIO = 0.9
"""Threshold of the ratio test. Triangulation with known poses rejects wrong matches, so it can be loose."""
ROUNDS = 4
"""Rounds of triangulation and refinement: better intrinsics triangulate more points."""
_COLUMNS = "file, rotation_matrix and translation_vector"


def read_poses(file: str | Path) -> dict[str, dict[str, Pose]]:
    """Read world-to-camera poses by scene and file from a CSV with the columns of the Image Matching Challenge.

    The columns are `file` (SCENE/NAME), `rotation_matrix` (row by row) and `translation_vector`, whose numbers are
    separated by semicolons. An optional column `model` names the coordinate frame: a folder whose poses belong to
    several models becomes several scenes, named by the models.
    """
    models: dict[str, dict[str, dict[str, Pose]]] = {}
    if not Path(file).is_file():
        raise DataError(f"{file}: no such file. Expected a CSV of camera poses.")
    try:
        with Path(file).open(encoding="utf-8", newline="") as stream:
            for number, row in enumerate(csv.DictReader(stream), start=2):
                folder, pose = _parse_pose(row, f"{file}, line {number}")
                # Names of scenes become folders.
                model = row.get("model") or folder
                for name in (row["file"], model):
                    check_inside(name, f"{file}, line {number}")
                models.setdefault(folder, {}).setdefault(model, {})[row["file"]] = pose
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file}: expected a CSV of camera poses in UTF-8, got {error}.") from error
    if not models:
        raise DataError(f"{file}: expected a CSV of camera poses, got no line with {_COLUMNS}.")
    scenes: dict[str, dict[str, Pose]] = {}
    for folder, of_folder in models.items():
        for model, poses in of_folder.items():
            scenes[folder if len(of_folder) == 1 else model.replace("/", "-")] = poses
    return scenes


def _parse_pose(row: dict[str, str], line: str) -> tuple[str, Pose]:
    """Return the folder and the pose of an image."""
    try:
        rotation = np.array(row["rotation_matrix"].split(";"), np.float64).reshape(3, 3)
        translation = np.array(row["translation_vector"].split(";"), np.float64).reshape(3)
        folder = row["file"].rpartition("/")[0]
    except (KeyError, ValueError, AttributeError) as error:
        raise DataError(f"{line}: expected {_COLUMNS}.") from error
    if not np.isfinite(rotation).all() or not np.isfinite(translation).all():
        raise DataError(f"{line}: expected finite numbers in {_COLUMNS}.")
    return folder, Pose(rotation, translation)


def build_posed_scenes(
    sources: Sequence[tuple[str | Path, str | Path]],
    out: str | Path,
    *,
    scenes: Sequence[str] = (),
    descriptors: Sequence[str] = ("rootsift",),
    max_keypoints: int = 4096,
    progress: Progress = no_progress,
) -> list[Path]:
    """Triangulate scenes with known poses and estimate their intrinsics, as data for the benchmarks `pose` and `sfm`.

    Resumable: call it again to continue.

    Args:
        sources: CSV files of `read_poses`, each with the folder that its file names are relative to. Scenes of the
            same name share one coordinate frame.
        out: Output folder; a scene becomes SCENE/images and SCENE/sparse.
        scenes: Names of the scenes to build; empty for all.
        descriptors: Descriptors whose matches are triangulated. Matches of a later one are added where both keypoints
            are unmatched.
        max_keypoints: Maximum number of keypoints per image.
        progress: Progress callback over images and image pairs of a scene, and then over rounds of triangulation.
    """
    found: dict[str, dict[Path, Pose]] = {}
    for file, folder in sources:
        for scene, poses in read_poses(file).items():
            found.setdefault(scene, {}).update({Path(folder) / name: pose for name, pose in poses.items()})
    if unknown := sorted(set(scenes) - set(found)):
        raise ArgumentError(f"scenes: unknown scene {', '.join(unknown)}. The scenes are {', '.join(sorted(found))}.")
    built = []
    for scene in scenes or sorted(found):
        folder = Path(out) / scene
        if not (folder / "sparse").is_dir():
            _build(found[scene], folder, descriptors, max_keypoints, progress)
        built.append(folder)
    return built


def _build(
    poses: dict[Path, Pose], out: Path, descriptors: Sequence[str], max_keypoints: int, progress: Progress
) -> None:
    """Match, triangulate and refine one scene."""
    pycolmap = import_extra("pycolmap", "colmap")
    images = make_folder(out / "images")
    by_name = {path.name: pose for path, pose in poses.items()}
    if len(by_name) < len(poses):
        raise DataError(f"{out.name}: expected images with different names, got two of the same name.")
    for path in poses:
        shutil.copyfile(path, images / path.name)
    databases = [out / ("database.db" if not number else f"database-{number}.db") for number in range(len(descriptors))]
    for descriptor, database in zip(descriptors, databases, strict=True):
        write_colmap(
            images,
            database,
            descriptor,
            detector="colmap-default",
            max_keypoints=max_keypoints,
            ratio=RATIO,
            max_error=4.0,
            camera_mode="per-image",
            progress=progress,
        )
    merged = databases[0]
    if len(databases) > 1:
        merged = out / "merged.db"
        shutil.copyfile(databases[0], merged)
        for database in databases[1:]:
            _add_matches(pycolmap, merged, database)
    model = _initial_model(pycolmap, merged, by_name)
    with new_folder(out / "sparse", "Remove it to build it again.") as unfinished:
        for number in range(ROUNDS):
            progress(number, ROUNDS, "triangulation and refinement")
            model = pycolmap.triangulate_points(model, merged, images, unfinished, refine_intrinsics=True)
        model.write(unfinished)


def _add_matches(pycolmap: Any, merged: Path, added: Path) -> None:
    """Add the verified matches of a database with the same keypoints where both keypoints are unmatched."""
    with pycolmap.Database.open(merged) as into, pycolmap.Database.open(added) as source:
        names = {image.image_id: image.name for image in source.read_all_images()}
        if names != {image.image_id: image.name for image in into.read_all_images()}:
            raise DataError(f"{merged}, {added}: expected the same images. Remove both files and repeat.")
        for pair, geometry in zip(*source.read_two_view_geometries(), strict=True):
            first, second = pycolmap.pair_id_to_image_pair(pair)
            new = geometry.inlier_matches
            if into.exists_two_view_geometry(first, second):
                geometry = into.read_two_view_geometry(first, second)
                known = geometry.inlier_matches
                unmatched = ~(np.isin(new[:, 0], known[:, 0]) | np.isin(new[:, 1], known[:, 1]))
                geometry.inlier_matches = np.concatenate([known, new[unmatched]])
                into.update_two_view_geometry(first, second, geometry)
            else:
                into.write_two_view_geometry(first, second, geometry)


def _initial_model(pycolmap: Any, database: Path, poses: dict[str, Pose]) -> Any:
    """Create a model with the known poses, the keypoints of a database and guessed intrinsics."""
    model = pycolmap.Reconstruction()
    with pycolmap.Database.open(database) as opened:
        for image in opened.read_all_images():
            stored = opened.read_camera(image.camera_id)
            focal = INITIAL_FOCAL_LENGTH * max(stored.width, stored.height)
            camera = pycolmap.Camera(
                camera_id=image.camera_id,
                model="SIMPLE_RADIAL",
                width=stored.width,
                height=stored.height,
                params=[focal, stored.width / 2, stored.height / 2, 0.0],
            )
            model.add_camera_with_trivial_rig(camera)
            keypoints = opened.read_keypoints(image.image_id)[:, :2]
            posed = pycolmap.Image(name=image.name, camera_id=image.camera_id, image_id=image.image_id)
            posed.points2D = [pycolmap.Point2D(xy) for xy in keypoints]
            pose = poses[image.name]
            rigid = pycolmap.Rigid3d(pycolmap.Rotation3d(pose.rotation), pose.translation)
            model.add_image_with_trivial_frame(posed, rigid)
    return model
