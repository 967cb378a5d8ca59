"""Extract features from images, match them, and verify the matches geometrically."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from doap._support.checks import check_choice, check_finite
from doap._support.device import Precision
from doap._support.errors import ArgumentError
from doap._support.text import counted
from doap.describer import PatchDescriber
from doap.descriptor import as_describer, load
from doap.detectors import DETECTORS, Detector, as_detector
from doap.extractor import MAX_IMAGE_SIZE, MAX_KEYPOINTS, DescriptorSource, Extractor, KeypointExtractor
from doap.geometry import GeometryModel, estimate_geometry
from doap.images import ImageSource, as_colour, as_grey, draw_matches
from doap.matching import AdaLAM, NearestNeighbours
from doap.types import Features, Geometry, Matches, Progress, no_progress

PATCHES_AT_ONCE = 1024


def extract(
    image: ImageSource,
    descriptor: DescriptorSource,
    *,
    detector: str | Detector | None = None,
    max_keypoints: int = MAX_KEYPOINTS,
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
        descriptor: Name or file for `doap.load`, a `Describer` or an `Extractor`. To process many images, load it
            once.
        detector: Name in `doap.detectors.DETECTORS`, or a `Detector`; SIFT by default. An `Extractor` has its own.
        max_keypoints: Maximum number of keypoints. SIFT keeps the largest, other detectors the strongest.
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
    return as_extractor(descriptor, detector).extract(
        image, max_keypoints=max_keypoints, max_image_size=max_image_size, mask=mask, tile=tile
    )


def as_extractor(
    descriptor: DescriptorSource,
    detector: str | Detector | None = None,
    *,
    default_detector: str = "sift",
    device: str | torch.device = "auto",
    precision: Precision = "auto",
) -> Extractor:
    """Combine a descriptor and a detector; return an extractor, which has its own detector, unchanged.

    Args:
        descriptor: Name or file for `doap.load`, a `Describer` or an `Extractor`.
        detector: Name in `doap.detectors.DETECTORS`, or a `Detector`.
        default_detector: Detector for a `Describer` if `detector` is None.
        device, precision: Device and precision of a descriptor given by name; see `doap.load`.
    """
    if isinstance(descriptor, str | Path):
        descriptor = load(descriptor, device=device, precision=precision)
    if not isinstance(descriptor, Extractor):
        # A stored file may name the default, and must not choose the code that runs.
        check_choice(default_detector, tuple(DETECTORS), name="detector")
        return KeypointExtractor(as_describer(descriptor), as_detector(detector or default_detector))
    if detector is not None and (other := as_detector(detector)) != descriptor.detector:
        raise ArgumentError(
            f"detector: expected None, because {descriptor.name} only describes the keypoints of its own detector, "
            f"{descriptor.detector.name}; got {other.name}. Omit it."
        )
    return descriptor


def match(
    features0: Features, features1: Features, *, ratio: float | None = None, filter: str | None = None
) -> Matches:
    """Match the keypoints of two images whose descriptors are each other's nearest neighbours.

    >>> import doap
    >>> noise = np.random.default_rng(0).integers(0, 256, (120, 160), np.uint8)
    >>> features = doap.extract(noise, "rootsift", max_keypoints=50)
    >>> len(doap.match(features, features))
    50

    Args:
        features0: Features of image 0.
        features1: Features of image 1, extracted with the same descriptor; others are refused.
        ratio: Ratio test: drop a match unless its distance is below this share of the distance to the second nearest
            neighbour, in both directions. None omits the test. 1 only drops matches that tie with the second nearest.
        filter: "adalam" drops matches whose neighbours do not move in the same way. It needs the extra `kornia`.

    Returns:
        `Matches`, sorted by the index into `features0`.
    """
    matcher = NearestNeighbours(ratio)
    if filter is None:
        return matcher.match(features0, features1)
    check_choice(filter, ("adalam",), name="filter")
    return AdaLAM(matcher).match(features0, features1)


def verify(
    features0: Features,
    features1: Features,
    matches: Matches,
    *,
    model: GeometryModel = "fundamental",
    threshold: float = 1.5,
) -> Geometry:
    """Estimate the geometry of two images from matches, and find the matches that agree with it.

    >>> import doap
    >>> noise = np.random.default_rng(0).integers(0, 256, (120, 160), np.uint8)
    >>> features = doap.extract(noise, "rootsift", max_keypoints=50)
    >>> doap.verify(features, features, doap.match(features, features), model="homography").inliers.sum()
    np.int64(50)

    Args:
        features0, features1: Features of both images.
        matches: M matches, from `match` or a `Matcher`.
        model: "fundamental" for any scene, "homography" for planes and rotating cameras.
        threshold: Inlier threshold in pixels.

    Returns:
        `Geometry` with inliers (M,). Its matrix is None if there are too few matches, or none that agree.
    """
    if not isinstance(matches, Matches):
        raise ArgumentError(f"matches: expected the Matches that doap.match returns, got {type(matches).__name__}.")
    points0, points1 = matches.points(features0, features1)
    return estimate_geometry(points0, points1, model, threshold=threshold)


@dataclass(frozen=True)
class ImageMatches:
    """Two matched images.

    Attributes:
        image0, image1: Grey pixels (height, width); the sizes may differ.
        features0, features1: Features of the images.
        matches: Matches of the features.
        geometry: Geometry that the inliers agree with; `geometry.inliers` is (M,) bool.
        sources: The images as they were given, from which `draw` takes the colours; None draws them in grey.
    """

    image0: NDArray[np.uint8]
    image1: NDArray[np.uint8]
    features0: Features
    features1: Features
    matches: Matches
    geometry: Geometry
    sources: tuple[ImageSource, ImageSource] | None = None

    def draw(self, title: str | None = None) -> NDArray[np.uint8]:
        """Draw both images side by side with inliers in green and other matches in red.

        At most 200 matches are lines; all others are points. The title above the images is, by default, the numbers of
        matches and inliers. The result is (height, width, 3) uint8 in the channel order of OpenCV: blue, green, red.
        """
        inliers = self.geometry.inliers
        if title is None:
            title = f"{counted(len(self.matches), 'match')} · {counted(int(inliers.sum()), 'inlier')}"
        points = self.features0.keypoints, self.features1.keypoints
        images = self.image0, self.image1
        if self.sources is not None:
            images = as_colour(self.sources[0]), as_colour(self.sources[1])
        return draw_matches(*images, *points, self.matches.indices, inliers, title)


def match_images(
    image0: ImageSource,
    image1: ImageSource,
    descriptor: DescriptorSource = "doap-128",
    *,
    detector: str | Detector | None = None,
    max_keypoints: int = MAX_KEYPOINTS,
    ratio: float | None = None,
    filter: str | None = None,
    model: GeometryModel = "fundamental",
    threshold: float = 1.5,
    device: str | torch.device = "auto",
    progress: Progress = no_progress,
) -> ImageMatches:
    """Match two images: extract features, match them and verify the matches.

    >>> import doap
    >>> samples = Path(doap.__file__).parent / "images" / "samples"
    >>> found = doap.match_images(samples / "photo.jpg", samples / "print.jpg", max_keypoints=300)
    >>> found.geometry.inliers.sum() > 80
    np.True_
    >>> picture = found.draw()  # (height, width, 3), for cv2.imwrite

    Args:
        image0, image1: Two images of one scene, in the forms that `extract` accepts.
        descriptor, detector, max_keypoints: See `extract`. A pipeline such as "aliked-lightglue" detects and matches
            keypoints itself.
        ratio, filter: Ratio test, and filter of matches; see `match`. The default ratio is the descriptor's own; 1
            omits the test. A pipeline has its own matcher and takes neither.
        model: "fundamental", or "homography" for planes and rotating cameras.
        threshold: Inlier threshold in pixels.
        device: Device of a descriptor given by name: "auto", "cpu", "cuda", "cuda:N" or "mps".
        progress: Called before each of the three steps: both extractions and the matching.
    """
    extractor = as_extractor(descriptor, detector, device=device)
    for name, value in (("ratio", ratio), ("filter", filter)):
        if value is not None and extractor.matcher is not None:
            raise ArgumentError(
                f"{name}: expected None, because the pipeline has its own matcher, got {value}. Omit it."
            )
    grey0, grey1 = as_grey(image0), as_grey(image1)
    found: list[Features] = []
    for grey in (grey0, grey1):
        progress(len(found), 3, "extracting")
        found.append(extractor.extract(grey, max_keypoints=max_keypoints))
    features0, features1 = found
    progress(2, 3, "matching")
    if extractor.matcher is not None:
        matches = extractor.matcher.match(features0, features1)
    else:
        matches = match(features0, features1, ratio=extractor.ratio if ratio is None else ratio, filter=filter)
    geometry = verify(features0, features1, matches, model=model, threshold=threshold)
    return ImageMatches(grey0, grey1, features0, features1, matches, geometry, (image0, image1))


def describe_patches(describer: PatchDescriber, patches: NDArray[np.uint8]) -> Tensor:
    """Describe patches (N, S, S) of any size on the describer's device.

    Patches of another size than the describer's are resampled with antialiasing. The result, (N, D) float32 or (N, D/8)
    uint8, is on the CPU, because the descriptors of a large set may not fit on a GPU.
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
        parts.append(describer.describe_patches(bright).cpu())
    described = torch.cat(parts)
    check_finite(described, name="descriptors")
    return described
