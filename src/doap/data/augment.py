"""Augmentation: random changes of the patches of a batch that keep the matches, their shape and their type.

Random numbers are drawn for the whole batch, and each rank uses those of its own patches. Ranks that share a batch
therefore change each patch as a single process would.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor
from torch.nn.functional import affine_grid, conv2d, grid_sample, pad

from doap._support.errors import ArgumentError
from doap._support.random_streams import stream
from doap._support.settings import StrictModel

Integers = NDArray[np.int64]


class Augmentation(StrictModel):
    """Which changes to apply, and how strongly; 0 turns a change off."""

    flip_and_rotate: bool = Field(True, description="flips and quarter turns, the same for all patches of a group")
    gain: float = Field(0.0, ge=0, le=1, description="maximum relative change of contrast")
    offset: float = Field(0.0, ge=0, le=1, description="maximum change of brightness, as a fraction of 255")
    frame_jitter: float = Field(0.0, ge=0, description="standard deviation of position, scale and orientation")
    blur: float = Field(0.0, ge=0, description="maximum standard deviation of a Gaussian blur, in pixels")
    noise: float = Field(0.0, ge=0, description="maximum standard deviation of pixel noise, as a fraction of 255")
    jpeg: float = Field(0.0, ge=0, le=1, description="maximum JPEG compression; 1 is quality 5")

    def apply(self, patches: Tensor, labels: Integers, own: Integers, *, seed: int, step: int) -> Tensor:
        """Return the changed patches (m, 1, S, S) of a batch; see `flip_and_rotate` for the arguments."""
        if self.flip_and_rotate:
            patches = flip_and_rotate(patches, labels, stream(seed, "turn", step), own)
        if self.frame_jitter:
            generator = stream(seed, "frames", step)
            patches = jitter_frames(patches, labels, generator, own, amount=self.frame_jitter)
        if self.gain or self.offset:
            generator = stream(seed, "light", step)
            patches = change_light(patches, labels, generator, own, gain=self.gain, offset=self.offset)
        if self.blur or self.noise or self.jpeg:
            generator = stream(seed, "degradation", step)
            patches = degrade(patches, labels, generator, own, blur=self.blur, noise=self.noise, jpeg=self.jpeg)
        return patches


def flip_and_rotate(
    patches: Tensor, labels: Integers, generator: np.random.Generator, own: Integers | None = None
) -> Tensor:
    """Apply one of the eight flips and quarter turns of a square to each group, as in the paper (§5).

    All patches of a group get the same one. With an own rotation for each patch, the network would learn to ignore the
    orientation that the detector provides.

    >>> patches = torch.arange(4, dtype=torch.uint8).reshape(1, 2, 2).repeat(2, 1, 1)
    >>> flip_and_rotate(patches, np.array([0, 0]), np.random.default_rng(0)).tolist()
    [[[2, 3], [0, 1]], [[2, 3], [0, 1]]]

    Args:
        patches: (m, …, S, S).
        labels: (M,) group of each patch of the batch, counted from 0.
        generator: Random generator; one number is drawn per group of the batch.
        own: (m,) positions of `patches` in the batch if they are the part of one rank; None for the whole batch.
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
    """Multiply each patch by a factor in 1 ± gain and add a value in ± 255·offset; the result is clamped to 0…255.

    Factor and value are drawn per patch, not per group, because exposure differs between photographs.

    Args:
        patches: (m, …, S, S) uint8.
        labels, generator, own: As in `flip_and_rotate`; two numbers are drawn per patch of the batch.
        gain: Maximum relative change, 0 to 1.
        offset: Maximum offset as a fraction of 255, 0 to 1.
    """
    if not (0 <= gain <= 1 and 0 <= offset <= 1):
        raise ArgumentError(f"gain and offset: expected 0 to 1, got {gain} and {offset}")
    drawn = generator.uniform(-1, 1, (len(labels), 2))
    factor, added = torch.from_numpy(_of_patches(drawn, own, len(patches))).float().T
    shape = (-1, *[1] * (patches.ndim - 1))
    changed = patches * (1 + gain * factor).view(shape) + (255 * offset * added).view(shape)
    clamped: Tensor = changed.round().clamp(0, 255).to(torch.uint8)
    return clamped


def jitter_frames(
    patches: Tensor,
    labels: Integers,
    generator: np.random.Generator,
    own: Integers | None = None,
    *,
    amount: float = 0.0,
) -> Tensor:
    """Shift, scale and rotate each patch slightly, like the localisation error of a keypoint detector.

    One number controls all three because they have similar magnitudes for repeated detections: it is the standard
    deviation of the shift in units of half the side, of the logarithm of the scale, and of the angle in radians. Pixels
    beyond the border repeat the border.

    Args:
        patches: (m, 1, S, S) uint8.
        labels, generator, own: As in `flip_and_rotate`; four numbers are drawn per patch of the batch.
        amount: 0 or more; 0.1 means 1.6 pixels of a 32-pixel patch, 10 % in scale and 6°.
    """
    if amount < 0:
        raise ArgumentError(f"amount: expected 0 or more, got {amount}")
    drawn = amount * generator.standard_normal((len(labels), 4))
    x, y, log_scale, angle = torch.from_numpy(_of_patches(drawn, own, len(patches))).float().T
    cos, sin = log_scale.exp() * angle.cos(), log_scale.exp() * angle.sin()
    frames = torch.stack([cos, -sin, x, sin, cos, y], dim=1).view(-1, 2, 3)
    grid = affine_grid(frames, list(patches.shape), align_corners=False)
    moved = grid_sample(patches.float(), grid, padding_mode="border", align_corners=False)
    return moved.round().to(torch.uint8)


def degrade(
    patches: Tensor,
    labels: Integers,
    generator: np.random.Generator,
    own: Integers | None = None,
    *,
    blur: float = 0.0,
    noise: float = 0.0,
    jpeg: float = 0.0,
) -> Tensor:
    """Blur each patch, add noise to its pixels and compress it as JPEG, each with a random strength.

    Each of the three leaves half of the patches unchanged; the strength for the others is uniform up to the maximum.
    Photographs are often blurred, noisy or compressed. A network trained on sharp patches only is worse than SIFT on
    them.

    Args:
        patches: (m, 1, S, S) uint8.
        labels, generator, own: As in `flip_and_rotate`; three strengths per patch of the batch, the noise of the pixels
            and the position of the JPEG blocks are drawn.
        blur: Maximum standard deviation of a Gaussian, in pixels of the patch.
        noise: Maximum standard deviation of the noise, as a fraction of 255.
        jpeg: Maximum compression, 0 to 1; 1 is JPEG quality 5, in steps of 10.
    """
    if blur < 0 or noise < 0 or not 0 <= jpeg <= 1:
        raise ArgumentError(f"blur, noise, jpeg: expected 0 or more, jpeg up to 1, got {blur}, {noise} and {jpeg}")
    strengths = (2 * generator.random((len(labels), 3)) - 1).clip(0)
    blur_by, noise_by, jpeg_by = torch.from_numpy(_of_patches(strengths, own, len(patches))).float().T
    degraded = patches.float()
    if blur:
        degraded = _blurred(degraded, blur * blur_by, math.ceil(3 * blur))
    if noise:
        pixels = generator.standard_normal((len(labels), *patches.shape[2:]), dtype=np.float32)
        deviation = 255 * noise * noise_by.view(-1, 1, 1, 1)
        degraded += torch.from_numpy(_of_patches(pixels, own, len(patches))).unsqueeze(1) * deviation
    degraded = degraded.round().clamp(0, 255).to(torch.uint8)
    if jpeg:
        corner = generator.integers(8, size=2)
        quality = (95 - 90 * jpeg * jpeg_by).div(10, rounding_mode="floor").mul(10).int() + 5
        for one in quality.unique().tolist():
            if one < 95:
                degraded[quality == one] = _compressed(degraded[quality == one], one, corner)
    return degraded


def _blurred(patches: Tensor, sigma: Tensor, radius: int) -> Tensor:
    """Blur float patches (m, 1, S, S), each by a Gaussian of its own standard deviation (m,), cut off at `radius`."""
    offsets = torch.arange(-radius, radius + 1)
    kernels = torch.exp(-0.5 * (offsets / sigma.clamp(min=1e-3).unsqueeze(1)).square())
    kernels = (kernels / kernels.sum(1, keepdim=True)).view(len(patches), 1, 1, -1)
    as_channels = pad(patches, [radius] * 4, mode="replicate").transpose(0, 1)
    along = conv2d(as_channels, kernels, groups=len(patches))
    return conv2d(along, kernels.transpose(2, 3), groups=len(patches)).transpose(0, 1)


def _compressed(patches: Tensor, quality: int, corner: NDArray[np.int64]) -> Tensor:
    """Compress patches (m, 1, S, S) as one JPEG image, stacked vertically, with the blocks shifted by `corner`."""
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
    """Select the random numbers of a rank's patches from those of the batch."""
    selected = drawn if own is None else drawn[own]
    if len(selected) != size:
        raise ArgumentError(f"patches: expected one for each of {len(selected)} items of the batch, got {size}")
    return selected
