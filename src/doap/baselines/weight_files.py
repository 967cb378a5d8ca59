"""Learned baselines in files that their authors publish; doap ships none of them.

To add one, write `recognise(content)` and a constructor, and add both to `WEIGHT_FILES`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from doap._support.device import resolve_device
from doap._support.errors import ArgumentError, DataError, MissingExtra, import_extra
from doap.baselines.featurebooster import FeatureBooster
from doap.baselines.opencv import sift
from doap.describer import DEFAULT_RATIO, Describer, FunctionDescriber, PatchDescriber, ShowsSettings
from doap.images import Pyramid
from doap.metrics import pack_bits
from doap.types import Kind

Recognise = Callable[[object], bool]
Create = Callable[[Any, torch.device], Describer]


def load_baseline(path: str | Path, device: str | torch.device = "cpu") -> Describer:
    """Load a learned baseline from its published file. No pickled code is run.

    Args:
        path: Weights of HardTFeat, MKD or FeatureBooster (`*.pth`), or the projection of HashSIFT (`*.npy`).
        device: "auto", "cpu", "cuda", "cuda:N" or "mps".
    """
    path, target = Path(path), resolve_device(device)
    content = read_weights(path)
    for name, (recognise, create) in WEIGHT_FILES.items():
        try:
            if recognise(content):
                return create(content, target)
        except MissingExtra:
            raise
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise DataError(f"{path}: the weights do not fit {name} ({reason}).") from error
    raise DataError(f"{path}: expected the weights of {', '.join(WEIGHT_FILES)}, got something else.")


def read_weights(path: Path) -> Any:
    """Read the tensors of a PyTorch file or the array of a NumPy file. No pickled code is run."""
    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        with warnings.catch_warnings():
            # PyTorch warns of an unknown pickle protocol, which a damaged file may have, and then fails.
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}).") from error
    # The parsers of a damaged file may raise anything. PyTorch's message recommends running the code in the file.
    except Exception as error:
        raise DataError(f"{path}: not a file of weights, or a damaged one.") from error


class _HardTFeat(nn.Module):
    """HardTFeat: the shallow network of TFeat, trained with HardNet's loss (Mishchuk et al., 2017)."""

    def __init__(self, content: Mapping[str, Mapping[str, Tensor]]) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 32, 7), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 6), nn.Tanh())
        self.classifier = nn.Sequential(nn.Dropout(0.1), nn.Conv2d(64, 128, 8), nn.Tanh())
        # The published file also holds the buffers of a SIFT module that the network does not use.
        state = {name: value for name, value in content["state_dict"].items() if not name.startswith("SIFT.")}
        self.load_state_dict(state)

    def forward(self, patches: Tensor) -> Tensor:
        # The network was trained on grey levels; the added constant keeps flat patches finite.
        grey = 255 * patches
        mean, deviation = grey.mean(dim=(1, 2, 3), keepdim=True), grey.std(dim=(1, 2, 3), keepdim=True)
        features = self.features((grey - mean) / (deviation + 1e-7))
        return normalize(self.classifier(features).flatten(1))


def _mkd(content: Any) -> Any:
    """MKD: multiple-kernel descriptors with attenuated PCA whitening learned on Liberty (Mukundan et al., 2019)."""
    feature = import_extra("kornia.feature.mkd", "kornia")
    # kornia downloads the whitening model that it is asked for; this one is given.
    network: Any = feature.MKDDescriptor(patch_size=32, kernel_type="concat", whitening=None)
    network.whitening = "pcawt"
    network.whitening_layer = feature.Whitening("pcawt", content["liberty"], in_dims=network.odims, output_dims=128)
    return network


def _of_patches(
    build: Callable[[Any], nn.Module], name: str, extent: float = 1.0, ratio: float = DEFAULT_RATIO
) -> Create:
    """Return the constructor of a network that describes patches of 32×32 pixels."""

    def create(content: Any, device: torch.device) -> FunctionDescriber:
        return FunctionDescriber(partial(_run, build(content).to(device).eval(), device), 32, name, extent, ratio)

    return create


def _run(network: nn.Module, device: torch.device, patches: Tensor) -> Tensor:
    described: Tensor = network(patches.float().to(device))
    return described


def _has(content: object, part: str, name: str) -> bool:
    """Return whether the content of a file is a dictionary of dictionaries with this name in this part."""
    inner = content.get(part) if isinstance(content, dict) else None
    return isinstance(inner, dict) and name in inner


class HashSIFT(ShowsSettings, PatchDescriber):
    """HashSIFT: the signs of a learned linear projection of SIFT (Suárez et al., 2021).

    Args:
        projection: (D, 129): a bias and 128 weights for each bit.
    """

    kind: Kind = "binary"
    # HashSIFT crops 6.75 keypoint sizes; a frame is 6 sizes wide.
    extent = 6.75 / 6
    ratio = 0.85
    name = "hashsift"

    def __init__(self, projection: NDArray[np.floating]) -> None:
        if not np.isfinite(projection).all():
            raise ArgumentError("projection: expected finite numbers, got NaN or infinity.")
        self._sift = sift(extent=self.extent)
        self.dim, self.patch_size = len(projection), self._sift.patch_size
        self._bias = torch.from_numpy(projection[:, 0].astype(np.float32))
        self._weights = torch.from_numpy(projection[:, 1:].astype(np.float32))

    def describe_patches(self, patches: Tensor) -> Tensor:
        """Describe patches (N, 1, 32, 32) as (N, D/8) uint8."""
        return self._binarise(self._sift.describe_patches(patches))

    def describe(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> Tensor:
        """Describe frames (N, 2, 3) of a grey image as (N, D/8) uint8."""
        return self._binarise(self._sift.describe(image, frames))

    def _binarise(self, described: Tensor) -> Tensor:
        # The projection was learned on OpenCV's SIFT, whose vectors have a length of about 512.
        return pack_bits(512 * described @ self._weights.T + self._bias)


def _is_projection(content: object) -> bool:
    """Return whether the content of a file is a projection of HashSIFT: floats (D, 129), with D a multiple of 8."""
    if not isinstance(content, np.ndarray) or content.ndim != 2 or not np.issubdtype(content.dtype, np.floating):
        return False
    return bool(len(content)) and len(content) % 8 == 0 and content.shape[1] == 129


WEIGHT_FILES: dict[str, tuple[Recognise, Create]] = {
    "hardtfeat": (
        lambda content: _has(content, "state_dict", "classifier.1.weight"),
        # It scores best on patches 1.5 times as wide as SIFT's support.
        _of_patches(_HardTFeat, "hardtfeat", extent=1.5),
    ),
    "mkd": (lambda content: _has(content, "liberty", "pca"), _of_patches(_mkd, "mkd", ratio=0.85)),
    "featurebooster": (
        lambda content: isinstance(content, dict) and {"kenc.encoder.0.weight", "final_proj.weight"} <= content.keys(),
        FeatureBooster,
    ),
    "hashsift": (_is_projection, lambda content, _device: HashSIFT(content)),
}
"""Learned baselines by name: how to recognise the content of a file, and how to create the describer from it."""
SUFFIXES = (".pth", ".npy")
"""Suffixes of the files: PyTorch checkpoints and NumPy arrays."""
