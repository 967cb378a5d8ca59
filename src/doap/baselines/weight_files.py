"""Learned baselines in files that their authors publish; doap ships none of them.

To add one, write a module with `recognise(content)` and a constructor, and add both to `WEIGHT_FILES`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from doap._support.device import resolve_device
from doap._support.errors import DataError, MissingExtra
from doap.baselines import featurebooster, hardtfeat, hashsift, mkd, tfeat
from doap.describer import Describer

Recognise = Callable[[object], bool]
Create = Callable[[Any, torch.device], Describer]

WEIGHT_FILES: dict[str, tuple[Recognise, Create]] = {
    "tfeat": (tfeat.recognise, tfeat.tfeat),
    "hardtfeat": (hardtfeat.recognise, hardtfeat.hardtfeat),
    "mkd": (mkd.recognise, mkd.mkd),
    "featurebooster": (featurebooster.recognise, featurebooster.FeatureBooster),
    "hashsift": (hashsift.recognise, lambda content, _device: hashsift.HashSIFT(content)),
}
"""Learned baselines by name: how to recognise the content of a file, and how to create the describer from it."""
SUFFIXES = (".params", ".pth", ".npy")
"""Suffixes of the files: PyTorch checkpoints and NumPy arrays."""


def load_baseline(path: str | Path, device: str | torch.device = "cpu") -> Describer:
    """Load a learned baseline from its published file. No pickled code is run.

    Args:
        path: Weights of TFeat (`*.params`), HardTFeat, MKD or FeatureBooster (`*.pth`), or the projection of HashSIFT
            (`*.npy`).
        device: "auto", "cpu", "cuda", "cuda:N" or "mps".
    """
    path, target = Path(path), resolve_device(device)
    content = _read(path)
    for name, (recognise, create) in WEIGHT_FILES.items():
        try:
            if recognise(content):
                return create(content, target)
        except MissingExtra:
            raise
        except Exception as error:
            raise DataError(f"{path}: the weights do not fit {name} ({_first_line(error)}).") from error
    raise DataError(f"{path}: expected the weights of {', '.join(WEIGHT_FILES)}, got something else.")


def _read(path: Path) -> object:
    """Read the tensors or the array of a file."""
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
