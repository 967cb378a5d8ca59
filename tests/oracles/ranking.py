"""Average Precision and related metrics, one query and one item at a time."""

from __future__ import annotations

from itertools import groupby, permutations


def textbook_ap(ranked: list[bool]) -> float:
    """Mean over positives of (positives up to its rank) / rank."""
    precisions = [sum(ranked[: rank + 1]) / (rank + 1) for rank, hit in enumerate(ranked) if hit]
    return sum(precisions) / len(precisions)


def _orders(distances: list[float], positive: list[bool]) -> list[list[bool]]:
    """Every order that a sort by distance could return."""
    items = sorted(zip(distances, positive, strict=True), key=lambda item: item[0])
    rankings: list[list[bool]] = [[]]
    for _, tied in groupby(items, key=lambda item: item[0]):
        labels = [label for _, label in tied]
        rankings = [ranking + list(order) for ranking in rankings for order in permutations(labels)]
    return rankings


def enumerated_ap(distances: list[float], positive: list[bool]) -> dict[str, float]:
    """Mean, minimum and maximum of AP over all orders of the ties."""
    values = [textbook_ap(ranking) for ranking in _orders(distances, positive)]
    return {"expected": sum(values) / len(values), "pessimistic": min(values), "optimistic": max(values)}


def enumerated_fpr(distances: list[float], positive: list[bool], recall: float) -> dict[str, float]:
    """False-positive rate over all orders of the ties, accepting pairs one by one until the recall is reached."""
    values = []
    for ranking in _orders(distances, positive):
        accepted, wrong = 0, 0
        for hit in ranking:
            accepted, wrong = accepted + hit, wrong + (not hit)
            if accepted >= recall * sum(positive) - 1e-9:
                break
        values.append(wrong / (len(positive) - sum(positive)))
    return {"expected": sum(values) / len(values), "pessimistic": max(values), "optimistic": min(values)}


def relaxed_ap(positives: list[float], total: list[float], form: str) -> float:
    """The paper's simplified tie-aware AP, or FastAP, bin by bin."""
    value, before_positive, before = 0.0, 0.0, 0.0
    for here_positive, here in zip(positives, total, strict=True):
        after_positive, after = before_positive + here_positive, before + here
        if form == "simplified":
            value += here_positive * (before_positive + after_positive + 1) / (before + after + 1)
        elif after > 0:
            value += here_positive * after_positive / after
        before_positive, before = after_positive, after
    return value / max(sum(positives), 1)
