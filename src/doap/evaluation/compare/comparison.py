"""What a comparison leaves."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from doap.evaluation.compare.models import Reconstruction
from doap.evaluation.compare.stage import Stage
from doap.evaluation.compare.verdict import Verdict
from doap.evaluation.result import DescriptorInfo

FORMAT = "doap comparison 1"


@dataclass(frozen=True)
class Comparison:
    """All that was found; `comparison.json` holds the same.

    Attributes:
        verdict: the answer.
        descriptors: the candidate, then what it was held against.
        photos: names of those judged on; stages speak of them by their number.
        left_out: why others were not, by name.
        given: how many photos were given.
        views, pairs: stages 1 and 2.
        models: stage 3, by descriptor; empty if there was none.
        models_note: what was reconstructed, or why nothing was.
        seconds: to describe 1,000 keypoints, by descriptor: to be read as ratios.
        settings: all that moves a figure.
    """

    verdict: Verdict
    descriptors: tuple[DescriptorInfo, ...]
    photos: list[str]
    left_out: dict[str, str]
    given: int
    views: Stage
    pairs: Stage
    models: dict[str, Reconstruction]
    models_note: str
    seconds: dict[str, float]
    settings: dict[str, Any]
    seed: int
    date: str
    versions: dict[str, str]

    def told(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"format": FORMAT, **dataclasses.asdict(self)}
