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

from doap._support.random_streams import stream
from doap._support.settings import StrictModel

Integers = NDArray[np.int64]


class Augmentation(StrictModel):
    """Which changes to apply, and how strongly; 0 turns a change off."""

    flip_and_rotate: bool = Field(True, description="flips and quarter turns, the same for all patches of a group")
    frame_jitter: float = Field(0.0, ge=0, description="standard deviation of position, scale and orientation")
    blur: float = Field(0.0, ge=0, description="maximum standard deviation of a Gaussian blur, in pixels")
    noise: float = Field(0.0, ge=0, description="maximum standard deviation of pixel noise, as a fraction of 255")
    jpeg: float = Field(0.0, ge=0, le=1, description="maximum JPEG compression; 1 is quality 5")

    def apply(self, patches: Tensor, labels: Integers, own: Integers, *, seed: int, step: int) -> Tensor:
        """Return the changed patches (m, 1, S, S) of a batch; see `flip_and_rotate` for the arguments."""
        if self.flip_and_rotate:
            patches = flip_and_rotate(patches, labels, own, stream(seed, "turn", step))
        if self.frame_jitter:
            patches = jitter_frames(patches, len(labels), own, stream(seed, "frames", step), self.frame_jitter)
        if self.blur or self.noise or self.jpeg:
            generator = stream(seed, "degradation", step)
            strengths = {"blur": self.blur, "noise": self.noise, "jpeg": self.jpeg}
            patches = degrade(patches, len(labels), own, generator, **strengths)
        return patches


def flip_and_rotate(patches: Tensor, labels: Integers, own: Integers, generator: np.random.Generator) -> Tensor:
    """Apply one of the eight flips and quarter turns of a square to each group, as in the paper (§5).

    All patches of a group get the same one. With an own rotation for each patch, the network would learn to ignore the
    orientation that the detector provides.

    >>> patches = torch.arange(4, dtype=torch.uint8).reshape(1, 2, 2).repeat(2, 1, 1)
    >>> flip_and_rotate(patches, np.array([0, 0]), np.arange(2), np.random.default_rng(0)).tolist()
    [[[2, 3], [0, 1]], [[2, 3], [0, 1]]]

    Args:
        patches: (m, …, S, S).
        labels: (M,) group of each patch of the batch, counted from 0.
        own: (m,) positions of `patches` in the batch, of which a rank has a part.
        generator: Random generator; one number is drawn per group of the batch.
    """
    turns = torch.from_numpy(generator.integers(8, size=int(labels.max(initial=-1)) + 1)[labels[own]])
    turned = patches.clone()
    for turn in range(1, 8):
        chosen = turns == turn
        rotated = torch.rot90(patches[chosen], turn % 4, (-2, -1))
        turned[chosen] = rotated.flip(-1) if turn >= 4 else rotated
    return turned


def jitter_frames(
    patches: Tensor, batch_size: int, own: Integers, generator: np.random.Generator, amount: float
) -> Tensor:
    """Shift, scale and rotate each patch slightly, like the localisation error of a keypoint detector.

    One number controls all three because they have similar magnitudes for repeated detections: it is the standard
    deviation of the shift in units of half the side, of the logarithm of the scale, and of the angle in radians. Pixels
    beyond the border repeat the border.

    Args:
        patches: (m, 1, S, S) uint8.
        batch_size: M, the number of patches of the batch; four numbers are drawn for each.
        own, generator: As in `flip_and_rotate`.
        amount: 0.1 means 1.6 pixels of a 32-pixel patch, 10 % in scale and 6°.
    """
    drawn = amount * generator.standard_normal((batch_size, 4))
    x, y, log_scale, angle = torch.from_numpy(drawn[own]).float().T
    cos, sin = log_scale.exp() * angle.cos(), log_scale.exp() * angle.sin()
    frames = torch.stack([cos, -sin, x, sin, cos, y], dim=1).view(-1, 2, 3)
    grid = affine_grid(frames, list(patches.shape), align_corners=False)
    moved = grid_sample(patches.float(), grid, padding_mode="border", align_corners=False)
    return moved.round().to(torch.uint8)


def degrade(
    patches: Tensor,
    batch_size: int,
    own: Integers,
    generator: np.random.Generator,
    *,
    blur: float = 0.0,
    noise: float = 0.0,
    jpeg: float = 0.0,
) -> Tensor:
    """Blur each patch, add noise to its pixels and compress it as JPEG, each with a random strength.

    Each of the three leaves half of the patches unchanged; the strength for the others is uniform up to the maximum.
    Photographs are often blurred, noisy or compressed. A network trained on sharp patches only is worse than SIFT on
    them. The arguments are those of `jitter_frames` and `Augmentation`.
    """
    strengths = (2 * generator.random((batch_size, 3)) - 1).clip(0)
    blur_by, noise_by, jpeg_by = torch.from_numpy(strengths[own]).float().T
    degraded = patches.float()
    if blur:
        degraded = _blurred(degraded, blur * blur_by, math.ceil(3 * blur))
    if noise:
        pixels = generator.standard_normal((batch_size, *patches.shape[2:]), dtype=np.float32)
        degraded += torch.from_numpy(pixels[own]).unsqueeze(1) * (255 * noise * noise_by.view(-1, 1, 1, 1))
    degraded = degraded.round().clamp(0, 255).to(torch.uint8)
    if jpeg:
        corner = generator.integers(8, size=2)
        # Qualities from 5 to 95 in steps of 10, of which 95 changes nothing.
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
