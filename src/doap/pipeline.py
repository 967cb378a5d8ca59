"""From a photo to features, from features to matches, from matches to the geometry of two views."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from doap.checks import check_shape
from doap.describer import Describer, ImageDescriber
from doap.detectors import Detector, sift
from doap.errors import ArgumentError
from doap.geometry import GeometryModel, estimate_geometry
from doap.images import Pyramid, check_grey, extract_patches, read_grey, resize_frames, shrink, transform_frames
from doap.matching import match_descriptors
from doap.types import Features, Geometry

PATCHES_AT_ONCE = 1024


def extract(
    image: str | Path | NDArray[np.uint8],
    descriptor: Describer,
    *,
    detector: Detector | None = None,
    max_keypoints: int = 2048,
    longest_side: int = 3200,
) -> Features:
    """Find keypoints and describe them.

    Args:
        image: a file, or grey pixels (height, width) uint8.
        descriptor: a `Descriptor`, a peer such as `rootsift()`, or anything with their face.
        detector: where to look; SIFT's blobs if not given.
        max_keypoints: keypoints to keep, the strongest.
        longest_side: a larger image is made smaller to this before anything else, as COLMAP does, for detectors need
            about a hundred bytes for each pixel. Frames are told in the pixels of the image as it was given.

    Returns:
        Features; none of them for an image without any, with the right D.
    """
    grey = read_grey(image) if isinstance(image, str | Path) else image
    height, width = check_grey(grey)
    if max_keypoints < 1 or longest_side < 1:
        raise ArgumentError(f"most and longest_side: expected 1 or more, got {max_keypoints} and {longest_side}")
    looked_at, enlarge = shrink(grey, longest_side)
    frames, responses = (detector or sift()).detect(looked_at, max_keypoints)
    descriptors = describe_frames(looked_at, frames, descriptor)
    return Features(transform_frames(frames, enlarge), responses, descriptors, (height, width))


def extract_sample(descriptor: Describer, detector: Detector | None = None) -> Features:
    """Features of a fixed picture, by which detectors, their settings and weights are told apart, anybody's own too.

    The picture is of blocks, ever fainter to the right, where it is the thresholds of a detector that decide.
    """
    blocks = np.random.default_rng(0).integers(-127, 128, (32, 32)) * np.linspace(1, 0.02, 32)
    picture = np.asarray(128 + blocks.round(), np.uint8).repeat(4, axis=0).repeat(4, axis=1)
    return extract(picture, descriptor, detector=detector, max_keypoints=1000)


def describe_frames(image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32], descriptor: Describer) -> Tensor:
    """Descriptors (N, D) float32 or (N, D/8) uint8 of frames (N, 2, 3) of a grey image."""
    if isinstance(descriptor, ImageDescriber):
        return descriptor.describe_frames(image, frames)
    patches = torch.from_numpy(cut_patches(image, frames, descriptor))
    return descriptor.describe(patches.unsqueeze(1).float() / 255)


def describe_patches(describer: Describer, patches: NDArray[np.uint8]) -> Tensor:
    """Descriptors of (N, S, S) patches, on the CPU; patches of another size are sampled anew, without aliasing."""
    size = describer.patch_size
    parts = []
    # torch knows no patches that are mirrored in place.
    whole = torch.from_numpy(np.ascontiguousarray(patches)).unsqueeze(1)
    # One empty part gives an empty set its D.
    for part in whole.split(PATCHES_AT_ONCE) or (whole,):
        bright = part.float() / 255
        if size != patches.shape[1]:
            bright = interpolate(bright, (size, size), mode="bilinear", antialias=True, align_corners=False)
        parts.append(describer.describe(bright).cpu())
    return torch.cat(parts)


def cut_patches(
    image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32], descriptor: Describer
) -> NDArray[np.uint8]:
    """The patches (N, S, S) that a descriptor wants of frames (N, 2, 3), larger than these if it has an `extent`."""
    return extract_patches(image, resize_frames(frames, descriptor.extent), descriptor.patch_size)


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
    model: GeometryModel = "fundamental",
    threshold: float = 1.5,
    cameras: tuple[ArrayLike, ArrayLike] | None = None,
) -> Geometry:
    """The geometry that most matches (M, 2) agree on; arguments as for `doap.geometry.estimate_geometry`."""
    check_shape(matches, "M 2", name="matches")
    points0, points1 = features0.keypoints[matches[:, 0]], features1.keypoints[matches[:, 1]]
    return estimate_geometry(points0, points1, model, threshold=threshold, cameras=cameras)
