"""Quantised descriptors: their norm, their range, and the order of their distances."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from doap.metrics import quantise


def vectors(seed, number=200, dim=128, signed=True):
    values = torch.from_numpy(np.random.default_rng(seed).normal(size=(number, dim))).float()
    return normalize(values if signed else values.abs())


@pytest.mark.parametrize("signed", [True, False])
@given(seed=st.integers(0, 1000))
def test_norm_is_about_512(signed, seed):
    norm = quantise(vectors(seed, signed=signed), signed=signed).double().norm(dim=1)
    assert ((norm - 512).abs() < 4).all()


@pytest.mark.parametrize("signed", [True, False])
def test_order_of_distances_is_nearly_preserved(signed):
    one, others = vectors(0, 1, signed=signed), vectors(1, signed=signed)
    # Neighbours from near to far, because unrelated vectors all have about the same distance.
    values = torch.cat([one, normalize(one + torch.linspace(0.05, 5, len(others))[:, None] * others)])
    before = torch.cdist(values[:1], values[1:])[0]
    codes = quantise(values, signed=signed).float()
    after = torch.cdist(codes[:1], codes[1:])[0]
    # Spearman's rank correlation.
    ranks = torch.stack([before.argsort().argsort(), after.argsort().argsort()]).double()
    assert torch.corrcoef(ranks)[0, 1] > 0.99


def test_unsigned_values_are_multiplied_by_512():
    values = vectors(3, signed=False)
    assert torch.equal(quantise(values, signed=False), (512 * values).round().clamp(0, 255).to(torch.uint8))


def test_large_values_are_clamped_to_255():
    peak = torch.eye(4, 128)
    for signed in (True, False):
        row = quantise(peak, signed=signed)
        assert row.max() <= 255
        assert (row.argmax(dim=1) == torch.arange(4)).all()
    assert quantise(peak, signed=False).max() == 255


def test_values_below_the_shift_are_clamped_to_0():
    row = quantise(torch.tensor([[-1.0, 0.0, 0.0, 0.0]]), signed=True)
    assert row[0, 0] == 0
    assert (row[0, 1:] > 200).all()


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("rows", [0, 3])
def test_zeros_stay_zeros(signed, rows):
    codes = quantise(torch.zeros(rows, 128), signed=signed)
    assert codes.shape == (rows, 128)
    assert not codes.any()
