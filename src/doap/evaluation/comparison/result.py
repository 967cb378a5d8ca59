"""The result of a comparison."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from doap.evaluation.comparison.stage import Stage
from doap.evaluation.comparison.verdict import Verdict
from doap.evaluation.mapping import Reconstruction
from doap.evaluation.result import DescriptorInfo

FORMAT = "doap comparison 1"


@dataclass(frozen=True)
class Comparison:
    """One descriptor compared with baselines; `comparison.json` has the same content.

    Attributes:
        verdict: Answer and the sentence that explains it.
        descriptors: The candidate, then the baselines.
        photos: Names of the photos used; stages refer to them by index.
        skipped: Reason why a photo was not used, by name.
        photos_given: Number of photos given.
        pairs: Scores on pairs of photos that overlap.
        views: Scores on synthetic views of the photos.
        reconstructions: COLMAP reconstruction by descriptor; empty if there is none.
        reconstruction_note: What was reconstructed, or why nothing was.
        seconds: Time to describe 1,000 keypoints, by descriptor. Only ratios are meaningful.
        settings: Everything that affects the figures.
        seed: Random seed.
        date: ISO date of the run.
        versions: Versions of the libraries that affect the figures.
    """

    verdict: Verdict
    descriptors: tuple[DescriptorInfo, ...]
    photos: list[str]
    skipped: dict[str, str]
    photos_given: int
    pairs: Stage
    views: Stage
    reconstructions: dict[str, Reconstruction]
    reconstruction_note: str
    seconds: dict[str, float]
    settings: dict[str, Any]
    seed: int
    date: str
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the content of `comparison.json`."""
        return {"format": FORMAT, **dataclasses.asdict(self)}
