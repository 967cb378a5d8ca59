"""The HTML page of a comparison: verdict, figures, example pictures and the rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from doap._support.html import Axis, Whisker, data_uri, dot_chart, setting_tables, write_html
from doap.evaluation.comparison.pairs import PairPicture, Panel
from doap.evaluation.comparison.result import Comparison
from doap.evaluation.comparison.stage import MIN_ITEMS, MetricComparison, Stage
from doap.evaluation.result import DescriptorInfo
from doap.geometry import MIN_INLIER_RATIO, MIN_INLIERS
from doap.images.draw import MAX_LINES

RULE = f"""
<p>Two metrics decide: verified inliers on pairs of photos that overlap, and AP on synthetic views. Each is decided by
the 95 % interval of the difference between the candidate and the best baseline on the same photos, never by the mean.
The interval comes from resampling photos, because pairs that share a photo are not independent.</p>
<ul><li><b>Mixed</b>: better in one metric and worse in the other.
<li><b>Stay</b>: worse in one metric or both.
<li><b>Switch</b>: better on overlapping pairs; or on synthetic views if too few pairs overlap to decide.
<li><b>No difference</b>: everything else. Nothing is decided with fewer than {MIN_ITEMS} photos.</ul>
<p>Where photos overlap, better results on synthetic views are not sufficient: descriptors are trained on such views but
deployed on photos. A pair overlaps if any descriptor finds at least {MIN_INLIERS} inliers that are at least
{MIN_INLIER_RATIO * 100:.0f} % of its matches; photos of different scenes can have up to 50 inliers by chance. A
reconstruction is a single number without an interval: it is reported but does not decide.</p>
"""


def write_comparison_page(comparison: Comparison, pictures: Sequence[PairPicture], out: Path) -> Path:
    """Write the page atomically."""
    answer, _, reasons = comparison.verdict.sentence.partition(": ")
    candidate = comparison.descriptors[0].name
    parts = [
        f"<h1>{escape(answer)}</h1>{_reason_list(reasons)}",
        f"<p class=soft>{escape(_photo_note(comparison))}</p>",
        _summary_table(comparison),
        *(_stage_section(stage, comparison.descriptors) for stage in (comparison.pairs, comparison.views)),
        _reconstruction_section(comparison),
        _picture_section(pictures),
        f"<h2>How the verdict is reached</h2>{RULE}",
        f"<details><summary>Settings, checksums and versions</summary>{_provenance(comparison)}</details>",
    ]
    return write_html(out, f"{answer}: {candidate} on {len(comparison.photos)} photos", parts)


def _reason_list(reasons: str) -> str:
    """Show the clauses of the verdict as a list."""
    return f"<ul>{''.join(f'<li>{escape(clause)}' for clause in _clauses(reasons))}</ul>"


def _clauses(reasons: str) -> list[str]:
    """Split at semicolons outside parentheses."""
    parts, depth = [""], 0
    for letter in reasons.removesuffix("."):
        depth += (letter == "(") - (letter == ")")
        if letter == ";" and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    clauses = (part.strip() for part in parts)
    return [f"{clause[:1].upper()}{clause[1:]}." for clause in clauses]


def _photo_note(comparison: Comparison) -> str:
    used = f"Based on {len(comparison.photos)} of {comparison.photos_given} photos"
    if comparison.skipped:
        used += f"; skipped: {', '.join(comparison.skipped)} (see the reasons below)"
    return f"{used}. All descriptors used the same keypoints in one run."


def _summary_table(comparison: Comparison) -> str:
    """Show the deciding metrics, the size and the time of each descriptor, the candidate first."""
    stages = [stage for stage in (comparison.pairs, comparison.views) if stage.deciding]
    candidate = comparison.descriptors[0].name
    rows = []
    for one in comparison.descriptors:
        cells = [_cell(stage.deciding, one.name) for stage in stages if stage.deciding]
        ratio = comparison.seconds[one.name] / comparison.seconds[candidate]
        rows.append([one.name, *cells, f"{one.bytes:,}", f"× {ratio:.2g}"])
    heads = ["descriptor", *(f"{next(iter(stage.metrics))} ↑" for stage in stages), "bytes ↓", "time ↓"]
    legend = (
        "Means with 95 % intervals from resampling photos; the best is bold. The intervals of two descriptors may "
        "overlap although they differ on nearly every photo: the paired differences below decide. Time is the time to "
        f"describe the same keypoints, relative to {candidate}."
    )
    return f"{_table(heads, rows)}<p class=soft>{escape(legend)}</p>"


def _cell(metric: MetricComparison, name: str) -> str:
    mean = metric.means[name]
    best = mean.value == max(one.value for one in metric.means.values())
    value, low, high = (metric.format(one) for one in (mean.value, *mean.bounds))
    interval = "" if mean.low is None else f"<small>[{low}, {high}]</small>"
    return f"{f'<b>{value}</b>' if best else value}{interval}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; the first cell of a row is plain text, the others are HTML."""
    head = "".join(f"<th>{escape(name)}" for name in heads)
    body = "".join(f"<tr><th>{escape(name)}{''.join(f'<td>{cell}' for cell in cells)}" for name, *cells in rows)
    return f"<div class=wide><table><thead><tr>{head}</thead><tbody>{body}</tbody></table></div>"


def _stage_section(stage: Stage, descriptors: Sequence[DescriptorInfo]) -> str:
    head = f"<h2>{escape(stage.name.capitalize())} <small>{escape(stage.note)}</small></h2>"
    if stage.deciding is None:
        return head
    kinds = {one.name: one.kind for one in descriptors}
    deciding, *further = (_charts(name, metric, kinds) for name, metric in stage.metrics.items())
    legend = f"To the right of the dashed line, {descriptors[0].name} is better on the same photos; to the left, worse."
    summary = escape(", ".join([*stage.metrics][1:]))
    more = f"<details><summary>More metrics: {summary}</summary>{''.join(further)}</details>"
    return f"{head}<p class=soft>{escape(legend)}</p>{deciding}{more}"


def _charts(name: str, metric: MetricComparison, kinds: Mapping[str, str]) -> str:
    """Draw the means, and the differences of the candidate from each baseline."""
    candidate = next(iter(metric.values))
    means, differences = (
        [Whisker(label, kinds[label], e.value, *e.bounds, strong=label == strong) for label, e in estimates.items()]
        for estimates, strong in ((metric.means, candidate), (metric.differences, metric.best_baseline))
    )
    # The line at 0 is always visible.
    axis = Axis().spanning([0.0, *(end for one in metric.differences.values() for end in (one.value, *one.bounds))])
    paired = dot_chart(f"{candidate} minus …", f"{name}, paired", differences, axis, 0.0)
    return f"<div class=dots>{dot_chart(name, 'mean', means, Axis())}{paired}</div>"


def _reconstruction_section(comparison: Comparison) -> str:
    heads = ["descriptor", "photos registered", "points", "track length", "reprojection error"]
    rows = []
    for name, model in comparison.reconstructions.items():
        error = "–" if model.reprojection_error is None else f"{model.reprojection_error:.2f} px"
        rows.append([name, f"{model.registered:,}", f"{model.points:,}", f"{model.track_length:.2f}", error])
    head = f"<h2>Reconstruction <small>{escape(comparison.reconstruction_note)}</small></h2>"
    return head + (_table(heads, rows) if rows else "")


def _picture_section(pairs: Sequence[PairPicture]) -> str:
    if not pairs:
        return ""
    legend = (
        "Matches of each descriptor on the same keypoints. "
        "<span class=own>Green</span>: inliers that the other descriptor does not find (for a baseline: the "
        "candidate). "
        "<span class=common>Blue</span>: inliers that both find. <span class=rejected>Red</span>: matches that do not "
        f"agree with one fundamental matrix. At most {MAX_LINES} matches are lines; all others are points."
    )
    parts = [f"<h2>Example pairs</h2><p class=soft>{legend}</p>"]
    for pair in pairs:
        parts.append(f"<h3>{escape(pair.title)}</h3>{_panels(pair.panels[:2])}")
        if others := pair.panels[2:]:
            names = escape(", ".join(one.name for one in others))
            parts.append(f"<details><summary>Other baselines: {names}</summary>{_panels(others)}</details>")
    return "".join(parts)


def _panels(panels: Sequence[Panel]) -> str:
    """Show the matches of some descriptors side by side."""
    figures = (
        f"<figure><figcaption>{escape(one.name)} <small>{escape(one.caption)}</small></figcaption>"
        f"<img src='{data_uri(one.pixels, '.jpg')}' alt='matches of {escape(one.name)}'></figure>"
        for one in panels
    )
    return f"<div class=panels>{''.join(figures)}</div>"


def _provenance(comparison: Comparison) -> str:
    seconds = {name: f"{value:.3g} s per 1,000 keypoints" for name, value in comparison.seconds.items()}
    prints = {
        one.name: one.fingerprint[:16] + (f", file {one.file_sha256[:16]}" if one.file_sha256 else "")
        for one in comparison.descriptors
    }
    sections = {
        "settings": {**comparison.settings, "seed": comparison.seed, "date": comparison.date},
        "time to describe": seconds,
        "fingerprints": prints,
        "versions": comparison.versions,
        "skipped": comparison.skipped,
        "photos": {str(index): name for index, name in enumerate(comparison.photos)},
    }
    return f"<div class=tables>{setting_tables(sections)}</div>"
