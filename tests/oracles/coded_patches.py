"""Patches that carry their group in their first two pixels, and describers that read it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from doap.data.writer import SetWriter, UnitGroups
from doap.describer import FunctionDescriber, from_function
from doap.metrics import pack_bits

DIM = 32
_TABLE = normalize(torch.randn(2**16, DIM, generator=torch.Generator().manual_seed(0)))


def coded_patches(groups: NDArray[np.int64], side: int, seed: int = 0) -> NDArray[np.uint8]:
    """(N, S, S) of noise, that of patch i marked with `groups[i]`."""
    patches = np.random.default_rng(seed).integers(0, 256, (len(groups), side, side), dtype=np.uint8)
    patches[:, 0, 0], patches[:, 0, 1] = groups // 256, groups % 256
    return patches


def write_units(
    folder: Path, side: int, units: list[tuple[str, str, list[int]]], ignore: Sequence[tuple[int, int]] = ()
) -> Path:
    """Write units (scene, source, sizes of groups) as a patch set; `ignore` are pairs of groups of the first unit."""
    writer = SetWriter(folder, side, {"name": "test"}, [])
    first = 0
    for number, (scene, source, sizes) in enumerate(units):
        patches = coded_patches(np.repeat(np.arange(first, first + len(sizes)), sizes), side, number)
        first += len(sizes)
        pairs = np.array(() if number else ignore, np.int64).reshape(-1, 2)
        writer.add(str(number), patches, UnitGroups(np.array(sizes), scene, source, pairs))
    return writer.finish()


def perfect(side: int) -> FunctionDescriber:
    """Equal for patches of one group, and of no others."""
    return from_function(_read, side, "perfect")


def noisy(side: int, noise: float = 1.0) -> FunctionDescriber:
    """The group, and what the pixels add to it."""
    return from_function(lambda patches: _with_noise(patches, noise), side, "noisy")


def noisy_bits(side: int, noise: float = 1.0) -> FunctionDescriber:
    """The signs of `noisy`: distances that tie."""
    return from_function(lambda patches: pack_bits(_with_noise(patches, noise)), side, "noisy bits")


def _read(patches: Tensor) -> Tensor:
    codes = (patches[:, 0, 0, :2] * 255).round().long()
    return _TABLE[codes[:, 0] * 256 + codes[:, 1]]


def _with_noise(patches: Tensor, noise: float) -> Tensor:
    pixels = patches[:, 0, 1:].flatten(1) - 0.5
    projection = torch.randn(pixels.shape[1], DIM, generator=torch.Generator().manual_seed(1))
    return normalize(_read(patches) + noise * normalize(pixels @ projection))
