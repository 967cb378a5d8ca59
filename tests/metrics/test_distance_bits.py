"""Distances and bits."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from doap._support.errors import ArgumentError, ShapeError
from doap.metrics import hamming, pack_bits, pair_distances, quantise, table_distances, unpack_bits
from doap.metrics.distance import from_dot

BITS = torch.zeros(2, 2, dtype=torch.uint8)


def unit(rows, dim, seed):
    return normalize(torch.randn(rows, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))


@pytest.mark.parametrize("distance", ["euclidean", "squared"])
def test_distances_of_dot_products_equal_cdist_and_have_a_finite_gradient(distance):
    x = unit(7, 5, 0).requires_grad_()
    found, expected = from_dot(x @ x.T, distance, 5), torch.cdist(x, x)
    torch.testing.assert_close(found, expected if distance == "euclidean" else expected.square(), atol=1e-7, rtol=1e-7)
    found.sum().backward()
    assert x.grad.isfinite().all()


def test_distances_of_evaluation_equal_cdist_for_any_norm():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(4, 3, generator=generator), 5 * torch.randn(6, 3, generator=generator)
    expected = torch.cdist(x.double(), y.double(), compute_mode="donot_use_mm_for_euclid_dist").float()
    torch.testing.assert_close(table_distances(x, y), expected, rtol=0, atol=2e-6)
    torch.testing.assert_close(pair_distances(x, y[:4]), expected.diagonal(), rtol=0, atol=2e-6)


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


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: pack_bits(torch.zeros(1, 12)), ArgumentError),
        (lambda: unpack_bits(torch.zeros(1, 2)), ArgumentError),
        (lambda: table_distances(torch.zeros(7, 5), torch.zeros(9, 6)), ShapeError),
        (lambda: hamming(BITS, BITS[:, :1]), ShapeError),
        (lambda: pair_distances(BITS, BITS[:, :1]), ShapeError),
        (lambda: quantise(torch.zeros(3), signed=False), ShapeError),
        (lambda: quantise(torch.zeros(3, 16, dtype=torch.uint8), signed=False), ArgumentError),
        (lambda: quantise(torch.full((1, 8), torch.nan), signed=False), ArgumentError),
        (lambda: quantise(-torch.ones(1, 8), signed=False), ArgumentError),
    ],
)
def test_wrong_types_and_sizes_are_an_error(call, error):
    with pytest.raises(error):
        call()


def test_the_hamming_distance_of_pairs_is_the_diagonal_of_the_table():
    codes = torch.randint(0, 256, (2, 9, 4), generator=torch.Generator().manual_seed(0)).byte()
    assert torch.equal(pair_distances(*codes), hamming(*codes).diagonal().float())
