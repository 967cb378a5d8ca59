"""A scene with known geometry: a textured plane, as images, a COLMAP model and a database."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pycolmap

WIDTH, HEIGHT, FOCAL = 320, 240, 300.0
# Roll in degrees, distance from the plane, tilt in degrees.
VIEWS = [(0, 10, 0), (90, 10, 0), (0, 6, 0), (30, 9, 35)]


def texture(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the grey value in 0…1 of the plane at (x, y): smooth, without repetitions."""
    random = np.random.default_rng(7)
    value = np.zeros_like(x)
    for _ in range(40):
        a, b = random.normal(0, 2.5, 2)
        value += np.cos(a * x + b * y + random.uniform(0, 2 * np.pi))
    return 0.5 + value / 30


def pose(roll: float, distance: float, tilt: float) -> np.ndarray:
    """Return the pose (3, 4) of a camera that faces the origin along +z, then is tilted and rolled."""
    roll, tilt = np.radians([roll, tilt])
    about_z = np.array([[np.cos(roll), -np.sin(roll), 0], [np.sin(roll), np.cos(roll), 0], [0, 0, 1]])
    about_y = np.array([[np.cos(tilt), 0, np.sin(tilt)], [0, 1, 0], [-np.sin(tilt), 0, np.cos(tilt)]])
    return np.column_stack([about_z @ about_y, [0, 0, distance]])


def project(view: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Project points (N, 3) to COLMAP's pixels (N, 2), with the first centre at (0.5, 0.5)."""
    x, y, z = (points @ view[:, :3].T + view[:, 3]).T
    return np.column_stack([FOCAL * x / z + WIDTH / 2, FOCAL * y / z + HEIGHT / 2])


def render(view: np.ndarray) -> np.ndarray:
    """Render the plane z = 0 as an image (H, W) uint8."""
    u, v = np.meshgrid(np.arange(WIDTH) + 0.5 - WIDTH / 2, np.arange(HEIGHT) + 0.5 - HEIGHT / 2)
    rays = np.stack([u / FOCAL, v / FOCAL, np.ones_like(u)], axis=-1) @ view[:, :3]
    eye = -view[:, :3].T @ view[:, 3]
    reach = -eye[2] / rays[..., 2]
    grey = texture(eye[0] + reach * rays[..., 0], eye[1] + reach * rays[..., 1])
    return np.clip(np.rint(grey * 255), 0, 255).astype(np.uint8)


def write_scene(folder: Path, points: np.ndarray, keypoints: dict[int, np.ndarray] | None = None) -> None:
    """Write images/, sparse/ and database.db; `points` (N, 3) are visible in all views, in this order.

    Keypoints, by view, are (N, 4): x, y, scale, orientation. By default they are the true ones.
    """
    (folder / "images").mkdir()
    (folder / "sparse").mkdir()
    model = pycolmap.Reconstruction()
    camera = pycolmap.Camera(
        model="SIMPLE_PINHOLE", width=WIDTH, height=HEIGHT, params=[FOCAL, WIDTH / 2, HEIGHT / 2], camera_id=1
    )
    model.add_camera_with_trivial_rig(camera)
    with pycolmap.Database.open(folder / "database.db") as database:
        database.write_camera(camera, use_camera_id=True)
        for number, arguments in enumerate(VIEWS, start=1):
            view = pose(*arguments)
            name = f"{number}.png"
            cv2.imwrite(str(folder / "images" / name), render(view))
            rows = true_keypoints(view, points) if keypoints is None else keypoints[number]
            image = pycolmap.Image(name=name, keypoints=rows[:, :2], camera_id=1, image_id=number)
            database.write_image(image, use_image_id=True)
            database.write_keypoints(number, rows.astype(np.float32))
            model.add_image_with_trivial_frame(image, pycolmap.Rigid3d(view))
    for index, point in enumerate(points):
        elements = [pycolmap.TrackElement(number, index) for number in range(1, len(VIEWS) + 1)]
        model.add_point3D(point, pycolmap.Track(elements))
    model.write(folder / "sparse")


def true_keypoints(view: np.ndarray, points: np.ndarray, size: float = 0.1) -> np.ndarray:
    """Return the keypoints (N, 4) of a perfect detector: discs of radius `size`, oriented along x."""
    here = project(view, points)
    along = project(view, points + np.array([1e-4, 0, 0])) - here
    depth = points @ view[2, :3] + view[2, 3]
    return np.column_stack([here, size * FOCAL / depth, np.arctan2(along[:, 1], along[:, 0])])
