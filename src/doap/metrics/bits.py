"""Descriptors as bytes: packed bits, most significant bit first as in numpy's `packbits`, and COLMAP's quantisation."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from doap._support.checks import check_finite, check_shape
from doap._support.errors import ArgumentError

NORM = 512
"""Norm of a quantised row; COLMAP's matcher divides by it."""
SHIFT = 0.25
"""Offset of signed values: about three standard deviations of the components of a 128-dimensional unit vector."""


def pack_bits(values: Tensor) -> Tensor:
    """Pack the signs of values into bytes: positive is 1, zero and negative are 0.

    >>> pack_bits(torch.tensor([[1.0, -1.0, 0.0, 2.0, -3.0, 1.0, 1.0, -0.5]]))
    tensor([[150]], dtype=torch.uint8)

    Args:
        values: (N, D), D a multiple of 8; activations of the network, or bits as 0 and 1.
    """
    bits = check_shape(values, "N D", name="values")["D"]
    if bits % 8:
        raise ArgumentError(f"values: expected a multiple of 8 bits to pack into bytes, got {bits}")
    check_finite(values, name="values")
    octets = (values > 0).unflatten(1, (-1, 8)).to(torch.uint8)
    packed: Tensor = (octets << _shifts(values.device)).sum(dim=2, dtype=torch.uint8)
    return packed


def unpack_bits(codes: Tensor) -> Tensor:
    """Unpack bytes (N, D/8) into bits (N, D), uint8 of zeros and ones: the inverse of `pack_bits`.

    >>> unpack_bits(torch.tensor([[150]], dtype=torch.uint8))
    tensor([[1, 0, 0, 1, 0, 1, 1, 0]], dtype=torch.uint8)
    """
    check_shape(codes, "N B", name="codes")
    if codes.dtype != torch.uint8:
        raise ArgumentError(f"codes: expected uint8, got {codes.dtype}; pack the bits with pack_bits")
    return ((codes.unsqueeze(2) >> _shifts(codes.device)) & 1).flatten(1)


def _shifts(device: torch.device) -> Tensor:
    return torch.arange(7, -1, -1, dtype=torch.uint8, device=device)


def quantise(descriptors: Tensor, *, signed: bool) -> Tensor:
    """Quantise unit vectors to bytes with norm 512; the order of their distances is nearly preserved.

    Descriptors without negative values, such as RootSIFT, become round(512·d), as COLMAP writes them. Signed ones are
    shifted first: round(512·unit(d + 0.25)). The shift scales all distances down by about the same factor: the ratio
    test keeps its meaning, but a threshold on the distance itself does not. All descriptors that are compared with each
    other need the same `signed`, so it is an argument and not detected.

    >>> quantise(torch.tensor([[0.6, 0.0, 0.8], [0.28, 0.0, 0.96]]) / 2, signed=False)
    tensor([[154,   0, 205],
            [ 72,   0, 246]], dtype=torch.uint8)

    Values above 255 become 255; a unit vector has at most three of them.

    Args:
        descriptors: (N, D) floats, unit rows; a row of zeros (a flat patch) stays zero.
        signed: Whether any of the descriptors that are compared may have negative values.
    """
    check_shape(descriptors, "N D", name="descriptors")
    if not descriptors.is_floating_point():
        raise ArgumentError(
            f"descriptors: expected floats, got {descriptors.dtype}; binary descriptors are bytes already"
        )
    check_finite(descriptors, name="descriptors")
    precise = descriptors.float()
    if not signed and (precise < 0).any():
        raise ArgumentError(f"descriptors: expected values of at least 0 with signed=False, got {precise.min():.3g}")
    if signed:
        present = precise.any(dim=1, keepdim=True)
        precise = normalize((precise + SHIFT).clamp(min=0)) * present
    return (NORM * precise).round().clamp(max=255).to(torch.uint8)


def unit_vectors(packed: Tensor) -> Tensor:
    """Return packed bits (N, D/8) as unit vectors (N, D) of ±1/√D, whose order of distances is that of the bits.

    >>> unit_vectors(torch.tensor([[0b10100000]], dtype=torch.uint8))[0, :4].mul(8**0.5).round()
    tensor([ 1., -1.,  1., -1.])
    """
    bits = unpack_bits(packed).float()
    vectors: Tensor = (2 * bits - 1) / bits.shape[1] ** 0.5
    return vectors
