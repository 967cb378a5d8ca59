"""TFeat, a shallow network trained with triplets (Balntas et al., 2016)."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch
from torch import Tensor, nn

from doap.describer import FunctionDescriber, from_function
from doap.device import resolve_device
from doap.errors import DataError


def tfeat(path: str | Path, device: str | torch.device = "cpu") -> FunctionDescriber:
    """Load TFeat: 128 dimensions for patches of 32×32 pixels, compared without normalisation.

    The network standardises each patch, so the range 0…1 of the input does not matter.

    Args:
        path: Weights, for example `tfeat-liberty.params` as published by the authors. No code in
            the file is run.
        device: "auto", "cpu", "cuda", "cuda:N" or "mps".
    """
    path, target = Path(path), resolve_device(device)
    features = nn.Sequential(
        nn.InstanceNorm2d(1), nn.Conv2d(1, 32, 7), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 6), nn.Tanh()
    )
    network = nn.ModuleDict({"features": features, "descr": nn.Sequential(nn.Linear(64 * 8 * 8, 128), nn.Tanh())})
    try:
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except OSError as error:
        raise DataError(f"{path}: cannot read the weights of TFeat ({error.strerror}). Check the path.") from error
    except (RuntimeError, TypeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        first_line = str(error).partition("\n")[0]
        raise DataError(f"{path}: not the weights of TFeat ({first_line}).") from error

    network.to(target).eval()

    @torch.no_grad()
    def describe(patches: Tensor) -> Tensor:
        described: Tensor = network["descr"](network["features"](patches.to(target)).flatten(1))
        return described

    return from_function(describe, 32, "tfeat")
