"""Distances and bits."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from doap._support.errors import ArgumentError, ShapeError
from doap.metrics import euclidean, hamming, pack_bits, pair_distances, table_distances, unpack_bits
from doap.metrics.distance import from_dot


def unit(rows, dim, seed):
    return normalize(torch.randn(rows, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))


def test_euclidean_equals_cdist():
    x, y = unit(7, 5, 0), unit(9, 5, 1)
    torch.testing.assert_close(euclidean(x, y), torch.cdist(x, y))
    torch.testing.assert_close(from_dot(x @ y.T, "squared", 5), torch.cdist(x, y).square())


def test_distances_of_evaluation_equal_cdist_for_any_norm():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(4, 3, generator=generator), 5 * torch.randn(6, 3, generator=generator)
    expected = torch.cdist(x.double(), y.double(), compute_mode="donot_use_mm_for_euclid_dist").float()
    torch.testing.assert_close(table_distances(x, y), expected, rtol=0, atol=2e-6)
    torch.testing.assert_close(pair_distances(x, y[:4]), expected.diagonal(), rtol=0, atol=2e-6)


def test_euclidean_has_a_finite_gradient_between_equal_descriptors():
    x = unit(3, 4, 0).repeat(2, 1).requires_grad_()
    euclidean(x, x).sum().backward()
    assert x.grad.isfinite().all()


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**31))
def test_packed_hamming_equals_counting_differing_bits(rows, columns, octets, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 8 * octets, generator=generator)
    y = torch.randn(columns, 8 * octets, generator=generator)
    expected = [[sum((a > 0) != (b > 0) for a, b in zip(p, q, strict=True)) for q in y.tolist()] for p in x.tolist()]
    assert hamming(pack_bits(x), pack_bits(y)).tolist() == expected
    dots = ((x > 0) * 2.0 - 1) @ ((y > 0) * 2.0 - 1).T
    assert from_dot(dots, "hamming", 8 * octets).tolist() == expected


def test_packing_equals_numpy_and_unpacking_inverts_it():
    values = torch.randn(6, 24, generator=torch.Generator().manual_seed(0))
    codes = pack_bits(values)
    assert np.array_equal(codes.numpy(), np.packbits(values.numpy() > 0, axis=1))
    assert torch.equal(unpack_bits(codes), (values > 0).to(torch.uint8))


def test_the_sign_of_zero_is_bit_0():
    assert pack_bits(torch.zeros(1, 8)).item() == 0


def test_bits_that_do_not_fill_bytes_are_rejected():
    with pytest.raises(ArgumentError, match="expected a multiple of 8 bits to pack into bytes, got 12"):
        pack_bits(torch.zeros(1, 12))
    with pytest.raises(ArgumentError, match=r"codes: expected uint8, got torch.float32"):
        unpack_bits(torch.zeros(1, 2))


def test_galleries_of_another_dimension_are_rejected():
    with pytest.raises(ShapeError, match=r"gallery: expected \(N, 5\), got \(9, 6\)"):
        euclidean(unit(7, 5, 0), unit(9, 6, 1))
