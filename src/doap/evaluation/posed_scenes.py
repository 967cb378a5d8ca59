"""Scenes whose images have ground-truth cameras, in the formats in which they are published.

COLMAP models    ROOT/SCENE/sparse and ROOT/SCENE/images
Strecha          ROOT/SCENE/NAME.jpg and NAME.jpg.camera: K, three zeros, R (camera to world), centre, width and height
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import DataError
from doap.data.colmap_model import open_model
from doap.geometry.colmap import camera_from_colmap, pose_from_colmap
from doap.geometry.pose import Camera, Pose
from doap.images import read_grey

# Numbers on each line of a camera file of Strecha.
_STRECHA_LINES = (3, 3, 3, 3, 3, 3, 3, 3, 2)


@dataclass(frozen=True, eq=False)
class PosedImage:
    """An image with its ground-truth camera.

    Attributes:
        path: File of the image.
        camera: Its intrinsics.
        pose: World to camera.
        points: Ids of the 3D points that it sees; None if the dataset does not have them.
    """

    path: Path
    camera: Camera
    pose: Pose
    points: frozenset[int] | None = None


@dataclass(frozen=True, eq=False)
class PosedScene:
    """Images in one coordinate frame.

    Attributes:
        name: Name of the scene.
        folder: Folder of the images.
        images: The images, sorted by path.
        shared_camera: Whether one camera with constant intrinsics took all images.
    """

    name: str
    folder: Path
    images: tuple[PosedImage, ...]
    shared_camera: bool


def is_colmap_root(root: Path) -> bool:
    """Return whether a folder has COLMAP models of scenes."""
    return bool(_colmap_models(root))


def is_strecha_root(root: Path) -> bool:
    """Return whether a folder has scenes in Strecha's format."""
    return any(root.glob("*/*.camera"))


def read_posed_scenes(root: str | Path) -> list[PosedScene]:
    """Read all scenes of a dataset in any of the formats above."""
    root = Path(root)
    if is_colmap_root(root):
        return [_read_colmap(model) for model in _colmap_models(root)]
    if is_strecha_root(root):
        return [_read_strecha(folder) for folder in sorted({path.parent for path in root.glob("*/*.camera")})]
    raise DataError(
        f"{root}: no scenes with camera poses found. Expected SCENE/sparse and SCENE/images of COLMAP models, or "
        "SCENE/*.camera beside the images (Strecha)."
    )


def _colmap_models(root: Path) -> list[Path]:
    return sorted(path for path in root.glob("*/sparse") if any(path.glob("images.*")))


def _read_colmap(model: Path) -> PosedScene:
    reconstruction = open_model(model)
    cameras = {identity: camera_from_colmap(camera) for identity, camera in reconstruction.cameras.items()}
    folder = model.parent / "images"
    images = []
    for image in sorted(reconstruction.images.values(), key=lambda image: image.name):
        points = frozenset(point.point3D_id for point in image.points2D if point.has_point3D())
        images.append(
            PosedImage(folder / image.name, cameras[image.camera_id], pose_from_colmap(image.cam_from_world()), points)
        )
    return PosedScene(model.parent.name, folder, tuple(images), shared_camera=len(cameras) == 1)


def _read_strecha(folder: Path) -> PosedScene:
    files = sorted(folder.glob("*.camera"))
    images = [_read_strecha_image(file) for file in files]
    shared = all(np.array_equal(image.camera.matrix, images[0].camera.matrix) for image in images)
    return PosedScene(folder.name, folder, tuple(images), shared_camera=shared)


def _read_strecha_image(file: Path) -> PosedImage:
    """Read one camera file, and scale its intrinsics from the published image size to that of the image."""
    lines = _read_strecha_lines(file)
    path = file.with_suffix("")
    height, width = read_grey(path).shape
    full_width, full_height = lines[8]
    factor = width / full_width
    if abs(height - factor * full_height) > 1:
        expected = f"the shape of {full_width:g}×{full_height:g} pixels, as in {file.name}"
        raise DataError(f"{path}: expected an image with {expected}, got {width}×{height}.")
    intrinsics = np.array(lines[:3])
    intrinsics[:2] *= factor
    # Pixel centres are at integers, so the corner of the image, which scaling keeps, is at (−½, −½).
    intrinsics[:2, 2] += (factor - 1) / 2
    rotation = np.array(lines[4:7]).T
    return PosedImage(path, Camera(intrinsics), Pose(rotation, -rotation @ lines[7]))


def _read_strecha_lines(file: Path) -> list[NDArray[np.float64]]:
    lines = file.read_text(encoding="utf-8").splitlines()
    if len(lines) < len(_STRECHA_LINES):
        raise DataError(f"{file}: expected {len(_STRECHA_LINES)} lines (K, zeros, R, centre, size), got {len(lines)}.")
    numbers = []
    for number, (line, count) in enumerate(zip(lines, _STRECHA_LINES, strict=False), start=1):
        try:
            values = np.array(line.split(), np.float64)
        except ValueError as error:
            raise DataError(f"{file}, line {number}: expected {count} numbers ({error}).") from error
        if len(values) != count or not np.isfinite(values).all():
            raise DataError(f"{file}, line {number}: expected {count} numbers, got {line!r}.")
        numbers.append(values)
    return numbers
