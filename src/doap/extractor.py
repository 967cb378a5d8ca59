"""Extractors: an image in, its keypoints with descriptors out."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from doap._support.errors import ArgumentError
from doap.describer import DEFAULT_RATIO, Describer, PatchDescriber, cut_patches
from doap.detectors import Detector
from doap.detectors.detector import DetectedFrames
from doap.images import ImageSource, Pyramid, as_grey, as_mask, centres, shrink, transform_frames
from doap.images.tiles import cut_tiles
from doap.matching import Matcher
from doap.types import Features, Kind

MAX_KEYPOINTS = 8192
"""Default maximum number of keypoints per image for matching and reconstruction, as in COLMAP."""
MAX_IMAGE_SIZE = 3200
"""Maximum width and height in pixels; larger images are downscaled before detection, as in COLMAP."""

Frames = NDArray[np.float32]


OpenedImage = tuple[Callable[[int | None], DetectedFrames], Callable[[Frames], Tensor]]
"""Two functions of one image: detect the frames (N, 2, 3) and responses (N,) of at most so many keypoints, strongest
first; and describe frames that the first function returned for the same pixels."""


@dataclass(frozen=True)
class Prepared:
    """Keypoints of one image after the first stage of extraction.

    Attributes:
        frames, responses, image_size: As for `Features`.
        rows: (N, S, S) uint8 patches for the second stage; without one, the descriptors (N, D) or (N, D/8).
    """

    frames: Frames
    responses: NDArray[np.float32]
    rows: Tensor
    image_size: tuple[int, int]


class Extractor(ABC):
    """Base class of everything that detects and describes keypoints: a subclass has the attributes and `open`.

    >>> from doap.pipeline import as_extractor
    >>> noise = np.random.default_rng(0).integers(0, 256, (120, 160), np.uint8)
    >>> as_extractor("rootsift").extract(noise, max_keypoints=50).descriptors.shape
    torch.Size([50, 128])

    Extraction has two stages. `prepare` reads one image and runs in many processes. `finish` describes the patches of
    several images together, where the network is; without a second stage, `prepare` has described them. An extractor
    also has the dimension, the kind, the extent and the ratio of a `Describer`.

    Attributes:
        name: Name in tables.
        detector: Detector of the keypoints.
        describer: Describer of the keypoints; None if only the extractor itself can describe them.
        second_stage: Describes the patches of `prepare`; None if it describes the keypoints itself.
        matcher: Matcher that belongs to the extractor; None for nearest neighbours.
    """

    name: str
    kind: Kind
    dim: int
    extent: float = 1.0
    ratio: float = DEFAULT_RATIO
    detector: Detector
    describer: Describer | None = None
    second_stage: PatchDescriber | None = None
    matcher: Matcher | None = None

    @abstractmethod
    def open(self, image: NDArray[np.uint8]) -> OpenedImage:
        """Open a grey image (H, W)."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a checksum of everything that changes descriptors; it is independent of device and precision."""

    def extract(
        self,
        image: ImageSource,
        *,
        max_keypoints: int = MAX_KEYPOINTS,
        max_image_size: int = MAX_IMAGE_SIZE,
        mask: ImageSource | None = None,
        tile: int | None = None,
    ) -> Features:
        """Extract the features of an image; the arguments are those of `doap.extract`."""
        prepared = self.prepare(image, max_keypoints=max_keypoints, max_image_size=max_image_size, mask=mask, tile=tile)
        return replace(self.finish([prepared])[0], fingerprint=self.fingerprint())

    def prepare(
        self,
        image: ImageSource,
        *,
        max_keypoints: int,
        max_image_size: int = MAX_IMAGE_SIZE,
        mask: ImageSource | None = None,
        tile: int | None = None,
    ) -> Prepared:
        """Run the first stage on an image; the arguments are those of `doap.extract`."""
        grey = as_grey(image)
        if max_keypoints < 1 or max_image_size < 1:
            raise ArgumentError(
                f"max_keypoints and max_image_size: expected 1 or more, got {max_keypoints} and {max_image_size}"
            )
        allowed = None if mask is None else as_mask(mask, grey.shape)
        if tile is not None:
            return self._prepare_tiles(grey, max_keypoints, allowed, tile)
        small, enlarge = shrink(grey, max_image_size)
        detect, describe = self.open(small)
        frames, responses = detect_in_mask(detect, max_keypoints, allowed, enlarge)
        size = grey.shape[0], grey.shape[1]
        return Prepared(transform_frames(frames, enlarge), responses, describe(frames), size)

    def finish(self, prepared: Sequence[Prepared]) -> list[Features]:
        """Run the second stage on several images; the features have no fingerprint."""
        parts = [one.rows for one in prepared]
        if self.second_stage is not None and parts:
            # Bytes go to the device; floats would take four times as long.
            patches = torch.cat(parts).to(self.device).unsqueeze(1).float() / 255
            parts = list(self.second_stage.describe_patches(patches).split([len(one.frames) for one in prepared]))
        return [
            Features(one.frames, one.responses, rows, one.image_size) for one, rows in zip(prepared, parts, strict=True)
        ]

    def to(self, device: torch.device) -> Extractor:
        """Return an extractor with a copy of the network of the second stage on another device."""
        stage, moved = self.second_stage, copy.copy(self)
        if not isinstance(stage, nn.Module) or self.device == device:
            return self
        moved.describer = moved.second_stage = cast(PatchDescriber, copy.deepcopy(stage).to(device))
        return moved

    @property
    def device(self) -> torch.device:
        """Device of the second stage."""
        stage = self.second_stage
        parameter = next(stage.parameters(), None) if isinstance(stage, nn.Module) else None
        return torch.device("cpu") if parameter is None else parameter.device

    def _prepare_tiles(
        self, image: NDArray[np.uint8], max_keypoints: int, mask: NDArray[np.uint8] | None, side: int
    ) -> Prepared:
        """Process a grey image (H, W) in tiles, one at a time; the maximum applies to the image."""
        tiles = cut_tiles(image, side)
        # Responses that are sizes have the pixels of the tile.
        by_size = getattr(self.detector, "ranks_by_size", False)
        found: list[tuple[Frames, Frames, NDArray[np.float32]]] = []
        for tile in tiles:
            frames, responses = self.open(tile.pixels)[0](None)
            own = tile.owns(frames, self.extent)
            strength = responses[own] * (tile.stride if by_size else 1)
            found.append((frames[own], transform_frames(frames[own], tile.to_image()), strength))
        number = np.repeat(np.arange(len(tiles)), [len(frames) for frames, _, _ in found])
        local, frames, responses = (np.concatenate(parts) for parts in zip(*found, strict=True))
        # Equal responses are sorted by position, so that the order does not depend on the tiles.
        x, y = centres(frames).T
        chosen = np.lexsort((y, x, -responses))
        if mask is not None:
            chosen = chosen[_in_mask(frames[chosen], mask)]
        chosen = chosen[:max_keypoints]
        # Keypoints are read tile by tile and then returned to their order. Without any, one call gives the columns.
        number, local = number[chosen], local[chosen]
        read = np.unique(number) if len(number) else [0]
        rows = torch.cat([self.open(tiles[one].pixels)[1](local[number == one]) for one in read])
        back = np.argsort(np.argsort(number, kind="stable"))
        rows = rows[torch.from_numpy(back).to(rows.device)]
        return Prepared(frames[chosen], responses[chosen], rows, (image.shape[0], image.shape[1]))


class KeypointExtractor(Extractor):
    """A detector and a describer of its keypoints."""

    def __init__(self, describer: Describer, detector: Detector) -> None:
        self.name = str(getattr(describer, "name", type(describer).__name__.lower()))
        self.kind, self.dim, self.extent = describer.kind, describer.dim, describer.extent
        self.describer, self.detector, self.ratio = describer, detector, describer.ratio
        self._read: Callable[[NDArray[np.uint8] | Pyramid, Frames], Tensor] = describer.describe
        # A describer with its own `describe` reads more of the image than the patches.
        if isinstance(describer, PatchDescriber) and type(describer).describe is PatchDescriber.describe:
            self.second_stage = describer
            self._read = partial(cut_patches, patch_size=describer.patch_size, extent=describer.extent)

    def __repr__(self) -> str:
        return f"KeypointExtractor({self.describer!r}, {self.detector!r})"

    def open(self, image: NDArray[np.uint8]) -> OpenedImage:
        return partial(self.detector.detect, image), partial(self._read, image)

    def fingerprint(self) -> str:
        """Return the fingerprint of the describer."""
        return cast(Describer, self.describer).fingerprint()


DescriptorSource = str | Path | Describer | Extractor
"""A name, a file or `module:function` as in `doap.load`, a describer, or an extractor."""


def detect_in_mask(
    detect: Callable[[int | None], DetectedFrames],
    max_keypoints: int | None,
    mask: NDArray[np.uint8] | None,
    to_mask: NDArray[np.float64],
) -> DetectedFrames:
    """Detect keypoints of an opened image where a mask (H′, W′) is not zero; the maximum applies after the mask.

    `to_mask` is the homography (3, 3) from the pixels of the image to those of the mask. Without a mask or a maximum,
    there is no restriction.
    """
    if mask is None:
        return detect(max_keypoints)
    frames, responses = detect(None)
    kept = np.flatnonzero(_in_mask(transform_frames(frames, to_mask), mask))[:max_keypoints]
    return frames[kept], responses[kept]


def _in_mask(frames: Frames, mask: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return whether the mask (H, W) is not zero at the centre of each frame (N,)."""
    positions = np.rint(centres(frames)).astype(np.intp)
    x, y = np.clip(positions, 0, np.array(mask.shape[::-1]) - 1).T
    return np.asarray(mask[y, x] != 0)


def extract_sample(extractor: Extractor) -> Features:
    """Extract features from a fixed image; they identify a detector and a descriptor.

    The contrast of the image decreases to the right, so that the thresholds of a detector change
    the result.
    """
    blocks = np.random.default_rng(0).integers(-127, 128, (32, 32)) * np.linspace(1, 0.02, 32)
    image = np.asarray(128 + blocks.round(), np.uint8).repeat(4, axis=0).repeat(4, axis=1)
    return extractor.extract(image, max_keypoints=1000)
