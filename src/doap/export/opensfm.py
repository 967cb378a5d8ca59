"""Feature files of OpenSfM, which OpenDroneMap (ODM) uses.

    NAME.features.npz    one file per image, in the folder `features` of an OpenSfM project; NAME has its extension

The layout follows OpenSfM's code (`features.py`: FeaturesData, normalized_image_coordinates; `dataset.py`):

- `points` (N, 4) float32: x, y, size and angle. x and y are relative to the centre of the image. x, y and size are
  divided by the longer side of the image. The size is OpenCV's `KeyPoint.size`, as for OpenSfM's SIFT. Angles are in
  degrees, clockwise.
- `descriptors` (N, D) float32, or (N, D/8) uint8 for bits. `colors` (N, 3) uint8: red, green, blue.
- `segmentations`, `instances` and `segmentation_labels` are empty. `OPENSFM_FEATURES_VERSION` is 3.
- OpenSfM ignores folders in the names of images. It reads images without EXIF orientation, as doap does.
- With its default `feature_type: HAHOG`, OpenSfM converts all descriptors to floats. Bits need `feature_type: ORB`.
"""

from __future__ import annotations

import io
from pathlib import PurePosixPath

import numpy as np

from doap.collection.extractor import ExtractorInfo
from doap.export.feature_format import DescribedImage, FeatureFormat
from doap.images import angles, scales

VERSION = 3


def _encode(image: DescribedImage) -> bytes:
    """Return the content of NAME.features.npz."""
    features, (height, width) = image.features, image.features.image_size
    longest = max(height, width)
    keypoints = features.keypoints.astype(np.float64)
    xy = (keypoints + 0.5 - np.array([width, height]) / 2) / longest
    size = 2 * scales(features.frames) / image.extractor.magnification / longest
    pixels = image.read_colour()
    columns, rows = np.rint(keypoints).astype(int).clip(0, np.array(pixels.shape[1::-1]) - 1).T
    file = io.BytesIO()
    np.savez_compressed(
        file,
        points=np.column_stack([xy, size, angles(features.frames) % 360]).astype(np.float32),
        descriptors=features.descriptors.cpu().numpy(),
        colors=pixels[rows, columns, ::-1],
        segmentations=[],
        instances=[],
        segmentation_labels=[],
        OPENSFM_FEATURES_VERSION=VERSION,
    )
    return file.getvalue()


def _prepare(_: ExtractorInfo) -> dict[str, bytes]:
    """Accept all descriptors; there are no common files."""
    return {}


OPENSFM = FeatureFormat(lambda name: PurePosixPath(name).name, {".features.npz": _encode}, _prepare)
