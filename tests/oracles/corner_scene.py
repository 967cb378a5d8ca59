"""A scene with known geometry that is not planar: two textured walls that meet in a corner, seen from five cameras."""

from __future__ import annotations

import functools
from pathlib import Path

import cv2
import numpy as np
import pycolmap
import torch

from doap.images import centres, read_grey

WIDTH, HEIGHT, FOCAL = 320, 240, 300.0
# Intrinsics with pixel centres at integers.
INTRINSICS = np.array([[FOCAL, 0, WIDTH / 2 - 0.5], [0, FOCAL, HEIGHT / 2 - 0.5], [0, 0, 1]])
ANGLES = (-24, -12, 0, 12, 24)
SLOPE, EXTENT, TEXTURE = 0.6, 12.0, 1200


def pose(angle: float) -> np.ndarray:
    """Return the pose (3, 4) of a camera at distance 10 from the corner, at an angle about the vertical axis."""
    turn = np.radians(angle)
    rotation = np.array([[np.cos(turn), 0, np.sin(turn)], [0, 1, 0], [-np.sin(turn), 0, np.cos(turn)]])
    # Different heights, so that the centres are not on one circle.
    return np.column_stack([rotation, [0, 0.02 * angle, 10]])


def surface(view: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """Return the points (N, 3) of the walls z = −SLOPE · |x| that a camera sees at pixels (N, 2)."""
    rays = np.column_stack([pixels, np.ones(len(pixels))]) @ np.linalg.inv(INTRINSICS).T @ view[:, :3]
    eye = -view[:, :3].T @ view[:, 3]
    points = np.full((len(pixels), 3), np.nan)
    for side in (-1, 1):
        reach = (-side * SLOPE * eye[0] - eye[2]) / (rays[:, 2] + side * SLOPE * rays[:, 0])
        found = eye + reach[:, None] * rays
        hit = (side * found[:, 0] >= 0) & (reach > 0)
        points[hit] = found[hit]
    return points


def project(view: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Project points (N, 3) to pixels (N, 2)."""
    x, y, z = INTRINSICS @ (points @ view[:, :3].T + view[:, 3]).T
    return np.column_stack([x / z, y / z])


@functools.cache
def _texture() -> np.ndarray:
    random = np.random.default_rng(3)
    texture = np.zeros((TEXTURE, TEXTURE), np.float32)
    for sigma in (2.0, 4.0, 8.0, 16.0):
        noise = cv2.GaussianBlur(random.normal(size=texture.shape).astype(np.float32), (0, 0), sigma)
        texture += noise / noise.std()
    return texture


def render(view: np.ndarray) -> np.ndarray:
    """Render the walls as an image (H, W) uint8."""
    v, u = np.mgrid[0:HEIGHT, 0:WIDTH]
    points = surface(view, np.column_stack([u.ravel(), v.ravel()]).astype(float))
    at = ((points[:, :2] / EXTENT + 0.5) * TEXTURE).astype(np.float32).reshape(HEIGHT, WIDTH, 2)
    grey = cv2.remap(_texture(), at[..., 0], at[..., 1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
    return np.clip(127 + 30 * grey, 0, 255).astype(np.uint8)


def write_colmap_scene(folder: Path) -> Path:
    """Write images/ and sparse/ of the five views."""
    (folder / "images").mkdir(parents=True)
    (folder / "sparse").mkdir()
    model = pycolmap.Reconstruction()
    camera = pycolmap.Camera(
        model="SIMPLE_PINHOLE", width=WIDTH, height=HEIGHT, params=[FOCAL, WIDTH / 2, HEIGHT / 2], camera_id=1
    )
    model.add_camera_with_trivial_rig(camera)
    for number, angle in enumerate(ANGLES, start=1):
        view = pose(angle)
        cv2.imwrite(str(folder / "images" / f"{number}.png"), render(view))
        image = pycolmap.Image(name=f"{number}.png", camera_id=1, image_id=number)
        model.add_image_with_trivial_frame(image, pycolmap.Rigid3d(view))
    model.write(folder / "sparse")
    return folder


def write_strecha_scene(folder: Path, factor: int = 1) -> Path:
    """Write the five views in Strecha's format, with camera files for images that are larger by a factor."""
    folder.mkdir(parents=True)
    large = INTRINSICS.copy()
    large[:2] *= factor
    large[:2, 2] += (factor - 1) / 2
    for number, angle in enumerate(ANGLES):
        view = pose(angle)
        path = folder / f"{number:04}.png"
        cv2.imwrite(str(path), render(view))
        rows = [*large, [0, 0, 0], *view[:, :3].T, -view[:, :3].T @ view[:, 3], [factor * WIDTH, factor * HEIGHT]]
        lines = [" ".join(f"{number:.12g}" for number in row) for row in rows]
        path.with_name(f"{path.name}.camera").write_text("\n".join(lines) + "\n")
    return folder


class Oracle:
    """A describer that knows, for each image, the true position of a pixel in the scene."""

    kind, extent, ratio = "real", 1.0, 0.9

    def __init__(self, positions, dim: int = 3) -> None:
        """`positions` maps an image file to a function of pixels (N, 2) that returns (N, dim)."""
        self.dim = dim
        self._known = {read_grey(path).tobytes(): function for path, function in positions.items()}

    def describe(self, image: np.ndarray, frames: np.ndarray) -> torch.Tensor:
        positions = self._known[image.tobytes()](centres(frames).astype(float))
        return torch.from_numpy(np.asarray(positions, np.float32))

    def fingerprint(self) -> str:
        return "oracle"
