"""Feature files of openMVG.

    NAME.feat               text, one keypoint per line: x y scale orientation
    NAME.desc               number of descriptors (64 bits), then their bytes
    image_describer.json    type of the regions, for all images

NAME is the name of the image without its folder and extension. The layout follows openMVG's code (`feature.hpp`,
`descriptor.hpp`, `regions.cpp`, `regions_factory.hpp`, `sfm_regions_provider.hpp`), and that of cereal for JSON:

- Pixel centres are at integers, as in doap. The scale is σ in pixels. Orientations are in radians, clockwise.
- openMVG has a fixed set of region types. Real descriptors with up to 128 dimensions are quantised like its RootSIFT
  and become `SIFT_Regions`: 128 bytes. Bits become `AKAZE_Binary_Regions`: 64 bytes. Shorter descriptors are filled
  with zeros, which changes no distance.
"""

from __future__ import annotations

import io
import json
from pathlib import PurePosixPath

import numpy as np

from doap._support.errors import ArgumentError
from doap.collection.extractor import ExtractorInfo
from doap.export.feature_format import DescribedImage, FeatureFormat
from doap.images import angles, scales
from doap.images.frames import SIFT_EXTENT
from doap.metrics import quantise
from doap.types import Kind

# Type of the regions, number of bytes of a descriptor, and maximum number of dimensions or bits.
_REGIONS: dict[Kind, tuple[str, int, int]] = {
    "real": ("SIFT_Regions", 128, 128),
    "binary": ("AKAZE_Binary_Regions", 64, 512),
}
# Number of the first type in a file of cereal. The most significant bit announces that its name follows.
_FIRST_TYPE = 1 << 31 | 1


def _prepare(extractor: ExtractorInfo) -> dict[str, bytes]:
    """Refuse descriptors that are longer than openMVG's; return image_describer.json."""
    regions, _, limit = _REGIONS[extractor.kind]
    if extractor.dim > limit:
        raise ArgumentError(
            f"descriptor: openMVG stores at most {limit} numbers or bits of a {extractor.kind} descriptor, "
            f"got {extractor.dim}. Choose a shorter one."
        )
    empty = {"valid": 1, "data": {"value0": [], "value1": []}}
    content = {"polymorphic_id": _FIRST_TYPE, "polymorphic_name": regions, "ptr_wrapper": empty}
    return {"image_describer.json": (json.dumps({"regions_type": content}, indent=4) + "\n").encode()}


def _encode_keypoints(image: DescribedImage) -> bytes:
    """Return the content of NAME.feat."""
    frames = image.features.frames
    columns = (image.features.keypoints, scales(frames) / SIFT_EXTENT, np.radians(angles(frames)))
    file = io.BytesIO()
    # Nine digits preserve float32.
    np.savetxt(file, np.column_stack(columns), fmt="%.9g")
    return file.getvalue()


def _encode_descriptors(image: DescribedImage) -> bytes:
    """Return the content of NAME.desc."""
    kind, rows = image.extractor.kind, image.features.descriptors.cpu()
    values = (rows if kind == "binary" else quantise(rows, signed=image.signed)).numpy()
    padded = np.zeros((len(values), _REGIONS[kind][1]), np.uint8)
    padded[:, : values.shape[1]] = values
    return len(values).to_bytes(8, "little") + padded.tobytes()


OPENMVG = FeatureFormat(
    lambda name: PurePosixPath(name).stem, {".feat": _encode_keypoints, ".desc": _encode_descriptors}, _prepare
)
