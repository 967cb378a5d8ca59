"""One sentence: switch, stay, no difference, or mixed.

Two figures decide, each by the 95 % interval of the candidate minus the best of the others (see `mean_over_photos`),
never by a mean alone: verified inliers in pairs of photos that overlap, and AP in made-up views.

    mixed            better in one and worse in the other
    stay             worse in one or both
    switch           better in overlapping pairs; or in made-up views, if too few photos overlap to tell
    no difference    all else

Better in made-up views alone is not enough where photos overlap: descriptors are trained on such views, and photos are
what they are for. With fewer than six photos nothing is decided. A reconstruction is one number without an interval; it
is told, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from doap.evaluation.compare.stage import Outcome, Stage
from doap.evaluation.report.comparison import number
from doap.evaluation.result import DescriptorInfo

Answer = Literal["switch", "stay", "no difference", "mixed"]

WORDS: dict[Outcome, str] = {
    "ahead": "better",
    "behind": "worse",
    "level": "neither better nor worse",
    "unknown": "undecided, with so few of them,",
}


@dataclass(frozen=True)
class Verdict:
    """The answer, and the sentence that says it with its figures."""

    answer: Answer
    sentence: str


def decide(
    pairs: Stage, views: Stage, descriptors: Sequence[DescriptorInfo], seconds: dict[str, float], photos: int
) -> Verdict:
    """Apply the rule.

    Args:
        pairs, views: what was judged on.
        descriptors: the candidate, then the others.
        seconds: to describe the same keypoints, by descriptor.
        photos: how many could be judged on.
    """
    outcomes = [stage.deciding.outcome if stage.deciding else "unknown" for stage in (pairs, views)]
    answer = _answer(*outcomes)
    candidate = descriptors[0]
    decided = [stage.deciding for stage in (pairs, views) if stage.deciding]
    worse = [contest.rival for contest in decided if contest.outcome == "behind"]
    rival = next(iter([*worse, *(contest.rival for contest in decided)]), descriptors[1].name)
    heads: dict[Answer, str] = {
        "switch": f"Switch to {candidate.name}{'' if outcomes[0] == 'ahead' else ', by made-up views alone'}",
        "stay": f"Stay with {rival}",
        "no difference": f"No difference that {photos} photo{'' if photos == 1 else 's'} can show",
        "mixed": "Mixed",
    }
    other = next(one for one in descriptors if one.name == rival)
    cost = f"it takes {candidate.bytes:,} bytes a descriptor against {other.bytes:,}"
    ratio = seconds[candidate.name] / seconds[rival]
    cost += f" and {ratio:.2g} times the time of {rival} to describe a photo"
    clauses = "; ".join(_clause(stage, candidate.name) for stage in (pairs, views))
    return Verdict(answer, f"{heads[answer]}: {clauses}; {cost}.")


def _answer(pairs: Outcome, views: Outcome) -> Answer:
    both = {pairs, views}
    if both == {"ahead", "behind"}:
        return "mixed"
    if "behind" in both:
        return "stay"
    if pairs == "ahead" or (pairs == "unknown" and views == "ahead"):
        return "switch"
    return "no difference"


def _clause(stage: Stage, candidate: str) -> str:
    if stage.deciding is None:
        return stage.note
    contest = stage.deciding
    figure, gain = next(iter(stage.contests)), contest.gain
    ours, theirs = (number(contest.totals[name].value) for name in (candidate, contest.rival))
    between = f"difference {signed(gain.value)}, 95 % interval {signed(gain.low)} to {signed(gain.high)}"
    said = f"{candidate} is {WORDS[contest.outcome]} in {stage.what} ({figure} {ours} against {theirs}"
    return f"{said} of {contest.rival}, {between}; {stage.note})"


def signed(value: float) -> str:
    """With its sign, and a true minus."""
    return f"{'−' if value < 0 else '+'}{number(abs(value))}"
