"""Devices and arithmetic precision: one rule for every function that runs a network."""

from __future__ import annotations

import re
from typing import Literal, get_args

import torch

from doap._support.checks import check_choice
from doap._support.errors import ArgumentError

DType = Literal["float32", "bfloat16"]
"""Arithmetic of a network."""
Precision = Literal["auto", "float32", "bfloat16"]
"""Requested arithmetic of a network; see `resolve_precision`."""

DTYPES: dict[DType, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}

_DEVICE = re.compile(r"auto|cpu|mps(:0)?|cuda(:\d+)?")


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """Return the device to run a network on.

    >>> resolve_device("cpu")
    device(type='cpu')

    Args:
        device: "auto" (CUDA if available, else MPS, else the CPU), "cpu", "cuda", "cuda:N" or
            "mps".

    Raises:
        ArgumentError: the name is unknown, or the device is not available.
    """
    name = str(device)
    if not _DEVICE.fullmatch(name):
        raise ArgumentError(f"device: expected auto, cpu, cuda, cuda:N or mps, got {name!r}.")
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if name == "auto":
        name = "cuda" if cuda else "mps" if mps else "cpu"
    if name.startswith("mps") and not mps:
        raise ArgumentError("device: mps is not available. Use auto or cpu.")
    if not name.startswith("cuda"):
        return torch.device(name.partition(":")[0])
    if not cuda:
        raise ArgumentError(
            f"device: {name} is not available: torch {torch.__version__} finds no GPU. Use auto or cpu."
        )
    index = int(name.partition(":")[2] or torch.cuda.current_device())
    if index >= (count := torch.cuda.device_count()):
        raise ArgumentError(f"device: {name} does not exist; expected cuda:0 to cuda:{count - 1}.")
    return torch.device("cuda", index)


def resolve_precision(precision: Precision, device: torch.device, allowed: DType) -> torch.dtype:
    """Return the type a network computes in.

    >>> resolve_precision("auto", torch.device("cpu"), allowed="float32")
    torch.float32

    Args:
        precision: "float32" or "bfloat16" is used as given. "auto" selects bfloat16 if it is
            `allowed` and the device has instructions for it; bfloat16 is slower than float32
            elsewhere.
        device: Device of the network.
        allowed: Lowest precision without a measured loss of accuracy.
    """
    check_choice(precision, get_args(Precision), name="precision")
    if precision != "auto":
        return DTYPES[precision]
    return torch.bfloat16 if allowed == "bfloat16" and multiplies_bfloat16(device) else torch.float32


def multiplies_bfloat16(device: torch.device) -> bool:
    """Return whether a device has instructions for bfloat16 (on CPUs: AVX512-BF16 or AMX)."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
