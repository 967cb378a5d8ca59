"""Synthetic views of a photo: random homographies, and random changes of light and camera."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]


@dataclass(frozen=True)
class Views:
    """How other views of a photo are made up, and when a keypoint found in one is the same as in the photo.

    Attributes:
        number: views besides the photo itself.
        points: keypoints of the photo that are followed.
        tilt: greatest angle between the photo's plane and the view, in degrees.
        roll: greatest turn of the camera, in degrees.
        zoom: greatest change of scale, as a power of two either way.
        near: pixels (in the view) between the found and the expected place, at most.
        scale: their scales apart, as a power of two, at most.
        angle: their orientations apart, in degrees, at most.
    """

    number: int = 7
    points: int = 500
    tilt: float = 50.0
    roll: float = 45.0
    zoom: float = 0.75
    near: float = 3.0
    scale: float = 0.4
    angle: float = 20.0


def viewpoint(shape: tuple[int, ...], views: Views, random: np.random.Generator) -> NDArray[np.float64]:
    """A homography of the photo as a plane: turned, tilted about some axis, seen from nearer or further, shifted."""
    height, width = shape
    reach = float(np.hypot(height, width))
    roll = np.radians(random.uniform(-views.roll, views.roll))
    axis = random.uniform(0, np.pi)
    # Uniform in the sine: steep views differ more from each other than flat ones.
    tilt = np.arcsin(random.uniform(-1, 1) * np.sin(np.radians(views.tilt)))
    zoom = 2 ** random.uniform(-views.zoom, views.zoom)
    turn, back = _rotation(axis), _rotation(-axis)
    # A camera at distance `reach` from the plane: depth changes by sin(tilt) along the axis across.
    tilted = np.array([[np.cos(tilt), 0, 0], [0, 1, 0], [np.sin(tilt) / reach, 0, 1]])
    to_centre = np.array([[1, 0, -(width - 1) / 2], [0, 1, -(height - 1) / 2], [0, 0, 1.0]])
    aside = random.uniform(-0.1, 0.1, size=2) * reach
    from_centre = np.array([[zoom, 0, (width - 1) / 2 + aside[0]], [0, zoom, (height - 1) / 2 + aside[1]], [0, 0, 1.0]])
    homography = from_centre @ turn @ tilted @ back @ _rotation(roll) @ to_centre
    return np.asarray(homography / homography[2, 2])


def _rotation(angle: float) -> NDArray[np.float64]:
    return np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])


def warp(image: Image, homography: NDArray[np.float64]) -> Image:
    import cv2

    height, width = image.shape
    # Shrinking takes one pixel of several: what is finer than the new grid goes first.
    shrink = float(np.sqrt(abs(np.linalg.det(homography[:2, :2]))))
    if shrink < 1:
        image = np.asarray(cv2.GaussianBlur(image, (0, 0), 0.5 * np.sqrt(1 / shrink**2 - 1) + 1e-3), np.uint8)
    warped = cv2.warpPerspective(
        image, homography, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
    )
    return np.asarray(warped, np.uint8)


def light(image: Image, random: np.random.Generator) -> Image:
    """Another light and another camera: gamma, contrast, blur, noise and JPEG, each only sometimes."""
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
