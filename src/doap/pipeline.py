"""Extract features from images, match them, and verify the matches geometrically."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from doap.checks import check_choice, check_finite, check_shape
from doap.describer import Describer, DetectsKeypoints, ImageDescriber, MatchesPairs, fingerprint
from doap.descriptor import as_describer
from doap.detectors import Detector, as_detector
from doap.detectors.tiled import detect_in_tiles
from doap.errors import ArgumentError
from doap.geometry import GeometryModel, estimate_geometry
from doap.images import (
    ImageSource,
    Pyramid,
    as_colour,
    as_grey,
    as_mask,
    centres,
    draw_matches,
    extract_patches,
    resize_frames,
    shrink,
    transform_frames,
)
from doap.images.tiles import cut_tiles
from doap.matching import FILTERS, match_descriptors
from doap.text import counted
from doap.types import Features, Geometry

PATCHES_AT_ONCE = 1024
MAX_IMAGE_SIZE = 3200
"""Maximum width and height in pixels; larger images are downscaled before detection, as in COLMAP."""


def extract(
    image: ImageSource,
    descriptor: str | Path | Describer,
    *,
    detector: str | Detector | None = None,
    max_keypoints: int = 2048,
    max_image_size: int = MAX_IMAGE_SIZE,
    mask: ImageSource | None = None,
    tile: int | None = None,
) -> Features:
    """Detect keypoints in an image and describe them.

    >>> import doap
    >>> noise = np.random.default_rng(0).integers(0, 256, (120, 160), np.uint8)
    >>> features = doap.extract(noise, "rootsift", max_keypoints=50)
    >>> features.keypoints.shape, features.descriptors.shape
    ((50, 2), torch.Size([50, 128]))

    Args:
        image: Image file, image of Pillow, or pixels: grey (height, width) or colour (height, width, 3)
            in the channel order of `cv2.imread`, uint8 or uint16.
        descriptor: Name or file for `doap.load`, or a `Describer`. To process many images, load it
            once.
        detector: Name in `doap.detectors.DETECTORS`, or a `Detector`. By default, the detector the
            descriptor requires, or SIFT if it works with any.
        max_keypoints: Maximum number of keypoints; the strongest are kept.
        max_image_size: Maximum width and height in pixels. A larger image is downscaled before
            detection, as in COLMAP, because detectors need about 100 bytes per pixel. Frames are in
            pixels of the original image.
        mask: Image of the same size, in a form that `image` may have or (height, width) bool. Keypoints
            are detected where it is not black, as in COLMAP.
        tile: Side in pixels of the overlapping tiles in which a larger image is processed at full resolution, instead
            of downscaling it to `max_image_size`. Memory is needed for one tile at a time, plus about 4 bytes per
            pixel. None uses no tiles.

    Returns:
        `Features` with N ≤ max_keypoints, and descriptors on the descriptor's device. N is 0 for an
        image without keypoints.
    """
    describer = as_describer(descriptor)
    finder = detector_for(describer, detector)
    features = detect_and_describe(image, describer, finder, max_keypoints, max_image_size, mask, tile)
    return replace(features, fingerprint=fingerprint(describer))


def detect_and_describe(
    image: ImageSource,
    describer: Describer,
    detector: Detector,
    max_keypoints: int,
    max_image_size: int = MAX_IMAGE_SIZE,
    mask: ImageSource | None = None,
    tile: int | None = None,
) -> Features:
    """Return what `extract` returns, without the fingerprint of the describer, which takes some time to compute."""
    grey = as_grey(image)
    if max_keypoints < 1 or max_image_size < 1:
        raise ArgumentError(
            f"max_keypoints and max_image_size: expected 1 or more, got {max_keypoints} and {max_image_size}"
        )
    allowed = None if mask is None else as_mask(mask, grey.shape)
    if tile is not None:
        return _extract_tiles(grey, describer, detector, max_keypoints, allowed, tile)
    small, enlarge = shrink(grey, max_image_size)
    frames, responses = detect_in_mask(detector, small, max_keypoints, allowed, enlarge)
    descriptors = describe_frames(small, frames, describer)
    return Features(transform_frames(frames, enlarge), responses, descriptors, (grey.shape[0], grey.shape[1]))


def _extract_tiles(
    image: NDArray[np.uint8],
    describer: Describer,
    detector: Detector,
    max_keypoints: int,
    mask: NDArray[np.uint8] | None,
    side: int,
) -> Features:
    """Return the features of a grey image (H, W), detected and described in tiles; the maximum applies to the image."""
    tiles = cut_tiles(image, side)
    found = detect_in_tiles(detector, tiles, describer.extent)
    allowed = np.ones(len(found.frames), np.bool_) if mask is None else _in_mask(found.frames, mask)
    chosen = found.select(np.flatnonzero(allowed)[:max_keypoints])
    # Keypoints are described tile by tile and then returned to their order. Without any, one call gives the columns.
    by_tile = np.argsort(chosen.tile, kind="stable")
    numbers = np.unique(chosen.tile) if len(chosen.tile) else [0]
    parts = [(tiles[number].pixels, chosen.local[chosen.tile == number]) for number in numbers]
    rows = torch.cat([describe_frames(pixels, frames, describer) for pixels, frames in parts])
    descriptors = rows[torch.from_numpy(np.argsort(by_tile)).to(rows.device)]
    return Features(chosen.frames, chosen.responses, descriptors, (image.shape[0], image.shape[1]))


def detect_in_mask(
    detector: Detector,
    image: NDArray[np.uint8],
    max_keypoints: int | None,
    mask: NDArray[np.uint8] | None,
    to_mask: NDArray[np.float64],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Detect keypoints of a grey image (H, W) where a mask is not zero; the maximum applies after the mask.

    Args:
        detector: Detector.
        image: (H, W) uint8.
        max_keypoints: Maximum number of keypoints; None returns all.
        mask: (H′, W′) uint8; None detects everywhere.
        to_mask: Homography (3, 3) from the pixels of the image to those of the mask.

    Returns:
        Frames (N, 2, 3) in the pixels of the image, and responses (N,).
    """
    if mask is None:
        return detector.detect(image, max_keypoints)
    frames, responses = detector.detect(image)
    kept = np.flatnonzero(_in_mask(transform_frames(frames, to_mask), mask))[:max_keypoints]
    return frames[kept], responses[kept]


def _in_mask(frames: NDArray[np.float32], mask: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return whether the mask (H, W) is not zero at the centre of each frame (N,)."""
    positions = np.rint(centres(frames)).astype(np.intp)
    x, y = np.clip(positions, 0, np.array(mask.shape[::-1]) - 1).T
    return np.asarray(mask[y, x] != 0)


def match(
    features0: Features,
    features1: Features,
    *,
    ratio: float | None = None,
    mutual: bool = True,
    filter: str | None = None,
) -> NDArray[np.int64]:
    """Match the descriptors of two images to their nearest neighbours.

    >>> import doap
    >>> noise = np.random.default_rng(0).integers(0, 256, (120, 160), np.uint8)
    >>> features = doap.extract(noise, "rootsift", max_keypoints=50)
    >>> doap.match(features, features).shape
    (50, 2)

    Args:
        features0: Features of image 0.
        features1: Features of image 1, extracted with the same descriptor; others are refused.
        ratio: Ratio test: drop a match unless its distance is below this share of the distance to
            the second nearest neighbour.
        mutual: Drop a match unless each keypoint is the other's nearest neighbour.
        filter: Name in `doap.matching.FILTERS`: "adalam" drops matches whose neighbours do not move in the same way.
            It needs the extra `kornia`.

    Returns:
        (M, 2) indices into both, sorted by the first.
    """
    fingerprints = {features0.fingerprint, features1.fingerprint} - {None}
    if len(fingerprints) > 1:
        raise ArgumentError(
            "features0 and features1: expected features of one descriptor, got features of two different ones. "
            "Extract both images with the same descriptor."
        )
    queries = features0.descriptors
    gallery = features1.descriptors.to(queries.device)
    if filter is not None:
        check_choice(filter, tuple(FILTERS), name="filter")
    pairs, _ = match_descriptors(queries, gallery, ratio=ratio, mutual=mutual)
    matches = np.asarray(pairs.cpu().numpy(), np.int64)
    if filter is None:
        return matches
    kept = {tuple(pair) for pair in FILTERS[filter](features0, features1).tolist()}
    return matches[[tuple(pair) in kept for pair in matches.tolist()]]


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
        sources: The images as they were given, from which `draw` takes the colours; None draws them in grey.
    """

    image0: NDArray[np.uint8]
    image1: NDArray[np.uint8]
    features0: Features
    features1: Features
    matches: NDArray[np.int64]
    geometry: Geometry
    sources: tuple[ImageSource, ImageSource] | None = None

    def draw(self, title: str | None = None) -> NDArray[np.uint8]:
        """Draw both images side by side with inliers in green and other matches in red.

        At most 200 matches are lines; all others are points.

        Args:
            title: Text above the images; by default, the numbers of matches and inliers.

        Returns:
            (height, width, 3) uint8 in the channel order of OpenCV: blue, green, red.
        """
        inliers = self.geometry.inliers
        if title is None:
            title = f"{counted(len(self.matches), 'match')} · {counted(int(inliers.sum()), 'inlier')}"
        points = self.features0.keypoints, self.features1.keypoints
        images = self.image0, self.image1
        if self.sources is not None:
            images = as_colour(self.sources[0]), as_colour(self.sources[1])
        return draw_matches(*images, *points, self.matches, inliers, title)


def match_images(
    image0: ImageSource,
    image1: ImageSource,
    descriptor: str | Path | Describer = "doap-128",
    *,
    detector: str | Detector | None = None,
    max_keypoints: int = 2048,
    ratio: float | None = None,
    filter: str | None = None,
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
        image0: Image in one of the forms that `extract` accepts.
        image1: Another image of the same scene.
        descriptor: Name or file for `doap.load`, or a `Describer`. A pipeline such as
            "aliked-lightglue" detects and matches keypoints itself.
        detector: Name in `doap.detectors.DETECTORS`, or a `Detector`; see `extract` for the
            default.
        max_keypoints: Maximum number of keypoints per image.
        ratio, filter: Ratio test, and filter of matches; see `match`. A pipeline has its own matcher and takes neither.
        model: "fundamental", or "homography" for planes and rotating cameras.
        threshold: Inlier threshold in pixels.
        device: Device of a descriptor given by name: "auto", "cpu", "cuda", "cuda:N" or "mps".
    """
    describer = as_describer(descriptor, device)
    for name, value in (("ratio", ratio), ("filter", filter)):
        if value is not None and isinstance(describer, MatchesPairs):
            raise ArgumentError(
                f"{name}: expected None, because the pipeline has its own matcher, got {value}. Omit it."
            )
    finder = detector_for(describer, detector)
    grey0, grey1 = as_grey(image0), as_grey(image1)
    features0, features1 = (
        extract(grey, describer, detector=finder, max_keypoints=max_keypoints) for grey in (grey0, grey1)
    )
    if isinstance(describer, MatchesPairs):
        matches = describer.match_features(features0, features1)
    else:
        matches = match(features0, features1, ratio=ratio, filter=filter)
    geometry = verify(features0, features1, matches, model=model, threshold=threshold)
    return ImageMatches(grey0, grey1, features0, features1, matches, geometry, (image0, image1))


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
