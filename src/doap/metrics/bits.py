"""Packed bits of binary descriptors: eight per byte, most significant bit first, as in numpy's `packbits`."""

from __future__ import annotations

import torch
from torch import Tensor

from doap._support.checks import check_finite, check_shape
from doap._support.errors import ArgumentError


def pack_bits(values: Tensor) -> Tensor:
    """Pack the signs of values into bytes: positive is 1, zero and negative are 0.

    >>> pack_bits(torch.tensor([[1.0, -1.0, 0.0, 2.0, -3.0, 1.0, 1.0, -0.5]]))
    tensor([[150]], dtype=torch.uint8)

    Args:
        values: (N, D), D a multiple of 8; activations of the network, or bits as 0 and 1.

    Returns:
        (N, D/8) uint8.
    """
    bits = check_shape(values, "N D", name="values")["D"]
    if bits % 8:
        raise ArgumentError(f"values: expected a multiple of 8 bits to pack into bytes, got {bits}")
    check_finite(values, name="values")
    octets = (values > 0).unflatten(1, (-1, 8)).to(torch.uint8)
    packed: Tensor = (octets << _shifts(values.device)).sum(dim=2, dtype=torch.uint8)
    return packed


def unpack_bits(codes: Tensor) -> Tensor:
    """Unpack bytes into bits, the inverse of `pack_bits`.

    >>> unpack_bits(torch.tensor([[150]], dtype=torch.uint8))
    tensor([[1, 0, 0, 1, 0, 1, 1, 0]], dtype=torch.uint8)

    Args:
        codes: (N, D/8) uint8.

    Returns:
        (N, D) uint8 of zeros and ones.
    """
    check_shape(codes, "N B", name="codes")
    if codes.dtype != torch.uint8:
        raise ArgumentError(f"codes: expected uint8, got {codes.dtype}; pack the bits with pack_bits")
    return ((codes.unsqueeze(2) >> _shifts(codes.device)) & 1).flatten(1)


def _shifts(device: torch.device) -> Tensor:
    return torch.arange(7, -1, -1, dtype=torch.uint8, device=device)
