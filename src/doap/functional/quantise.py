"""Real descriptors as bytes, in the form of COLMAP's SIFT."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from doap.checks import check_shape
from doap.errors import ArgumentError

NORM = 512
"""Length of a row of bytes: COLMAP's matcher divides by it."""
SHIFT = 0.25
"""Added to signed numbers: about three deviations of a number of a 128-dimensional unit vector, so few are cut off."""


def quantise(descriptors: Tensor, *, signed: bool) -> Tensor:
    """Unit vectors as bytes of length 512, whose distances have nearly the same order.

    Bytes have no sign. Where no descriptor has one, as with RootSIFT, they are round(512·d), as COLMAP itself writes
    them. Signed ones are moved first: round(512·unit(d + 0.25)). That makes all distances smaller by about one factor,
    so a ratio test means the same, and a limit on the distance itself hardly limits any more. All descriptors that are
    to be compared need the same `signed`; that is why it is not guessed here.

    >>> quantise(torch.tensor([[0.6, 0.0, 0.8], [0.28, 0.0, 0.96]]) / 2, signed=False)
    tensor([[154,   0, 205],
            [ 72,   0, 246]], dtype=torch.uint8)

    Args:
        descriptors: (N, D) floats, unit rows; a row of zeros, as a flat patch may have, stays zeros.
        signed: whether any of the descriptors to be compared may hold negative numbers.

    Returns:
        (N, D) uint8. Numbers over 255, of which a unit vector has three at most, become 255.
    """
    check_shape(descriptors, "N D", name="descriptors")
    if not descriptors.is_floating_point():
        raise ArgumentError(f"descriptors: expected real ones, floats, got {descriptors.dtype}; bits are bytes already")
    if not torch.isfinite(descriptors).all():
        raise ArgumentError("descriptors: expected finite numbers, got NaN or infinity among them")
    precise = descriptors.float()
    if not signed and (precise < 0).any():
        raise ArgumentError(f"descriptors: expected none below 0 with signed=False, got {precise.min():.3g}")
    if signed:
        present = precise.any(dim=1, keepdim=True)
        precise = normalize((precise + SHIFT).clamp(min=0)) * present
    return (NORM * precise).round().clamp(max=255).to(torch.uint8)
