"""A learned detector and descriptor that share one network pass, and their matcher, as one describer."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple, NoReturn, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from doap.checks import check_shape
from doap.describer import ShowsSettings, hash_weights
from doap.errors import ArgumentError
from doap.images import Pyramid, centres, check_grey, frames_from_arrays
from doap.types import Features, Kind

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


class Matcher(Protocol):
    """A function that matches two sets of features.

    Attributes:
        module: Module with its weights; None if it has none.
    """

    module: nn.Module | None

    def __call__(self, features0: Features, features1: Features) -> NDArray[np.int64]:
        """Return (M, 2) indices of matching keypoints."""


class _Pass(NamedTuple):
    """Keypoints and descriptors of one image."""

    pixels: NDArray[np.uint8]
    frames: NDArray[np.float32]
    descriptors: Tensor


class Pipeline(ShowsSettings):
    """A learned pipeline, which detects, describes and matches keypoints.

    Frames are upright squares of one size, because the networks only return positions. The keypoints of the last image
    are kept with their descriptors, so that detecting and then describing them runs the network once.

    Args:
        name: Name in `PIPELINES`.
        network: Detector and descriptor.
        matcher: Matcher.
        device: Device of both.
    """

    kind: Kind = "real"
    extent = 1.0
    # No patches are cut; this is the size for callers that cut patches for all descriptors.
    patch_size = 32

    def __init__(self, name: str, network: FeatureNetwork, matcher: Matcher, device: torch.device) -> None:
        self.name, self.dim = name, network.dim
        self._network, self._matcher, self._device = network, matcher, device
        self._last: _Pass | None = None
        self._fingerprint: str | None = None
        for module in self._modules():
            module.to(device).eval().requires_grad_(False)

    @property
    def detector(self) -> PipelineDetector:
        """Detector of the pipeline, the only one whose frames can be described."""
        return PipelineDetector(self)

    def detect(
        self, image: NDArray[np.uint8], max_keypoints: int | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return frames (N, 2, 3) and responses (N,), strongest first.

        Images with a side under 32 pixels, or of one grey level, have no keypoints.
        """
        check_grey(image)
        # Networks that normalise the contrast detect noise in images of one grey level.
        if min(image.shape) < _MIN_SIDE or image.min() == image.max():
            return np.zeros((0, 2, 3), np.float32), np.zeros(0, np.float32)
        with torch.no_grad():
            maps = self._run(image)
            xy, responses = maps.detect(max_keypoints)
            order = responses.argsort(descending=True, stable=True)
            xy = xy[order].float()
            descriptors = maps.describe(xy)
        frames = frames_from_arrays(xy.cpu().numpy(), np.full(len(xy), FRAME_SCALE))
        self._last = _Pass(image.copy(), frames, descriptors)
        return frames.copy(), responses[order].float().cpu().numpy()

    def describe(self, patches: Tensor) -> NoReturn:
        """Raise `ArgumentError`: a pipeline cannot describe patches."""
        raise ArgumentError(
            f"{self.name}: expected an image, got {len(patches)} patches. It only describes its own keypoints of an "
            "image. Evaluate it on images."
        )

    def describe_frames(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> Tensor:
        """Describe frames (N, 2, 3) that `detector` found in this image as unit rows (N, D)."""
        check_shape(frames, "N 2 3", name="frames")
        pixels = image.levels[0] if isinstance(image, Pyramid) else image
        if not np.array_equal(frames[:, :, :2], np.broadcast_to(FRAME_SCALE * np.eye(2), (len(frames), 2, 2))):
            raise ArgumentError(
                f"{self.name}: expected frames of its own detector (upright, {2 * FRAME_SCALE:g} pixels wide), got "
                "others. Omit the detector."
            )
        if not len(frames):
            return torch.zeros(0, self.dim, device=self._device)
        rows = self._rows_of_last(pixels, frames)
        if rows is not None:
            return rows
        with torch.no_grad():
            return self._run(pixels).describe(torch.from_numpy(centres(frames)).to(self._device))

    def match_features(self, features0: Features, features1: Features) -> NDArray[np.int64]:
        """Return (M, 2) indices of matching keypoints, sorted by the first; each keypoint occurs once at most."""
        return self._matcher(features0, features1)

    def fingerprint(self) -> str:
        """Return a checksum of the name and of all weights. It is computed once, because the weights are frozen."""
        if self._fingerprint is None:
            digest = hashlib.sha256(self.name.encode())
            for module in self._modules():
                hash_weights(digest, module)
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def _modules(self) -> list[nn.Module]:
        return [module for module in (self._network.module, self._matcher.module) if module is not None]

    def _run(self, pixels: NDArray[np.uint8]) -> FeatureMaps:
        grey = torch.from_numpy(np.ascontiguousarray(pixels)).to(self._device)
        return self._network.run(grey[None, None].float() / 255)

    def _rows_of_last(self, pixels: NDArray[np.uint8], frames: NDArray[np.float32]) -> Tensor | None:
        """Return the descriptors of frames that were detected in the last image; None for any other."""
        last = self._last
        if last is None or not np.array_equal(last.pixels, pixels):
            return None
        row_of = {frame.tobytes(): row for row, frame in enumerate(last.frames)}
        rows = [row_of.get(frame.tobytes(), -1) for frame in frames.astype(np.float32)]
        return None if -1 in rows else last.descriptors[rows]


@dataclass(frozen=True)
class PipelineDetector:
    """The detector of a pipeline."""

    pipeline: Pipeline
    magnification: float = 1.0

    @property
    def name(self) -> str:
        """Name of the pipeline."""
        return self.pipeline.name

    def detect(
        self, image: NDArray[np.uint8], max_keypoints: int | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Detect keypoints; see `Detector.detect`."""
        return self.pipeline.detect(image, max_keypoints)
