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
from torch import Tensor, nn
from torch.nn.functional import normalize

from doap._support.device import resolve_device
from doap._support.errors import DataError, MissingExtra, import_extra
from doap.baselines.featurebooster import FeatureBooster
from doap.baselines.hashsift import HashSIFT
from doap.describer import Describer, FunctionDescriber

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
            raise DataError(f"{path}: the weights do not fit {name} ({_first_line(error)}).") from error
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


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


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


def _of_patches(build: Callable[[Any], nn.Module], name: str, extent: float = 1.0) -> Create:
    """Return the constructor of a network that describes patches of 32×32 pixels."""

    def create(content: Any, device: torch.device) -> FunctionDescriber:
        return FunctionDescriber(partial(_run, build(content).to(device).eval(), device), 32, name, extent)

    return create


def _run(network: nn.Module, device: torch.device, patches: Tensor) -> Tensor:
    described: Tensor = network(patches.float().to(device))
    return described


def _has(content: object, part: str, name: str) -> bool:
    """Return whether the content of a file is a dictionary of dictionaries with this name in this part."""
    inner = content.get(part) if isinstance(content, dict) else None
    return isinstance(inner, dict) and name in inner


WEIGHT_FILES: dict[str, tuple[Recognise, Create]] = {
    "hardtfeat": (
        lambda content: _has(content, "state_dict", "classifier.1.weight"),
        # It scores best on patches 1.5 times as wide as SIFT's support.
        _of_patches(_HardTFeat, "hardtfeat", extent=1.5),
    ),
    "mkd": (lambda content: _has(content, "liberty", "pca"), _of_patches(_mkd, "mkd")),
    "featurebooster": (FeatureBooster.recognise, FeatureBooster),
    "hashsift": (HashSIFT.recognise, lambda content, _device: HashSIFT(content)),
}
"""Learned baselines by name: how to recognise the content of a file, and how to create the describer from it."""
SUFFIXES = (".pth", ".npy")
"""Suffixes of the files: PyTorch checkpoints and NumPy arrays."""
