"""The definition of the relaxed Average Precision, and its soft histogram."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from doap.loss import relaxed_average_precision, soft_histogram
from doap.metrics import average_precision
from oracles.ranking import relaxed_ap

FORMS = ["simplified", "fastap"]
LISTS = st.lists(st.floats(0, 4, width=32), min_size=1, max_size=20)


def everything(distances):
    return torch.ones_like(distances, dtype=torch.bool)


@given(LISTS, st.integers(2, 9))
def test_a_distance_is_shared_between_two_bins_and_its_shares_sum_to_one(distances, bins):
    each = torch.tensor(distances, dtype=torch.float64)[:, None]
    counts = soft_histogram(each, torch.linspace(0, 4, bins, dtype=torch.float64), everything(each))
    torch.testing.assert_close(counts.sum(1), torch.ones(len(distances), dtype=torch.float64))
    assert ((counts > 0).sum(1) <= 2).all()


@given(LISTS, st.integers(2, 9))
def test_histogram_equals_the_triangle_kernel(distances, bins):
    row = torch.tensor([distances], dtype=torch.float64)
    centres = torch.linspace(0, 4, bins, dtype=torch.float64)
    kernel = (1 - (row[:, :, None] - centres).abs() / (centres[1] - centres[0])).clamp(min=0)
    torch.testing.assert_close(soft_histogram(row, centres, everything(row)), kernel.sum(1))


def test_distances_that_are_not_counted_are_left_out():
    distances, centres = torch.rand(2, 5), torch.linspace(0, 1, 4)
    counted = everything(distances)
    counted[:, 2:] = False
    some = distances[:, :2]
    torch.testing.assert_close(
        soft_histogram(distances, centres, counted), soft_histogram(some, centres, everything(some))
    )


@pytest.mark.parametrize("form", FORMS)
@given(LISTS, st.integers(0, 2**31), st.integers(2, 9))
def test_relaxed_ap_equals_the_formula(form, distances, seed, bins):
    role = torch.randint(0, 3, (1, len(distances)), generator=torch.Generator().manual_seed(seed))
    row, centres = torch.tensor([distances], dtype=torch.float64), torch.linspace(0, 4, bins, dtype=torch.float64)
    positives, counted = (soft_histogram(row, centres, kept)[0].tolist() for kept in (role == 0, role < 2))
    ours = relaxed_average_precision(row, role == 0, role == 1, centres, form).item()
    assert ours == pytest.approx(relaxed_ap(positives, counted, form), rel=1e-9, abs=1e-12)


def test_a_query_without_positives_has_ap_0():
    none = torch.zeros(1, 3, dtype=torch.bool)
    for form in FORMS:
        assert relaxed_average_precision(torch.rand(1, 3), none, ~none, torch.linspace(0, 1, 3), form) == 0


def exact_simplified_fastap(distances, positive):
    """Three definitions of AP; distances are bin centres, so the relaxed ones have one bin per distance."""
    centres = torch.arange(4, dtype=torch.float64)
    relaxed = [relaxed_average_precision(distances, positive, ~positive, centres, form).item() for form in FORMS]
    return average_precision(distances, positive).item(), *relaxed


def test_one_positive_in_a_tie_of_ten_has_the_known_values():
    values = exact_simplified_fastap(torch.zeros(1, 10, dtype=torch.float64), torch.arange(10)[None] == 3)
    assert values == pytest.approx((0.2929, 0.1818, 0.1), abs=1e-4)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=20))
def test_for_one_positive_exact_is_at_least_simplified_and_simplified_at_least_fastap(distances):
    positive = torch.arange(len(distances))[None] == 0
    exact, simplified, fastap = exact_simplified_fastap(torch.tensor([distances], dtype=torch.float64), positive)
    assert exact >= simplified - 1e-12
    assert simplified >= fastap - 1e-12


def test_for_two_positives_the_relaxations_are_not_bounds():
    distances = torch.tensor([[0, 1, 1]], dtype=torch.float64)
    values = exact_simplified_fastap(distances, torch.tensor([[False, True, True]]))
    assert values == pytest.approx((7 / 12, 3 / 5, 2 / 3))
