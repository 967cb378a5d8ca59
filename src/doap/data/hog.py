"""Histograms of oriented gradients in the variant of Felzenszwalb et al. (UoCTTI), for many patches at once."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from doap._support.checks import check_shape
from doap._support.errors import ArgumentError

UNSIGNED = 9
CHANNELS = 3 * UNSIGNED + 4
CLAMP = 0.2


def hog(patches: Tensor, cell: int = 8, chunk: int = 64) -> Tensor:
    """Return 18 signed and 9 unsigned orientations and 4 texture energies for each cell of each patch.

    h_o is the gradient energy of the cell in direction o·20°. n_b is the norm of the unsigned energies in block b, one
    of the four blocks of 2×2 cells that contain the cell:

        signed o    ½ Σ_b min(h_o / n_b, 0.2)
        unsigned o  ½ Σ_b min((h_o + h_{o+9}) / n_b, 0.2)
        texture b   1/√18 Σ_o min(h_o / n_b, 0.2)

    Blocks that extend beyond the border repeat the cells at the border. A flat patch has zeros.

    Args:
        patches: (N, S, S), S a multiple of `cell`; any range of values, because gain and offset cancel.
        cell: Side of a cell in pixels.
        chunk: Patches per step; bounds the memory and does not change the result.

    Returns:
        (N, 31, S/cell, S/cell) float32: signed, unsigned, texture.
    """
    side = check_shape(patches, "N S S", name="patches")["S"]
    if side % cell or side < 3:
        raise ArgumentError(f"patches: expected a side that is a multiple of {cell} and at least 3, got {side}")
    if not len(patches):
        return torch.zeros(0, CHANNELS, side // cell, side // cell)
    return torch.cat([_features(_cells(part.float(), cell)) for part in patches.split(chunk)])


def _cells(patches: Tensor, cell: int) -> Tensor:
    """Gradient magnitudes by direction, shared bilinearly among cells: (N, S, S) → (N, 18, S/cell, S/cell)."""
    side = patches.shape[-1]
    # The outermost pixels have a neighbour on one side only and get no gradient.
    dx = pad(patches[:, 1:-1, 2:] - patches[:, 1:-1, :-2], (1, 1, 1, 1))
    dy = pad(patches[:, 2:, 1:-1] - patches[:, :-2, 1:-1], (1, 1, 1, 1))
    # 90° is midway between two directions. Rounded from float64, their sines are equal, and argmax takes the first.
    angle = torch.arange(UNSIGNED, dtype=torch.float64).view(-1, 1, 1) * (math.pi / UNSIGNED)
    cosine, sine = angle.cos().to(patches), angle.sin().to(patches)
    along = dx[:, None] * cosine + dy[:, None] * sine
    nearest = along.abs().argmax(1, keepdim=True)
    nearest += UNSIGNED * (along.gather(1, nearest) < 0)
    energy = patches.new_zeros(len(patches), 2 * UNSIGNED, side, side)
    energy.scatter_(1, nearest, torch.hypot(dx, dy)[:, None])
    # The centre of cell c is at pixel (c + ½)·cell − ½. The share of a pixel falls to 0 at a distance of one cell.
    position = (torch.arange(side, device=patches.device) + 0.5) / cell - 0.5
    centres = torch.arange(side // cell, device=patches.device)
    share = (1 - (position - centres[:, None]).abs()).clamp(min=0)
    return share @ energy @ share.T


def _features(cells: Tensor) -> Tensor:
    """Features normalised by the four blocks around each cell: (N, 18, H, W) → (N, 31, H, W)."""
    height, width = cells.shape[-2:]
    unsigned = cells[:, :UNSIGNED] + cells[:, UNSIGNED:]
    squares = pad(unsigned.square().sum(1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    blocks = squares[..., :-1, :-1] + squares[..., :-1, 1:] + squares[..., 1:, :-1] + squares[..., 1:, 1:]
    # The constant is far below the energy of one grey level in 255; it only avoids 0/0 in flat blocks.
    scale = (blocks + 1e-10).rsqrt()
    around = [scale[..., y : y + height, x : x + width] for y in (0, 1) for x in (0, 1)]
    signed = torch.stack([(cells * one).clamp(max=CLAMP) for one in around], dim=1)
    merged = torch.stack([(unsigned * one).clamp(max=CLAMP) for one in around], dim=1)
    return torch.cat([signed.sum(1) / 2, merged.sum(1) / 2, signed.sum(2) / math.sqrt(2 * UNSIGNED)], dim=1)
