"""Average Precision as the two programs of HPatches compute it, rank by rank."""

from __future__ import annotations


def settled_ap(ranked: list[bool], number: int, form: str) -> float:
    """AP of a ranking without ties.

    `python` is the area under straight lines through (0, 1) and the point (recall, precision) of each rank, `matlab`
    the sum of the precision at each positive, over their number.
    """
    hits, area, before = 0, 0.0, 1.0
    for rank, hit in enumerate(ranked, start=1):
        hits += hit
        precision = hits / rank
        if hit:
            area += ((precision + before) / 2 if form == "python" else precision) / number
        before = precision
    return area
