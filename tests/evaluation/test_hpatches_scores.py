"""Retrieval: Average Precision of queries among distractors, with three protocols."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import average_precision_score
from torch import Tensor
from torch.nn.functional import normalize

from doap.evaluation import hpatches_scores
from doap.evaluation.hpatches_scores import AP_PROTOCOLS, APProtocol, precision_among
from doap.metrics import average_precision, pack_bits
from oracles.areas import settled_ap
from oracles.ranking import enumerated_ap

Task = tuple[Tensor, Tensor, Tensor]


def make_task(bits: bool = False, queries: int = 20, distractors: int = 50) -> Task:
    """Queries, their five noisy matches in two variants, and distractors."""
    generator = torch.Generator().manual_seed(0)
    asked, strangers = (normalize(torch.randn(n, 16, generator=generator)) for n in (queries, distractors))
    noise = torch.randn(queries, 2, 5, 16, generator=generator) * torch.tensor([0.3, 0.6]).view(1, 2, 1, 1)
    matches = normalize(asked[:, None, None] + noise, dim=3)
    if bits:
        return pack_bits(asked), pack_bits(matches.flatten(0, 2)).view(queries, 2, 5, 2), pack_bits(strangers)
    return asked, matches, strangers


def slow_distance(one: Tensor, other: Tensor) -> float:
    if one.dtype == torch.uint8:
        return float(sum(bin(a ^ b).count("1") for a, b in zip(one.tolist(), other.tolist(), strict=True)))
    return round(float((one.double() - other.double()).norm()), 6)


def slow_lists(task: Task, variant: int, number: int) -> list[list[float]]:
    """The list of each query, as the programs write it: five matches, then distractors."""
    queries, matches, distractors = task
    return [
        [slow_distance(query, item) for item in (*own[variant], *distractors[:number])]
        for query, own in zip(queries, matches, strict=True)
    ]


def slow_precision(distances: list[float], form: APProtocol) -> float:
    """With a stable sort of the list, whose first five are the matches."""
    ranked = sorted(range(len(distances)), key=lambda item: distances[item])
    return settled_ap([item < 5 for item in ranked], 5, form)


@pytest.mark.parametrize("bits", [False, True])
@pytest.mark.parametrize("form", ["python", "matlab"])
def test_programs_of_hpatches_equal_a_stable_sort_and_a_loop(bits: bool, form: APProtocol) -> None:
    task = make_task(bits)
    ours = precision_among(*task, [(form, 50), (form, 7)])
    for variant in range(2):
        for way, number in enumerate((50, 7)):
            slow = [slow_precision(distances, form) for distances in slow_lists(task, variant, number)]
            assert ours[:, variant, way].tolist() == pytest.approx(slow)


def test_tie_aware_equals_scikit_learn_without_ties() -> None:
    task = make_task()
    ours = precision_among(*task, [("tie-aware", 50)])
    for variant in range(2):
        theirs = [
            average_precision_score([1] * 5 + [0] * 50, [-distance for distance in distances])
            for distances in slow_lists(task, variant, 50)
        ]
        assert ours[:, variant, 0].tolist() == pytest.approx(theirs)


def test_tie_aware_of_bits_equals_the_mean_over_all_orders() -> None:
    task = make_task(bits=True)
    ours = precision_among(*task, [("tie-aware", 50), ("tie-aware", 3)])
    for variant in range(2):
        for way, number in enumerate((50, 3)):
            apart = torch.tensor(slow_lists(task, variant, number))
            positive = (torch.arange(apart.shape[1]) < 5).expand_as(apart)
            torch.testing.assert_close(ours[:, variant, way], average_precision(apart, positive))
    few = slow_lists(task, 0, 3)[0]
    assert float(ours[0, 0, 1]) == pytest.approx(enumerated_ap(few, [True] * 5 + [False] * 3)["expected"])


@pytest.mark.parametrize("bits", [False, True])
def test_blocks_of_rows_change_nothing(bits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    task, protocols = make_task(bits), [(form, 50) for form in AP_PROTOCOLS]
    whole = precision_among(*task, protocols)
    monkeypatch.setattr(hpatches_scores, "rows_at_a_time", lambda gallery: 3)
    torch.testing.assert_close(precision_among(*task, protocols), whole)
