"""Scenes whose images have ground-truth cameras, in the formats in which they are published.

COLMAP models    ROOT/SCENE/sparse and ROOT/SCENE/images
Strecha          ROOT/SCENE/NAME.jpg and NAME.jpg.camera: K, three zeros, R (camera to world), centre, width and height
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.data.colmap_model import open_model
from doap.errors import DataError
from doap.geometry.pose import Camera, Pose
from doap.images import read_grey

# Order of the parameters of COLMAP's camera models: intrinsics first, then OpenCV's distortion coefficients.
_COLMAP_MODELS = {
    "SIMPLE_PINHOLE": ("f", "cx", "cy"),
    "PINHOLE": ("fx", "fy", "cx", "cy"),
    "SIMPLE_RADIAL": ("f", "cx", "cy", "k1"),
    "RADIAL": ("f", "cx", "cy", "k1", "k2"),
    "OPENCV": ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2"),
}
_COLMAP_PIXEL_CENTRE = 0.5
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
    cameras = {identity: _colmap_camera(camera) for identity, camera in reconstruction.cameras.items()}
    folder = model.parent / "images"
    images = []
    for image in sorted(reconstruction.images.values(), key=lambda image: image.name):
        points = frozenset(point.point3D_id for point in image.points2D if point.has_point3D())
        images.append(PosedImage(folder / image.name, cameras[image.camera_id], colmap_pose(image), points))
    return PosedScene(model.parent.name, folder, tuple(images), shared_camera=len(cameras) == 1)


def colmap_pose(image: object) -> Pose:
    """Return the pose of a registered image of pycolmap, world to camera."""
    transformation = image.cam_from_world()  # type: ignore[attr-defined]
    return Pose(np.asarray(transformation.rotation.matrix()), np.asarray(transformation.translation))


def _colmap_camera(camera: object) -> Camera:
    """Convert a camera of COLMAP, whose first pixel has its centre at (0.5, 0.5)."""
    model, parameters = camera.model.name, camera.params  # type: ignore[attr-defined]
    if model not in _COLMAP_MODELS:
        raise DataError(f"camera: expected one of {', '.join(_COLMAP_MODELS)}, got COLMAP's model {model}.")
    named = dict(zip(_COLMAP_MODELS[model], map(float, parameters), strict=True))
    focal_x, focal_y = named.get("fx", named.get("f", 0.0)), named.get("fy", named.get("f", 0.0))
    centre_x, centre_y = named["cx"] - _COLMAP_PIXEL_CENTRE, named["cy"] - _COLMAP_PIXEL_CENTRE
    matrix = np.array([[focal_x, 0, centre_x], [0, focal_y, centre_y], [0, 0, 1]])
    distortion = tuple(named.get(key, 0.0) for key in ("k1", "k2", "p1", "p2"))
    return Camera(matrix, distortion if any(distortion) else ())


def colmap_parameters(camera: Camera) -> list[float]:
    """Return the parameters of COLMAP's model OPENCV for a camera."""
    matrix, distortion = camera.matrix, [*camera.distortion, 0.0, 0.0, 0.0, 0.0][:4]
    centre = matrix[:2, 2] + _COLMAP_PIXEL_CENTRE
    return [float(matrix[0, 0]), float(matrix[1, 1]), *centre.tolist(), *distortion]


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
