"""Extractors with settings, identified by one fingerprint, and the storage of their descriptors."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from doap._support.device import Precision
from doap._support.errors import ArgumentError
from doap._support.settings import FORBID_EXTRA
from doap.descriptor import is_known
from doap.detectors import Detector
from doap.extractor import DescriptorSource, Extractor, extract_sample
from doap.images import ImageSource
from doap.images.tiles import MIN_TILE
from doap.pipeline import as_extractor
from doap.types import Features, Kind

Stored = Literal["float32", "float16", "bits"]
"""Storage type of descriptors: `bits` for binary descriptors, one of the others for real ones."""


@dataclass(frozen=True)
class ExtractorInfo:
    """Identity and settings of an extractor, as stored in the metadata of a feature set.

    Attributes:
        fingerprint: SHA-256 of the descriptor's fingerprint, the detector's frames on a fixed picture and the settings
            below. It does not depend on the device or the precision of the descriptor.
        descriptor: Name, file or function that was loaded; None if the descriptor was given as an object. A stored one
            is loaded with `doap.descriptor.load_stored` only.
        detector: Name of the detector.
        magnification: Side of a patch, divided by the size that the detector assigns to a keypoint.
        max_keypoints: Maximum number of keypoints per image.
        kind: `real` or `binary`.
        dim: D, the number of dimensions or bits.
        stored: Storage type of the descriptors.
        descriptor_fingerprint: Fingerprint of the descriptor; None in sets of earlier versions.
        tile: Side of the tiles of large images in pixels; None downscales them.
    """

    __pydantic_config__ = FORBID_EXTRA

    fingerprint: str
    descriptor: str | None
    detector: str
    magnification: float
    max_keypoints: Annotated[int, Field(ge=1)]
    kind: Kind
    dim: Annotated[int, Field(ge=1)]
    stored: Stored
    descriptor_fingerprint: str | None = None
    tile: Annotated[int, Field(ge=MIN_TILE)] | None = None

    def difference(self, other: ExtractorInfo) -> str | None:
        """Explain how another extractor differs from this one; None if both extract the same features."""
        if self.fingerprint == other.fingerprint:
            return None
        mine, others = dataclasses.asdict(self), dataclasses.asdict(other)
        changed = [key for key in mine if not key.endswith("fingerprint") and mine[key] != others[key]]
        if not changed:
            return "the descriptor has other weights, or the detector has other settings"
        return ", ".join(f"{key} is {others[key]!r} instead of {mine[key]!r}" for key in changed)


@dataclass(frozen=True)
class ConfiguredExtractor:
    """An extractor with its settings; created by `open_extractor`.

    Attributes:
        extractor: Extractor.
        info: Identity and settings.
        reopen: Loads the extractor in another process; None if the descriptor was given as an object.
    """

    extractor: Extractor
    info: ExtractorInfo
    reopen: Callable[[], Extractor] | None

    def extract(self, image: ImageSource) -> Features:
        """Extract the features of an image."""
        prepared = self.extractor.prepare(image, max_keypoints=self.info.max_keypoints, tile=self.info.tile)
        # The fingerprint is known; computing it again would hash all weights for every image.
        return dataclasses.replace(self.extractor.finish([prepared])[0], fingerprint=self.info.descriptor_fingerprint)


def open_extractor(
    descriptor: DescriptorSource,
    *,
    detector: str | Detector | None = None,
    default_detector: str = "sift",
    max_keypoints: int = 2048,
    tile: int | None = None,
    exact: bool = False,
    device: str | torch.device = "auto",
    precision: Precision = "auto",
) -> ConfiguredExtractor:
    """Load a descriptor and a detector, check that they fit together, and compute their fingerprint.

    The arguments are those of `doap.extract_folder` and `as_extractor`. Real descriptors are stored as float16, or as
    float32 if they must be `exact`.
    """
    name = reopen = None
    opened = partial(as_extractor, detector=detector, default_detector=default_detector, precision=precision)
    if isinstance(descriptor, str | Path):
        name, file = str(descriptor), Path(descriptor).absolute()
        # Other processes must find the file.
        descriptor = name = str(file) if file.is_file() and not is_known(name) else name
        reopen = partial(opened, name, device="cpu")
    extractor = opened(descriptor, device=device)
    stored: Stored = "bits" if extractor.kind == "binary" else "float32" if exact else "float16"
    if max_keypoints < 1:
        raise ArgumentError(f"max_keypoints: expected 1 or more, got {max_keypoints}.")
    if tile is not None and tile < MIN_TILE:
        raise ArgumentError(f"tile: expected {MIN_TILE} pixels or more, got {tile}.")
    sample = extract_sample(extractor)
    # Fail here rather than after the first thousand images.
    encode(sample.descriptors, stored)
    own, shape = extractor.detector, (extractor.kind, extractor.dim)
    info = ExtractorInfo("", name, own.name, own.magnification, max_keypoints, *shape, stored, tile=tile)
    assert sample.fingerprint is not None
    identity = _hash(info, sample.fingerprint, sample.frames)
    info = dataclasses.replace(info, fingerprint=identity, descriptor_fingerprint=sample.fingerprint)
    return ConfiguredExtractor(extractor, info, reopen)


def _hash(info: ExtractorInfo, descriptor: str, frames: NDArray[np.float32]) -> str:
    """Return the fingerprint of settings, a descriptor's fingerprint, and a detector's frames (N, 2, 3)."""
    settings = dataclasses.asdict(info) | {"fingerprint": "", "descriptor": descriptor}
    del settings["descriptor_fingerprint"]
    # Sets without tiles keep the fingerprint of earlier versions.
    if info.tile is None:
        del settings["tile"]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    # Rounded to 1/8 pixel and sorted, because processors differ in the last bits of positions and responses.
    rounded = np.rint(8 * frames).astype(np.int32).reshape(-1, 6)
    digest.update(rounded[np.lexsort(rounded.T)].tobytes())
    return digest.hexdigest()


def encode(descriptors: Tensor, stored: Stored) -> bytes:
    """Convert descriptors (N, D) float32 or (N, D/8) uint8 to bytes in row-major order."""
    rows = descriptors.cpu()
    if stored != "bits":
        rows = rows.half() if stored == "float16" else rows
        if not bool(torch.isfinite(rows).all()):
            limit = " up to 65,504" if stored == "float16" else ""
            raise ArgumentError(f"descriptors: expected finite values{limit} for {stored}, got larger ones or NaN.")
    return rows.numpy().tobytes()


def decode(content: bytes, dim: int, stored: Stored) -> Tensor:
    """Convert bytes back to descriptors: (N, D) float32 or, for bits, (N, D/8) uint8.

    float32 and bits are exact, and float16 is accurate to 0.05 % of each value.
    """
    dtype, width = ("uint8", dim // 8) if stored == "bits" else (stored, dim)
    # A copy, because torch requires writable memory.
    rows = torch.from_numpy(np.frombuffer(content, dtype).reshape(-1, width).copy())
    return rows if stored == "bits" else rows.float()
