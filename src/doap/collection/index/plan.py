"""The kind and the parameters of an index for a number of descriptors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from doap._support.checks import check_choice
from doap._support.errors import ArgumentError
from doap.types import Kind

IndexKind = Literal["flat", "ivf", "ivf-pq"]
"""`flat` compares all descriptors, `ivf` those of the nearest lists, `ivf-pq` their 16-byte codes."""

# Maximum number of descriptors of each kind of index.
LIMITS: dict[Kind, dict[IndexKind, float]] = {
    "real": {"flat": 100_000, "ivf": 2_000_000, "ivf-pq": math.inf},
    "binary": {"flat": 1_000_000, "ivf": math.inf},
}
CODE_BYTES = 16
SAMPLE_PER_LIST = 64
"""Number of training descriptors per list; FAISS warns below 39 and uses at most 256."""
MIN_PER_LIST = 39
# Each byte of a code has 256 centres of its own, trained on the same sample.
_MIN_FOR_CODES, _SAMPLE_FOR_CODES = 256, 256 * 256


@dataclass(frozen=True)
class IndexPlan:
    """Parameters of an index.

    Attributes:
        kind: See `IndexKind`.
        lists: Number of inverted lists; 0 for flat.
        probes: Default number of lists searched per query.
        sample: Number of training descriptors; 0 for flat.
        rule: Explanation of the choice.
    """

    kind: IndexKind
    lists: int
    probes: int
    sample: int
    rule: str


def plan_index(count: int, descriptors: Kind, dim: int, kind: IndexKind | None = None) -> IndexPlan:
    """Choose the parameters of an index for N = `count` descriptors, and its kind unless it is given.

    There are 2·√N lists, and √lists of them are searched per query. Both parts of a search, finding the lists and
    comparing their descriptors, then grow more slowly than N. Twice as many lists would take four times as long to
    train, and at a million descriptors their centres would cost two bytes per descriptor instead of one.

    >>> plan = plan_index(1_000_000, "real", 128)
    >>> plan.kind, plan.lists, plan.probes, plan.sample
    ('ivf', 2000, 45, 128000)
    >>> plan.rule
    '1,000,000 real descriptors: ivf, since flat is for up to 100,000, ivf for up to 2,000,000, ivf-pq for more'
    """
    limits = LIMITS[descriptors]
    if kind is not None:
        check_choice(kind, tuple(limits), name=f"kind of an index of {descriptors} descriptors")
        chosen, rule = kind, f"{count:,} {descriptors} descriptors: {kind}, as requested"
    else:
        chosen = next(name for name, limit in limits.items() if count <= limit)
        ranges = (f"{name} for {'more' if limit == math.inf else f'up to {limit:,}'}" for name, limit in limits.items())
        rule = f"{count:,} {descriptors} descriptors: {chosen}, since {', '.join(ranges).replace(' for', ' is for', 1)}"
    if chosen == "flat":
        return IndexPlan(chosen, 0, 0, 0, rule)
    if chosen == "ivf-pq" and (count < _MIN_FOR_CODES or dim < CODE_BYTES):
        raise ArgumentError(
            f"kind: ivf-pq requires {_MIN_FOR_CODES} descriptors with D = {CODE_BYTES} or more, got {count:,} with "
            f"D = {dim}. Choose flat."
        )
    lists = max(1, min(round(2 * math.sqrt(count)), count // MIN_PER_LIST))
    wanted = max(SAMPLE_PER_LIST * lists, _SAMPLE_FOR_CODES if chosen == "ivf-pq" else 0)
    return IndexPlan(chosen, lists, math.ceil(math.sqrt(lists)), min(count, wanted), rule)
