"""The HTML page of a comparison: verdict, figures, example pictures and the rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from doap._support.html import data_uri, write_html
from doap.evaluation.comparison.pairs import Picture
from doap.evaluation.comparison.verdict import MIN_ITEMS, Verdict
from doap.evaluation.report.page import LEGENDS, figure_section, folded, part_charts, provenance
from doap.evaluation.report.table import group_results
from doap.evaluation.result import Result
from doap.geometry import MIN_INLIER_RATIO, MIN_INLIERS
from doap.images.draw import MAX_LINES

RULE = f"""
<p>Verified inliers on pairs of photos that overlap decide, by the 95 % interval of the difference between the candidate
and the best baseline on the same pairs, never by the mean. The interval comes from resampling photos, because pairs
that share a photo are not independent. <b>Switch</b>: it lies above 0. <b>Stay</b>: it lies below 0. <b>No
difference</b>: it contains 0. Nothing is decided with fewer than {MIN_ITEMS} photos or pairs.</p>
<p>A pair overlaps if any descriptor finds at least {MIN_INLIERS} inliers that are at least
{MIN_INLIER_RATIO * 100:.0f} % of its matches; photos of different scenes can have up to 50 inliers by chance. A
reconstruction is a single number without an interval: it is reported but does not decide.</p>
"""
LEGEND = (
    "Matches of each descriptor on the same keypoints. "
    "<span class=own>Green</span>: inliers that the other descriptor does not find (for a baseline: the candidate). "
    "<span class=common>Blue</span>: inliers that both find. <span class=rejected>Red</span>: matches that do not "
    f"agree with one fundamental matrix. At most {MAX_LINES} matches are lines; all others are points."
)


def write_comparison_page(
    verdict: Verdict,
    results: Mapping[str, Sequence[Result]],
    notes: Mapping[str, str],
    pictures: Mapping[str, Sequence[Picture]],
    out: Path,
) -> Path:
    """Write the page atomically, with the results and notes of each stage and the pictures of each descriptor."""
    reasons = "".join(f"<li>{escape(reason[:1].upper() + reason[1:])}." for reason in verdict.reasons)
    parts = [f"<h1>{escape(verdict.title)}</h1><ul>{reasons}</ul>"]
    tables = []
    for stage, note in notes.items():
        parts.append(f"<h2>{escape(stage.capitalize())} <small>{escape(note)}</small></h2>")
        if measured := results.get(stage):
            candidate = measured[0].descriptor.name
            (table,) = group_results([(out, result) for result in measured], [candidate])
            tables.append(replace(table, candidate=True))
            parts.append(figure_section(tables[-1]))
            if measured[0].headline.total.low is not None:
                parts.append(part_charts(tables[-1], measured[0].headline))
    parts += [
        *_picture_section(pictures),
        f"<h2>How the verdict is reached</h2>{RULE}{LEGENDS}",
        provenance(tables),
    ]
    return write_html(out, verdict.title, parts)


def _picture_section(pictures: Mapping[str, Sequence[Picture]]) -> Iterator[str]:
    """Show the pictures of one title side by side."""
    titles = [picture.title for picture in next(iter(pictures.values()), ())]
    if titles:
        yield f"<h2>Example pairs</h2><p class=soft>{LEGEND}</p>"
    for number, title in enumerate(titles):
        figures = [
            f"<figure><figcaption>{escape(name)} <small>{escape(some[number].caption)}</small></figcaption>"
            f"<img src='{data_uri(some[number].jpeg, 'jpeg')}' alt='matches of {escape(name)}'></figure>"
            for name, some in pictures.items()
        ]
        yield folded(title, f"<div class=panels>{''.join(figures)}</div>", opened=number == 0)
