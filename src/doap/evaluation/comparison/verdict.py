"""The verdict of a comparison: switch, stay, no difference or mixed.

Two metrics decide: verified inliers on pairs of photos that overlap, and AP on synthetic views. Each is decided by
the 95 % interval of the candidate minus the best baseline (see `mean_over_photos`), never by the mean.

    mixed            Better in one metric and worse in the other.
    stay             Worse in one metric or both.
    switch           Better on overlapping pairs; or on synthetic views if too few pairs overlap to decide.
    no difference    Everything else.

Where photos overlap, better results on synthetic views are not sufficient: descriptors are trained on such views but
deployed on photos. `compare` refuses fewer than six photos, which could not decide anything. A reconstruction is a
single number without an interval; it is reported but does not decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from doap.evaluation.comparison.stage import Outcome, Stage
from doap.evaluation.result import DescriptorInfo

Answer = Literal["switch", "stay", "no difference", "mixed"]


@dataclass(frozen=True)
class Verdict:
    """The answer, and a sentence that explains it with the figures."""

    answer: Answer
    sentence: str


def decide(
    pairs: Stage, views: Stage, descriptors: Sequence[DescriptorInfo], seconds: Mapping[str, float], photos: int
) -> Verdict:
    """Apply the rule.

    Args:
        pairs, views: Scores on overlapping pairs and on synthetic views.
        descriptors: The candidate, then the baselines.
        seconds: Time to describe the same keypoints, by descriptor.
        photos: Number of photos used.
    """
    outcomes = [stage.deciding.outcome if stage.deciding else "undecided" for stage in (pairs, views)]
    answer = _answer(*outcomes)
    candidate, baseline = descriptors[0], _relevant_baseline(pairs, views, descriptors)
    only_views = "" if outcomes[0] == "better" else ", based on synthetic views only"
    heads: dict[Answer, str] = {
        "switch": f"Switch to {candidate.name}{only_views}",
        "stay": f"Stay with {baseline.name}",
        "no difference": f"No significant difference on {photos} photos",
        "mixed": "Mixed result",
    }
    ratio = f"{seconds[candidate.name] / seconds[baseline.name]:.2g}"
    duration = "as long" if ratio == "1" else f"{ratio} times as long"
    cost = (
        f"a descriptor of {candidate.name} takes {candidate.bytes:,} bytes ({baseline.name}: {baseline.bytes:,}), and "
        f"describing a photo takes {duration} as with {baseline.name}"
    )
    clauses = [*(_clause(stage, candidate.name) for stage in (pairs, views)), cost]
    return Verdict(answer, f"{heads[answer]}: {'; '.join(clauses)}.")


def _answer(pairs: Outcome, views: Outcome) -> Answer:
    both = {pairs, views}
    if both == {"better", "worse"}:
        return "mixed"
    if "worse" in both:
        return "stay"
    if pairs == "better" or (pairs == "undecided" and views == "better"):
        return "switch"
    return "no difference"


def _relevant_baseline(pairs: Stage, views: Stage, descriptors: Sequence[DescriptorInfo]) -> DescriptorInfo:
    """Return the baseline that beats the candidate, or else the best one of the first stage that has any."""
    metrics = [stage.deciding for stage in (pairs, views) if stage.deciding]
    losing = [metric.best_baseline for metric in metrics if metric.outcome == "worse"]
    names = [*losing, *(metric.best_baseline for metric in metrics), descriptors[1].name]
    return next(one for one in descriptors if one.name == names[0])


def _clause(stage: Stage, candidate: str) -> str:
    metric = stage.deciding
    if metric is None:
        return stage.note
    baseline, difference = metric.best_baseline, metric.difference
    claims: dict[Outcome, str] = {
        "better": f"on {stage.name}, {candidate} is better than {baseline}",
        "worse": f"on {stage.name}, {candidate} is worse than {baseline}",
        "similar": f"on {stage.name}, {candidate} is neither better nor worse than {baseline}",
        "undecided": f"there are too few {stage.name} to decide between {candidate} and {baseline}",
    }
    means = " vs ".join(metric.format(metric.means[name].value) for name in (candidate, baseline))
    value, low, high = (
        f"{'−' if one < 0 else '+'}{metric.format(abs(one))}" for one in (difference.value, *difference.bounds)
    )
    name = next(iter(stage.metrics))
    interval = "" if difference.low is None else f", 95 % interval {low} to {high}"
    return f"{claims[metric.outcome]} ({name} {means}, difference {value}{interval}; {stage.note})"
