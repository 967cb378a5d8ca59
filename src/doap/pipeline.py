"""From a photo to features, from features to matches, from matches to the geometry of two views."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from doap.detectors import Detector, sift
from doap.errors import ArgumentError, ShapeError, check_shape
from doap.geometry import Model, estimate
from doap.images import Pyramid, extract_patches, read_grey, transform_frames
from doap.matching import match_descriptors
from doap.peers import Describer
from doap.types import Features, Geometry


def extract(
    image: str | Path | NDArray[np.uint8],
    descriptor: Describer,
    *,
    detector: Detector | None = None,
    most: int = 2048,
    longest_side: int = 3200,
) -> Features:
    """Find keypoints and describe them.

    Args:
        image: a file, or grey pixels (height, width) uint8.
        descriptor: a `Descriptor`, a peer such as `rootsift()`, or anything with their face.
        detector: where to look; SIFT's blobs if not given.
        most: keypoints to keep, the strongest.
        longest_side: a larger image is made smaller to this before anything else, as COLMAP does, for detectors need
            about a hundred bytes for each pixel. Frames are told in the pixels of the image as it was given.

    Returns:
        Features; none of them for an image without any, with the right D.
    """
    grey = read_grey(image) if isinstance(image, str | Path) else image
    height, width = _check_grey(grey)
    if most < 1 or longest_side < 1:
        raise ArgumentError(f"most and longest_side: expected 1 or more, got {most} and {longest_side}")
    looked_at, enlarge = _reduced(grey, longest_side)
    frames, responses = (detector or sift()).detect(looked_at, most)
    descriptors = describe_frames(looked_at, frames, descriptor)
    return Features(transform_frames(frames, enlarge), responses, descriptors, (height, width))


def describe_frames(image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32], descriptor: Describer) -> Tensor:
    """Descriptors (N, D) float32 or (N, D/8) uint8 of frames (N, 2, 3) of a grey image."""
    patches = torch.from_numpy(extract_patches(image, frames, descriptor.patch_size))
    return descriptor.describe(patches.unsqueeze(1).float() / 255)


def match(
    features0: Features, features1: Features, *, ratio: float | None = None, mutual: bool = True
) -> NDArray[np.int64]:
    """Which keypoints of image 0 look like which of image 1.

    Args:
        features0, features1: of the two images, made by the same descriptor.
        ratio: keep a match whose distance is below this share of the distance to the second nearest, if given.
        mutual: keep a match only if each is the other's nearest.

    Returns:
        (M, 2) indices into both, increasing in the first.
    """
    pairs, _ = match_descriptors(features0.descriptors, features1.descriptors, ratio=ratio, mutual=mutual)
    return np.asarray(pairs.cpu().numpy(), np.int64)


def verify(
    features0: Features,
    features1: Features,
    matches: NDArray[np.integer[Any]],
    *,
    model: Model = "fundamental",
    threshold: float = 1.5,
    cameras: tuple[ArrayLike, ArrayLike] | None = None,
) -> Geometry:
    """The geometry that most matches (M, 2) agree on; arguments as for `doap.geometry.estimate`."""
    check_shape(matches, "M 2", name="matches")
    points0, points1 = features0.keypoints[matches[:, 0]], features1.keypoints[matches[:, 1]]
    return estimate(points0, points1, model, threshold=threshold, cameras=cameras)


def _check_grey(image: NDArray[np.uint8]) -> tuple[int, int]:
    if image.ndim != 2:
        raise ShapeError(
            f"image: expected grey (height, width), got {image.shape}; give a file, or convert with cv2.cvtColor"
        )
    if image.dtype != np.uint8:
        raise ArgumentError(f"image: expected uint8, got {image.dtype}; give a file, or scale it to 0…255 first")
    if not image.size:
        raise ArgumentError(f"image: expected one pixel or more, got {image.shape[0]}×{image.shape[1]}")
    return image.shape[0], image.shape[1]


def _reduced(image: NDArray[np.uint8], longest: int) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """The image, made smaller if it has to be, and the (3, 3) map of its coordinates to those of the original."""
    import cv2

    height, width = image.shape
    if max(height, width) <= longest:
        return image, np.eye(3)
    share = longest / max(height, width)
    size = (max(1, round(width * share)), max(1, round(height * share)))
    x, y = width / size[0], height / size[1]
    # The corner of the first pixel stays in place, and lies half a pixel before its centre.
    enlarge = np.array([[x, 0, (x - 1) / 2], [0, y, (y - 1) / 2], [0, 0, 1.0]])
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8), enlarge
