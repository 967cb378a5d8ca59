"""Changes to the patches of a list that leave alone who matches whom.

Numbers are drawn for the whole list and then taken for the patches at hand, so the ranks that share a list change each
patch as one process would.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import affine_grid, conv2d, grid_sample, pad

from doap.errors import ArgumentError

Integers = NDArray[np.int64]


def flip_and_rotate(
    patches: Tensor, labels: Integers, generator: np.random.Generator, own: Integers | None = None
) -> Tensor:
    """Turn each group by one of the eight flips and quarter turns of a square, all its patches alike (the paper's §5).

    A group's patches come upright together. Turned each by itself they would teach the network to forget
    orientation, which the detector already gives.

    >>> patches = torch.arange(4, dtype=torch.uint8).reshape(1, 2, 2).repeat(2, 1, 1)
    >>> flip_and_rotate(patches, np.array([0, 0]), np.random.default_rng(0)).tolist()
    [[[2, 3], [0, 1]], [[2, 3], [0, 1]]]

    Args:
        patches: (m, …, S, S).
        labels: (M,) group of each item of the list, counted from 0.
        generator: gives one number per group of the list.
        own: (m,) positions in the list of `patches`, when they are one rank's part of it; None means all of it.

    Returns:
        As `patches`, of the same type.
    """
    drawn = generator.integers(8, size=int(labels.max(initial=-1)) + 1)
    turns = torch.from_numpy(_of_patches(drawn[labels], own, len(patches)))
    turned = patches.clone()
    for turn in range(1, 8):
        chosen = turns == turn
        rotated = torch.rot90(patches[chosen], turn % 4, (-2, -1))
        turned[chosen] = rotated.flip(-1) if turn >= 4 else rotated
    return turned


def change_light(
    patches: Tensor,
    labels: Integers,
    generator: np.random.Generator,
    own: Integers | None = None,
    *,
    gain: float = 0.0,
    offset: float = 0.0,
) -> Tensor:
    """Multiply each patch by a number in 1 ± gain and add one in ± 255·offset; the result is cut to 0…255.

    One draw per patch, not per group: exposure changes from one photograph to the next.

    Args:
        patches: (m, …, S, S) uint8.
        labels: (M,) as in `flip_and_rotate`; only their number counts here.
        generator: gives two numbers per item of the list.
        own: as in `flip_and_rotate`.
        gain: 0 to 1.
        offset: 0 to 1.

    Returns:
        As `patches`.
    """
    if not (0 <= gain <= 1 and 0 <= offset <= 1):
        raise ArgumentError(f"gain and offset: expected 0 to 1, got {gain} and {offset}")
    drawn = generator.uniform(-1, 1, (len(labels), 2))
    factor, added = torch.from_numpy(_of_patches(drawn, own, len(patches))).float().T
    shape = (-1, *[1] * (patches.ndim - 1))
    changed = patches * (1 + gain * factor).view(shape) + (255 * offset * added).view(shape)
    cut: Tensor = changed.round().clamp(0, 255).to(torch.uint8)
    return cut


def move_frames(
    patches: Tensor,
    labels: Integers,
    generator: np.random.Generator,
    own: Integers | None = None,
    *,
    noise: float = 0.0,
) -> Tensor:
    """Shift, scale and turn each patch a little, as if its keypoint had been found a little elsewhere.

    One number says how much, for the three are of one size where keypoints are found anew: the standard deviation of
    the shift in halves of a patch's side, of the logarithm of the scale, and of the angle in radians. Pixels beyond the
    border of the patch are those at it.

    Args:
        patches: (m, 1, S, S) uint8.
        labels: (M,) as in `change_light`.
        generator: gives four numbers per item of the list.
        own: as in `flip_and_rotate`.
        noise: 0 or more; 0.1 is 1.6 pixels of a patch of 32, 10 % and 6°.

    Returns:
        As `patches`.
    """
    if noise < 0:
        raise ArgumentError(f"noise: expected 0 or more, got {noise}")
    drawn = noise * generator.standard_normal((len(labels), 4))
    x, y, stretch, turn = torch.from_numpy(_of_patches(drawn, own, len(patches))).float().T
    cos, sin = stretch.exp() * turn.cos(), stretch.exp() * turn.sin()
    frames = torch.stack([cos, -sin, x, sin, cos, y], dim=1).view(-1, 2, 3)
    grid = affine_grid(frames, list(patches.shape), align_corners=False)
    moved = grid_sample(patches.float(), grid, padding_mode="border", align_corners=False)
    return moved.round().to(torch.uint8)


def wear(
    patches: Tensor,
    labels: Integers,
    generator: np.random.Generator,
    own: Integers | None = None,
    *,
    blur: float = 0.0,
    grain: float = 0.0,
    jpeg: float = 0.0,
) -> Tensor:
    """Blur each patch, add noise to its pixels and compress it, each by an amount of its own.

    Half of the patches are spared by each of the three; for the others the amount is anything up to the given one.
    Poor focus, long exposure and small files are the rule among photographs, and a network that has seen sharp patches
    only is beaten by SIFT on them.

    Args:
        patches: (m, 1, S, S) uint8.
        labels: (M,) as in `change_light`.
        generator: gives three numbers per item of the list, its pixels' noise, and where blocks of JPEG begin.
        own: as in `flip_and_rotate`.
        blur: largest deviation of a Gaussian, in pixels of the patch.
        grain: largest deviation of the noise, as a part of 255.
        jpeg: 0 to 1; 1 goes down to JPEG's quality 5, in steps of 10.

    Returns:
        As `patches`.
    """
    if blur < 0 or grain < 0 or not 0 <= jpeg <= 1:
        raise ArgumentError(f"blur, grain, jpeg: expected 0 or more, jpeg up to 1, got {blur}, {grain} and {jpeg}")
    amounts = (2 * generator.random((len(labels), 3)) - 1).clip(0)
    sigma, deviation, loss = torch.from_numpy(_of_patches(amounts, own, len(patches))).float().T
    worn = patches.float()
    if blur:
        worn = _blurred(worn, blur * sigma, math.ceil(3 * blur))
    if grain:
        noise = generator.standard_normal((len(labels), *patches.shape[2:]), dtype=np.float32)
        worn += torch.from_numpy(_of_patches(noise, own, len(patches))).unsqueeze(1) * (
            255 * grain * deviation.view(-1, 1, 1, 1)
        )
    worn = worn.round().clamp(0, 255).to(torch.uint8)
    if jpeg:
        corner = generator.integers(8, size=2)
        quality = (95 - 90 * jpeg * loss).div(10, rounding_mode="floor").mul(10).int() + 5
        for one in quality.unique().tolist():
            if one < 95:
                worn[quality == one] = _compressed(worn[quality == one], one, corner)
    return worn


def _blurred(patches: Tensor, sigma: Tensor, reach: int) -> Tensor:
    """(m, 1, S, S) floats, each blurred by a Gaussian of its own deviation (m,) that ends after `reach` pixels."""
    places = torch.arange(-reach, reach + 1)
    kernels = torch.exp(-0.5 * (places / sigma.clamp(min=1e-3).unsqueeze(1)).square())
    kernels = (kernels / kernels.sum(1, keepdim=True)).view(len(patches), 1, 1, -1)
    side_by_side = pad(patches, [reach] * 4, mode="replicate").transpose(0, 1)
    along = conv2d(side_by_side, kernels, groups=len(patches))
    return conv2d(along, kernels.transpose(2, 3), groups=len(patches)).transpose(0, 1)


def _compressed(patches: Tensor, quality: int, corner: NDArray[np.int64]) -> Tensor:
    """(m, 1, S, S) after JPEG, which sees them one above the other; its blocks begin at `corner` of each."""
    import cv2

    down, right = corner.tolist()
    below, beside = ((-(patches.shape[-1] + gap)) % 8 for gap in (down, right))
    padded = pad(patches.float(), [right, beside, down, below], mode="replicate").to(torch.uint8)
    column = padded.view(-1, padded.shape[-1]).numpy()
    _, coded = cv2.imencode(".jpg", column, [cv2.IMWRITE_JPEG_QUALITY, quality])
    decoded = torch.from_numpy(cv2.imdecode(coded, cv2.IMREAD_GRAYSCALE)).view(padded.shape)
    size = patches.shape[-1]
    return decoded[:, :, down : down + size, right : right + size]


def _of_patches(drawn: NDArray[np.generic], own: Integers | None, size: int) -> NDArray[np.generic]:
    taken = drawn if own is None else drawn[own]
    if len(taken) != size:
        raise ArgumentError(f"patches: expected one for each of {len(taken)} items of the list, got {size}")
    return taken
