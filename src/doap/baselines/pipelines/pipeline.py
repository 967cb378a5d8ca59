"""A learned detector and descriptor that share one network pass, and their matcher, as one extractor."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from doap.describer import ShowsSettings, hash_weights
from doap.detectors.detector import DetectedFrames
from doap.extractor import Extractor, Frames, OpenedImage
from doap.images import centres, check_grey, frames_from_arrays
from doap.matching import Matcher
from doap.types import Features, Kind, Matches

FRAME_SCALE = 8.0
"""Half the side of every frame in pixels. The networks have no scale and no orientation."""
# The coarsest level of the networks has a 32nd of the resolution.
_MIN_SIDE = 32


class FeatureMaps(Protocol):
    """Output of a network for one image."""

    def detect(self, limit: int | None) -> tuple[Tensor, Tensor]:
        """Return the positions (N, 2) and responses (N,) of the `limit` strongest keypoints, in any order."""

    def describe(self, xy: Tensor) -> Tensor:
        """Return the unit descriptors (N, D) at the positions (N, 2)."""


class FeatureNetwork(Protocol):
    """A network that detects and describes keypoints.

    Attributes:
        module: Module with the weights.
        dim: D.
    """

    module: nn.Module
    dim: int

    def run(self, image: Tensor) -> FeatureMaps:
        """Process a grey image (1, 1, H, W) in 0…1."""


class Pipeline(ShowsSettings, Extractor):
    """A learned pipeline, which detects, describes and matches keypoints: `Extractor`, `Detector` and `Matcher`.

    Frames are upright squares of one size, because the networks only return positions.

    Args:
        name: Name in `PIPELINES`.
        network: Detector and descriptor.
        matcher: Matcher.
        device: Device of both.
        matcher_modules: Modules with the weights of the matcher.
    """

    kind: Kind = "real"
    magnification = 1.0
    matcher: Matcher

    def __init__(
        self,
        name: str,
        network: FeatureNetwork,
        matcher: Matcher,
        device: torch.device,
        matcher_modules: Sequence[nn.Module] = (),
    ) -> None:
        self.name, self.dim, self.matcher = name, network.dim, matcher
        self.detector = self
        self._network, self._device, self._modules = network, device, [network.module, *matcher_modules]
        for module in self._modules:
            module.to(device).eval().requires_grad_(False)

    def open(self, image: NDArray[np.uint8]) -> OpenedImage:
        """Open a grey image (H, W); the network processes it once."""
        opened = _PipelineImage(image, self._network, self._device)
        return OpenedImage(opened.detect, opened.describe)

    def detect(self, image: NDArray[np.uint8], max_keypoints: int | None = None) -> DetectedFrames:
        """Detect keypoints; see `Detector.detect`."""
        return self.open(image).detect(max_keypoints)

    def match(self, features0: Features, features1: Features) -> Matches:
        """Match the features of two images with the matcher of the pipeline."""
        return self.matcher.match(features0, features1)

    def fingerprint(self) -> str:
        """Return a checksum of the name and of all weights."""
        return self._checksum

    @cached_property
    def _checksum(self) -> str:
        """The fingerprint; it is computed once, because the weights are frozen."""
        digest = hashlib.sha256(self.name.encode())
        for module in self._modules:
            hash_weights(digest, module.state_dict())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class _PipelineImage:
    """A grey image (H, W) that the network of a pipeline processes once."""

    image: NDArray[np.uint8]
    network: FeatureNetwork
    device: torch.device

    def detect(self, max_keypoints: int | None) -> DetectedFrames:
        """Return frames (N, 2, 3) and responses (N,), strongest first.

        Images with a side under 32 pixels, or of one grey level, have no keypoints.
        """
        check_grey(self.image)
        # Networks that normalise the contrast detect noise in images of one grey level.
        if min(self.image.shape) < _MIN_SIDE or self.image.min() == self.image.max():
            return np.zeros((0, 2, 3), np.float32), np.zeros(0, np.float32)
        with torch.no_grad():
            xy, responses = self._maps.detect(max_keypoints)
        order = responses.argsort(descending=True, stable=True)
        frames = frames_from_arrays(xy[order].float().cpu().numpy(), np.full(len(xy), FRAME_SCALE))
        return frames, responses[order].float().cpu().numpy()

    def describe(self, frames: Frames) -> Tensor:
        """Describe frames (N, 2, 3) of `detect` as unit rows (N, D)."""
        if not len(frames):
            return torch.zeros(0, self.network.dim, device=self.device)
        with torch.no_grad():
            return self._maps.describe(torch.from_numpy(centres(frames)).to(self.device))

    @cached_property
    def _maps(self) -> FeatureMaps:
        grey = torch.from_numpy(np.ascontiguousarray(self.image)).to(self.device)
        return self.network.run(grey[None, None].float() / 255)
