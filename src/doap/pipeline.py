"""Extract features from images, match them, and verify the matches geometrically."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from doap.checks import check_finite, check_shape
from doap.describer import Describer, DetectsKeypoints, ImageDescriber, MatchesPairs
from doap.descriptor import as_describer
from doap.detectors import Detector, as_detector
from doap.errors import ArgumentError
from doap.geometry import GeometryModel, estimate_geometry
from doap.images import (
    Pyramid,
    check_grey,
    draw_matches,
    extract_patches,
    read_grey,
    resize_frames,
    shrink,
    transform_frames,
)
from doap.matching import match_descriptors
from doap.types import Features, Geometry

PATCHES_AT_ONCE = 1024


def extract(
    image: str | Path | NDArray[np.uint8],
    descriptor: str | Path | Describer,
    *,
    detector: str | Detector | None = None,
    max_keypoints: int = 2048,
    max_image_size: int = 3200,
) -> Features:
    """Detect keypoints in an image and describe them.

    >>> import doap
    >>> noise = np.random.default_rng(0).integers(0, 256, (120, 160), np.uint8)
    >>> features = doap.extract(noise, "rootsift", max_keypoints=50)
    >>> features.keypoints.shape, features.descriptors.shape
    ((50, 2), torch.Size([50, 128]))

    Args:
        image: Image file, or grey pixels (height, width) uint8.
        descriptor: Name or file for `doap.load`, or a `Describer`. To process many images, load it
            once.
        detector: Name in `doap.detectors.DETECTORS`, or a `Detector`. By default, the detector the
            descriptor requires, or SIFT if it works with any.
        max_keypoints: Maximum number of keypoints; the strongest are kept.
        max_image_size: Maximum width and height in pixels. A larger image is downscaled before
            detection, as in COLMAP, because detectors need about 100 bytes per pixel. Frames are in
            pixels of the original image.

    Returns:
        `Features` with N ≤ max_keypoints, and descriptors on the descriptor's device. N is 0 for an
        image without keypoints.
    """
    grey = as_grey(image)
    if max_keypoints < 1 or max_image_size < 1:
        raise ArgumentError(
            f"max_keypoints and max_image_size: expected 1 or more, got {max_keypoints} and {max_image_size}"
        )
    describer = as_describer(descriptor)
    small, enlarge = shrink(grey, max_image_size)
    frames, responses = detector_for(describer, detector).detect(small, max_keypoints)
    descriptors = describe_frames(small, frames, describer)
    return Features(transform_frames(frames, enlarge), responses, descriptors, (grey.shape[0], grey.shape[1]))


def match(
    features0: Features, features1: Features, *, ratio: float | None = None, mutual: bool = True
) -> NDArray[np.int64]:
    """Match the descriptors of two images to their nearest neighbours.

    >>> import doap
    >>> noise = np.random.default_rng(0).integers(0, 256, (120, 160), np.uint8)
    >>> features = doap.extract(noise, "rootsift", max_keypoints=50)
    >>> doap.match(features, features).shape
    (50, 2)

    Args:
        features0: Features of image 0.
        features1: Features of image 1, extracted with the same descriptor.
        ratio: Ratio test: drop a match unless its distance is below this share of the distance to
            the second nearest neighbour.
        mutual: Drop a match unless each keypoint is the other's nearest neighbour.

    Returns:
        (M, 2) indices into both, sorted by the first.
    """
    queries = features0.descriptors
    gallery = features1.descriptors.to(queries.device)
    pairs, _ = match_descriptors(queries, gallery, ratio=ratio, mutual=mutual)
    return np.asarray(pairs.cpu().numpy(), np.int64)


def verify(
    features0: Features,
    features1: Features,
    matches: NDArray[np.int64],
    *,
    model: GeometryModel = "fundamental",
    threshold: float = 1.5,
    cameras: tuple[ArrayLike, ArrayLike] | None = None,
) -> Geometry:
    """Estimate the geometry of two images from matches, and find the matches that agree with it.

    >>> import doap
    >>> noise = np.random.default_rng(0).integers(0, 256, (120, 160), np.uint8)
    >>> features = doap.extract(noise, "rootsift", max_keypoints=50)
    >>> doap.verify(features, features, doap.match(features, features), model="homography").inliers.sum()
    np.int64(50)

    Args:
        features0: Features of image 0.
        features1: Features of image 1.
        matches: (M, 2) indices into both, from `match`.
        model: "fundamental" for any scene, "homography" for planes and rotating cameras,
            "essential" for calibrated cameras.
        threshold: Inlier threshold in pixels.
        cameras: Intrinsic matrices (3, 3) of both images, for the model "essential".

    Returns:
        `Geometry` with inliers (M,). Its matrix is None if there are too few matches, or none that
        agree.
    """
    check_shape(matches, "M 2", name="matches")
    points0, points1 = features0.keypoints[matches[:, 0]], features1.keypoints[matches[:, 1]]
    return estimate_geometry(points0, points1, model, threshold=threshold, cameras=cameras)


@dataclass(frozen=True)
class ImageMatches:
    """Two matched images.

    Attributes:
        image0: Grey pixels (height, width) of image 0.
        image1: Grey pixels of image 1; the sizes may differ.
        features0: Features of image 0.
        features1: Features of image 1.
        matches: (M, 2) indices into the features.
        geometry: Geometry that the inliers agree with; `geometry.inliers` is (M,) bool.
    """

    image0: NDArray[np.uint8]
    image1: NDArray[np.uint8]
    features0: Features
    features1: Features
    matches: NDArray[np.int64]
    geometry: Geometry

    def draw(self, title: str | None = None) -> NDArray[np.uint8]:
        """Draw both images side by side with inliers in green and other matches in red.

        Args:
            title: Text above the images; by default, the numbers of matches and inliers.

        Returns:
            (height, width, 3) uint8 in the channel order of OpenCV: blue, green, red.
        """
        inliers = self.geometry.inliers
        title = f"{len(self.matches):,} matches · {inliers.sum():,} inliers" if title is None else title
        points = self.features0.keypoints, self.features1.keypoints
        return draw_matches(self.image0, self.image1, *points, self.matches, inliers, title)


def match_images(
    image0: str | Path | NDArray[np.uint8],
    image1: str | Path | NDArray[np.uint8],
    descriptor: str | Path | Describer = "doap-128",
    *,
    detector: str | Detector | None = None,
    max_keypoints: int = 2048,
    ratio: float | None = None,
    model: GeometryModel = "fundamental",
    threshold: float = 1.5,
    device: str | torch.device = "auto",
) -> ImageMatches:
    """Match two images: extract features, match them and verify the matches.

    >>> import doap
    >>> samples = Path(doap.__file__).with_name("samples")
    >>> found = doap.match_images(samples / "photo.jpg", samples / "print.jpg", max_keypoints=300)
    >>> found.geometry.inliers.sum() > 80
    np.True_
    >>> picture = found.draw()  # (height, width, 3), for cv2.imwrite

    Args:
        image0: Image file, or grey pixels (height, width) uint8.
        image1: Another image of the same scene.
        descriptor: Name or file for `doap.load`, or a `Describer`. A pipeline such as
            "aliked-lightglue" detects and matches keypoints itself.
        detector: Name in `doap.detectors.DETECTORS`, or a `Detector`; see `extract` for the
            default.
        max_keypoints: Maximum number of keypoints per image.
        ratio: Ratio test; see `match`. A pipeline has its own matcher and takes none.
        model: "fundamental", or "homography" for planes and rotating cameras.
        threshold: Inlier threshold in pixels.
        device: Device of a descriptor given by name: "auto", "cpu", "cuda", "cuda:N" or "mps".
    """
    describer = as_describer(descriptor, device)
    if ratio is not None and isinstance(describer, MatchesPairs):
        raise ArgumentError(f"ratio: expected None, because the pipeline has its own matcher, got {ratio}. Omit it.")
    finder = detector_for(describer, detector)
    grey0, grey1 = as_grey(image0), as_grey(image1)
    features0, features1 = (
        extract(grey, describer, detector=finder, max_keypoints=max_keypoints) for grey in (grey0, grey1)
    )
    if isinstance(describer, MatchesPairs):
        matches = describer.match_features(features0, features1)
    else:
        matches = match(features0, features1, ratio=ratio)
    geometry = verify(features0, features1, matches, model=model, threshold=threshold)
    return ImageMatches(grey0, grey1, features0, features1, matches, geometry)


def as_grey(image: str | Path | NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Read an image file as grey pixels (height, width) uint8, or check that an array has this form."""
    grey = read_grey(image) if isinstance(image, str | Path) else image
    check_grey(grey)
    return grey


def detector_for(descriptor: Describer, detector: str | Detector | None) -> Detector:
    """Return a detector given by name or object; for None, the one the descriptor requires, or SIFT."""
    if detector is None and isinstance(descriptor, DetectsKeypoints):
        return descriptor.detector
    return as_detector(detector)


def extract_sample(descriptor: Describer, detector: Detector | None = None) -> Features:
    """Extract features from a fixed image; they identify a detector and a descriptor.

    The contrast of the image decreases to the right, so that the thresholds of a detector change
    the result.
    """
    blocks = np.random.default_rng(0).integers(-127, 128, (32, 32)) * np.linspace(1, 0.02, 32)
    image = np.asarray(128 + blocks.round(), np.uint8).repeat(4, axis=0).repeat(4, axis=1)
    return extract(image, descriptor, detector=detector, max_keypoints=1000)


def describe_frames(image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32], descriptor: Describer) -> Tensor:
    """Describe frames (N, 2, 3) of a grey image (height, width).

    Returns:
        (N, D) float32 or (N, D/8) uint8, on the descriptor's device.
    """
    if isinstance(descriptor, ImageDescriber):
        return descriptor.describe_frames(image, frames)
    patches = torch.from_numpy(cut_patches(image, frames, descriptor))
    return descriptor.describe(patches.unsqueeze(1).float() / 255)


def describe_patches(describer: Describer, patches: NDArray[np.uint8]) -> Tensor:
    """Describe patches (N, S, S) of any size on the describer's device.

    Patches of another size than the describer's are resampled with antialiasing.

    Returns:
        (N, D) float32 or (N, D/8) uint8 on the CPU, because the descriptors of a large set may not
        fit on a GPU.
    """
    size = describer.patch_size
    parts = []
    # torch does not accept the negative strides of flipped patches.
    whole = torch.from_numpy(np.ascontiguousarray(patches)).unsqueeze(1)
    # For an empty set, one empty batch returns the right number of columns.
    for part in whole.split(PATCHES_AT_ONCE) or (whole,):
        bright = part.float() / 255
        if size != patches.shape[1]:
            bright = interpolate(bright, (size, size), mode="bilinear", antialias=True, align_corners=False)
        parts.append(describer.describe(bright).cpu())
    described = torch.cat(parts)
    check_finite(described, name="descriptors")
    return described


def cut_patches(
    image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32], descriptor: Describer
) -> NDArray[np.uint8]:
    """Cut the patches (N, S, S) of frames (N, 2, 3) for a descriptor, enlarged by its `extent`."""
    return extract_patches(image, resize_frames(frames, descriptor.extent), descriptor.patch_size)
