from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from doap._support.errors import ArgumentError
from doap.data.hog import hog


def noise(number: int = 2, side: int = 64, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).random((number, side, side), dtype=np.float32))


def slow_hog(patch: list[list[float]], cell: int = 8) -> np.ndarray:
    """One pixel, one cell, one block at a time: (31, cells, cells)."""
    side = len(patch)
    cells = side // cell
    energy = np.zeros((18, cells, cells))
    for y in range(1, side - 1):
        for x in range(1, side - 1):
            dx, dy = patch[y][x + 1] - patch[y][x - 1], patch[y + 1][x] - patch[y - 1][x]
            along = [dx * math.cos(o * math.pi / 9) + dy * math.sin(o * math.pi / 9) for o in range(18)]
            nearest = max(range(18), key=lambda o: along[o])
            for row in range(cells):
                for column in range(cells):
                    away_y = abs((y + 0.5) / cell - (row + 0.5))
                    away_x = abs((x + 0.5) / cell - (column + 0.5))
                    if away_x < 1 and away_y < 1:
                        energy[nearest, row, column] += math.hypot(dx, dy) * (1 - away_x) * (1 - away_y)
    features = np.zeros((31, cells, cells))
    for row in range(cells):
        for column in range(cells):
            for block, (up, left) in enumerate([(-1, -1), (-1, 0), (0, -1), (0, 0)]):
                square = 0.0
                for y in (row + up, row + up + 1):
                    for x in (column + left, column + left + 1):
                        here = energy[:, min(max(y, 0), cells - 1), min(max(x, 0), cells - 1)]
                        square += sum((here[o] + here[o + 9]) ** 2 for o in range(9))
                norm = math.sqrt(square + 1e-10)
                own = energy[:, row, column]
                for o in range(18):
                    features[o, row, column] += min(own[o] / norm, 0.2) / 2
                    features[27 + block, row, column] += min(own[o] / norm, 0.2) / math.sqrt(18)
                for o in range(9):
                    features[18 + o, row, column] += min((own[o] + own[o + 9]) / norm, 0.2) / 2
    return features


@pytest.mark.parametrize(("side", "cell"), [(64, 8), (24, 8), (12, 4)])
def test_equals_the_slow_loop(side: int, cell: int) -> None:
    patches = noise(1, side)
    assert np.allclose(hog(patches, cell)[0], slow_hog(patches[0].tolist(), cell), atol=1e-5)


def test_a_patch_of_64_pixels_has_1984_values() -> None:
    assert hog(noise(3)).flatten(1).shape == (3, 1984)


def test_chunk_size_does_not_change_the_result() -> None:
    assert torch.allclose(hog(noise(5), chunk=2), hog(noise(5)), atol=1e-6)


@given(st.integers(0, 99))
def test_inverted_contrast_turns_signed_orientations_by_180_degrees(seed: int) -> None:
    patches = noise(seed=seed, side=16)
    normal, turned = hog(patches), hog(1 - patches)
    signed = [(o + 9) % 18 for o in range(18)]
    assert torch.allclose(turned, normal[:, [*signed, *range(18, 31)]], atol=1e-4)


@given(st.integers(0, 99))
def test_a_mirrored_patch_has_mirrored_cells_orientations_and_blocks(seed: int) -> None:
    patches = noise(seed=seed, side=16)
    signed, unsigned = [(9 - o) % 18 for o in range(18)], [18 + (9 - o) % 9 for o in range(9)]
    expected = hog(patches)[:, [*signed, *unsigned, 28, 27, 30, 29]].flip(-1)
    assert torch.allclose(hog(patches.flip(-1)), expected, atol=1e-4)


@given(st.floats(0.1, 255), st.floats(-1, 1))
def test_gain_and_offset_do_not_change_the_result(gain: float, offset: float) -> None:
    assert torch.allclose(hog(noise() * gain + offset), hog(noise()), atol=1e-3)


def test_a_vertical_edge_has_orientation_zero() -> None:
    step = torch.zeros(1, 64, 64)
    step[..., 32:] = 1
    features = hog(step)[0]
    assert features[0].sum() > 0
    assert features[1:18].abs().max() == 0


def test_a_horizontal_edge_has_one_orientation_for_any_contrast() -> None:
    step = torch.zeros(1, 64, 64)
    step[:, 32:] = 1
    for gain in (1.0, 0.3, 7.0):
        assert hog(gain * step)[0, :18].sum((1, 2)).nonzero().tolist() == [[4]]


def test_a_flat_patch_has_zeros() -> None:
    assert hog(torch.full((1, 64, 64), 7, dtype=torch.uint8)).abs().max() == 0


def test_no_patches_have_no_features() -> None:
    assert hog(torch.zeros(0, 64, 64)).shape == (0, 31, 8, 8)


def test_a_side_that_is_not_a_multiple_of_the_cell_is_rejected() -> None:
    with pytest.raises(ArgumentError, match="multiple of 8"):
        hog(torch.zeros(1, 60, 60))
