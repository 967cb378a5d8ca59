"""Render synthetic views of a photo: random homographies, lighting and camera effects."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]


@dataclass(frozen=True)
class SyntheticViews:
    """Settings of the synthetic views of a photo.

    A keypoint detected in a view matches a keypoint of the photo if it is within all three limits
    of the projected one.

    Attributes:
        count: Number of views besides the photo itself.
        keypoints: Maximum number of keypoints of the photo to match.
        max_tilt: Largest angle between the planes of photo and view, in degrees.
        max_roll: Largest rotation of the camera about its axis, in degrees.
        max_zoom: Largest change of scale in octaves, in either direction.
        max_distance: Largest distance between projected and detected keypoint, in pixels of the
            view.
        max_octaves: Largest difference in scale, in octaves.
        max_angle: Largest difference in orientation, in degrees.
    """

    count: int = 7
    keypoints: int = 500
    max_tilt: float = 50.0
    max_roll: float = 45.0
    max_zoom: float = 0.75
    max_distance: float = 3.0
    max_octaves: float = 0.4
    max_angle: float = 20.0


def random_homography(
    shape: tuple[int, ...], views: SyntheticViews, random: np.random.Generator
) -> NDArray[np.float64]:
    """Return a random homography (3, 3) from a planar photo to a view of the same size.

    The camera is rolled, tilted about a random axis, zoomed and shifted.

    Args:
        shape: (height, width) of the photo.
        views: Limits of tilt, roll and zoom.
        random: Random generator.
    """
    height, width = shape
    distance = float(np.hypot(height, width))
    roll = np.radians(random.uniform(-views.max_roll, views.max_roll))
    axis = random.uniform(0, np.pi)
    # Uniform in the sine, because steep views differ more from each other than flat ones.
    tilt = np.arcsin(random.uniform(-1, 1) * np.sin(np.radians(views.max_tilt)))
    zoom = 2 ** random.uniform(-views.max_zoom, views.max_zoom)
    # A camera at this distance from the plane: depth changes by sin(tilt) across the axis.
    tilted = np.array([[np.cos(tilt), 0, 0], [0, 1, 0], [np.sin(tilt) / distance, 0, 1]])
    centre_x, centre_y = (width - 1) / 2, (height - 1) / 2
    to_centre = np.array([[1, 0, -centre_x], [0, 1, -centre_y], [0, 0, 1.0]])
    shift_x, shift_y = random.uniform(-0.1, 0.1, size=2) * distance
    from_centre = np.array([[zoom, 0, centre_x + shift_x], [0, zoom, centre_y + shift_y], [0, 0, 1.0]])
    homography = from_centre @ _rotation(axis) @ tilted @ _rotation(-axis) @ _rotation(roll) @ to_centre
    return np.asarray(homography / homography[2, 2])


def warp(image: Image, homography: NDArray[np.float64]) -> Image:
    """Warp an image (H, W) by a homography (3, 3). Size is kept and border pixels are repeated."""
    import cv2

    height, width = image.shape
    # Blur before shrinking, because each pixel of the result is interpolated between four pixels
    # only.
    zoom = float(np.sqrt(abs(np.linalg.det(homography[:2, :2]))))
    if zoom < 1:
        image = np.asarray(cv2.GaussianBlur(image, (0, 0), 0.5 * np.sqrt(1 / zoom**2 - 1) + 1e-3), np.uint8)
    warped = cv2.warpPerspective(
        image, homography, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
    )
    return np.asarray(warped, np.uint8)


def change_appearance(image: Image, random: np.random.Generator) -> Image:
    """Change gamma, contrast, blur, noise and JPEG quality of an image (H, W), each at random."""
    import cv2

    values = image.astype(np.float32) / 255
    if random.random() < 0.7:
        values = values ** float(2 ** random.uniform(-0.8, 0.8))
    if random.random() < 0.7:
        values = (values - 0.5) * float(random.uniform(0.6, 1.3)) + 0.5 + float(random.uniform(-0.15, 0.15))
    if random.random() < 0.4:
        values = np.asarray(cv2.GaussianBlur(values, (0, 0), float(random.uniform(0.4, 1.5))), np.float32)
    if random.random() < 0.4:
        values = values + random.normal(0, random.uniform(0.005, 0.03), values.shape).astype(np.float32)
    changed = np.clip(np.rint(values * 255), 0, 255).astype(np.uint8)
    if random.random() < 0.5:
        _, coded = cv2.imencode(".jpg", changed, [cv2.IMWRITE_JPEG_QUALITY, int(random.integers(30, 90))])
        changed = np.asarray(cv2.imdecode(coded, cv2.IMREAD_GRAYSCALE), np.uint8)
    return changed


def _rotation(angle: float) -> NDArray[np.float64]:
    return np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
