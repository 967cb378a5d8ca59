"""Convert cameras and poses of pycolmap, whose first pixel has its centre at (0.5, 0.5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from doap._support.errors import DataError, import_extra
from doap.geometry.pose import Camera, Pose
from doap.images.frames import COLMAP_PIXEL_CENTRE

# Order of the parameters of COLMAP's camera models: intrinsics first, then OpenCV's distortion coefficients.
MODELS = {
    "SIMPLE_PINHOLE": ("f", "cx", "cy"),
    "PINHOLE": ("fx", "fy", "cx", "cy"),
    "SIMPLE_RADIAL": ("f", "cx", "cy", "k1"),
    "RADIAL": ("f", "cx", "cy", "k1", "k2"),
    "OPENCV": ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2"),
}


def pose_from_colmap(rigid: object) -> Pose:
    """Convert a `pycolmap.Rigid3d`, such as `image.cam_from_world()`."""
    return Pose(np.asarray(rigid.rotation.matrix()), np.asarray(rigid.translation))  # type: ignore[attr-defined]


def camera_from_colmap(camera: object) -> Camera:
    """Convert a camera of COLMAP, whose first pixel has its centre at (0.5, 0.5)."""
    model, parameters = camera.model.name, camera.params  # type: ignore[attr-defined]
    if model not in MODELS:
        raise DataError(f"camera: expected one of {', '.join(MODELS)}, got COLMAP's model {model}.")
    named = dict(zip(MODELS[model], map(float, parameters), strict=True))
    focal_x, focal_y = named.get("fx", named.get("f", 0.0)), named.get("fy", named.get("f", 0.0))
    centre_x, centre_y = named["cx"] - COLMAP_PIXEL_CENTRE, named["cy"] - COLMAP_PIXEL_CENTRE
    matrix = np.array([[focal_x, 0, centre_x], [0, focal_y, centre_y], [0, 0, 1]])
    distortion = tuple(named.get(key, 0.0) for key in ("k1", "k2", "p1", "p2"))
    return Camera(matrix, distortion if any(distortion) else ())


def camera_to_colmap(camera: Camera) -> list[float]:
    """Return the parameters of COLMAP's model OPENCV for a camera."""
    matrix, distortion = camera.matrix, [*camera.distortion, 0.0, 0.0, 0.0, 0.0][:4]
    centre = matrix[:2, 2] + COLMAP_PIXEL_CENTRE
    return [float(matrix[0, 0]), float(matrix[1, 1]), *centre.tolist(), *distortion]


def import_pycolmap() -> Any:
    """Import pycolmap and silence its log."""
    pycolmap = import_extra("pycolmap", "colmap")
    pycolmap.logging.minloglevel = pycolmap.logging.FATAL.value
    return pycolmap
