"""A scene of 3D points seen by known cameras, with a detector and a describer that know the truth.

Every image is noise whose first pixels encode its number. The detector returns the projections of the points in that
image, in random order, and the oracle describes a point alike in all images.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import cv2
import numpy as np
import pycolmap
import torch

from doap.geometry.pose import Camera, Pose

HEIGHT, WIDTH, FOCAL = 120, 160, 150.0
POINTS = 90


def cameras(count: int) -> list[Pose]:
    """Return poses on an arc around the points."""
    found = []
    for number in range(count):
        angle = np.radians(7.0 * number)
        rotation, _ = cv2.Rodrigues(np.array([0.02 * number, angle, 0.01 * number]))
        found.append(Pose(rotation, np.array([0.1 * number, 0.05 * number, 6.0])))
    return found


def intrinsics() -> Camera:
    """Return the camera of all images, with pixel centres at integers."""
    return Camera(np.array([[FOCAL, 0, WIDTH / 2 - 0.5], [0, FOCAL, HEIGHT / 2 - 0.5], [0, 0, 1]]))


class PosedScene:
    """A scene with `count` images. It is also the detector of its keypoints and an oracle that describes them."""

    name, magnification = "known points", 1.0
    dim, kind, extent, ratio = POINTS, "real", 1.0, 0.9

    def __init__(self, count: int = 5, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.points = self.random.uniform(-1, 1, (POINTS, 3)) * [1.4, 1.0, 1.0]
        self.poses = cameras(count)
        self.positions = [self.project(pose) for pose in self.poses]

    def project(self, pose: Pose) -> np.ndarray:
        """Return the pixels (N, 2) of all points, with the first pixel centre at (0, 0)."""
        x, y, z = (self.points @ pose.rotation.T + pose.translation).T
        return np.column_stack([FOCAL * x / z + WIDTH / 2 - 0.5, FOCAL * y / z + HEIGHT / 2 - 0.5])

    def image(self, number: int) -> np.ndarray:
        """Return a noise image whose first two pixels encode its number."""
        noise = np.random.default_rng(number).integers(0, 256, (HEIGHT, WIDTH), np.uint8)
        noise[0, :2] = 7, number
        return noise

    def detect(self, image: np.ndarray, max_keypoints: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the frames of the points in an image, in an order that depends on the image."""
        order = np.random.default_rng(int(image[0, 1])).permutation(POINTS)[:max_keypoints]
        frames = np.zeros((len(order), 2, 3), np.float32)
        frames[:, 0, 0] = frames[:, 1, 1] = 8
        frames[:, :, 2] = self.positions[image[0, 1]][order]
        return frames, np.ones(len(order), np.float32)

    def describe(self, image: np.ndarray, frames: np.ndarray) -> torch.Tensor:
        """Describe each frame by the number of its point, as a unit vector."""
        here = self.positions[image[0, 1]].astype(np.float32)
        numbers = [int(np.linalg.norm(here - centre, axis=1).argmin()) for centre in frames[:, :, 2]]
        return torch.eye(self.dim)[numbers]

    def fingerprint(self) -> str:
        """Return a checksum of the points."""
        return hashlib.sha256(self.points.tobytes()).hexdigest()

    def write_images(self, folder: Path) -> list[Path]:
        """Write the images as 0.png, 1.png, …."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{number}.png" for number in range(len(self.poses))]
        for number, path in enumerate(paths):
            cv2.imwrite(str(path), self.image(number))
        return paths

    def write_colmap(self, folder: Path, seen: list[np.ndarray] | None = None) -> Path:
        """Write images/ and sparse/; image i observes the points `seen[i]`, by default all."""
        self.write_images(folder / "images")
        model = pycolmap.Reconstruction()
        parameters = [FOCAL, WIDTH / 2, HEIGHT / 2]
        camera = pycolmap.Camera(model="SIMPLE_PINHOLE", width=WIDTH, height=HEIGHT, params=parameters, camera_id=1)
        model.add_camera_with_trivial_rig(camera)
        seen = [np.arange(POINTS)] * len(self.poses) if seen is None else seen
        for number, pose in enumerate(self.poses):
            image = pycolmap.Image(
                name=f"{number}.png", keypoints=self.positions[number] + 0.5, camera_id=1, image_id=number + 1
            )
            model.add_image_with_trivial_frame(
                image, pycolmap.Rigid3d(pycolmap.Rotation3d(pose.rotation), pose.translation)
            )
        for point in range(POINTS):
            views = [number for number in range(len(self.poses)) if point in seen[number]]
            if len(views) > 1:
                track = pycolmap.Track([pycolmap.TrackElement(number + 1, point) for number in views])
                model.add_point3D(self.points[point], track)
        (folder / "sparse").mkdir()
        model.write(folder / "sparse")
        return folder
