"""The comparison as one HTML file: the answer, the figures behind it, what it looks like, and the rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from doap.evaluation.compare.comparison import Comparison
from doap.evaluation.compare.overlaps import JOINED, JOINED_SHARE, Drawn
from doap.evaluation.compare.stage import FEWEST, Contest, Stage
from doap.evaluation.report.comparison import number
from doap.evaluation.report.tables import bounds
from doap.evaluation.result import DescriptorInfo
from doap.html import Axis, Whisker, data_uri, dot_chart, setting_tables, write_html

RULE = f"""
<p>Two figures decide, each by the 95 % interval of the difference between the candidate and the best of the others on
the same photos, never by a mean alone: verified inliers in pairs that overlap, and AP in made-up views. The interval
comes from resampling photos: pairs that share one are not independent.</p>
<ul><li><b>Mixed</b>: better in one and worse in the other.
<li><b>Stay</b>: worse in one or both.
<li><b>Switch</b>: better in overlapping pairs; or in made-up views, if too few photos overlap to tell.
<li><b>No difference</b>: all else. With fewer than {FEWEST} photos nothing is decided.</ul>
<p>Better in made-up views alone is not enough where photos overlap: descriptors are trained on such views, and photos
are what they are for. A pair overlaps if any of the descriptors finds {JOINED} inliers or more that are
{JOINED_SHARE * 100:.0f} % or more of its matches; photos of different places may have up to 50, by chance. A
reconstruction is one number without an interval: it is told, and decides nothing.</p>
"""


def write_page(comparison: Comparison, drawn: Sequence[Drawn], out: Path) -> Path:
    """Write the page, whole or not at all."""
    answer, _, why = comparison.verdict.sentence.partition(": ")
    candidate = comparison.descriptors[0].name
    parts = [
        f"<h1>{escape(answer)}</h1>{_reasons(why)}",
        f"<p class=soft>{escape(_looked_at(comparison))}</p>",
        _table(comparison),
        *(_stage(stage, comparison.descriptors) for stage in (comparison.pairs, comparison.views)),
        _models(comparison),
        _pictures(drawn),
        f"<h2>The rule</h2>{RULE}",
        f"<details><summary>Settings, checksums, versions</summary>{_provenance(comparison)}</details>",
    ]
    return write_html(out, f"{answer}: {candidate} on {len(comparison.photos)} photos", parts)


def _reasons(why: str) -> str:
    """The clauses of the sentence, one to a line."""
    return f"<ul>{''.join(f'<li>{escape(clause)}' for clause in _clauses(why))}</ul>"


def _clauses(why: str) -> list[str]:
    """At semicolons outside brackets."""
    parts, depth = [""], 0
    for sign in why.removesuffix("."):
        depth += (sign == "(") - (sign == ")")
        if sign == ";" and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def _looked_at(comparison: Comparison) -> str:
    said = f"{len(comparison.photos)} of {comparison.given} photos were judged on"
    if comparison.left_out:
        said += f"; left out: {', '.join(comparison.left_out)} (why is told below)"
    return f"{said}. All descriptors saw the same keypoints, in one run."


def _table(comparison: Comparison) -> str:
    """Descriptors down, the candidate first; what decides and what it costs across."""
    stages = [stage for stage in (comparison.pairs, comparison.views) if stage.deciding]
    rows = []
    for one in comparison.descriptors:
        cells = [_cell(stage.deciding, one.name) for stage in stages if stage.deciding]
        ratio = comparison.seconds[one.name] / comparison.seconds[comparison.descriptors[0].name]
        rows.append([one.name, *cells, f"{one.bytes:,}", f"× {ratio:.2g}"])
    heads = ["descriptor", *(f"{next(iter(stage.contests))} ↑" for stage in stages), "bytes ↓", "time ↓"]
    legend = "Beside a figure its 95 % interval, by resampling photos; best in bold. Intervals of two descriptors may "
    legend += "overlap although they differ on nearly every photo: it is the differences below that decide. Time is "
    legend += f"that of describing the same keypoints, over that of {comparison.descriptors[0].name}."
    return f"{_rows(heads, rows)}<p class=soft>{escape(legend)}</p>"


def _cell(contest: Contest, name: str) -> str:
    total = contest.totals[name]
    best = total.value == max(one.value for one in contest.totals.values())
    value = f"<b>{number(total.value)}</b>" if best else number(total.value)
    return f"{value}<small>{bounds(total)}</small>"


def _rows(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the first of a row is plain text, the others are HTML."""
    head = "".join(f"<th>{escape(name)}" for name in heads)
    body = "".join(f"<tr><th>{escape(name)}{''.join(f'<td>{cell}' for cell in cells)}" for name, *cells in rows)
    return f"<div class=wide><table><thead><tr>{head}</thead><tbody>{body}</tbody></table></div>"


def _stage(stage: Stage, descriptors: Sequence[DescriptorInfo]) -> str:
    head = f"<h2>{escape(stage.what.capitalize())} <small>{escape(stage.note)}</small></h2>"
    if stage.deciding is None:
        return head
    kinds = {one.name: one.kind for one in descriptors}
    decides, *others = (_charts(figure, contest, kinds) for figure, contest in stage.contests.items())
    legend = f"Right of the dashed line {descriptors[0].name} is better on the same photos, left of it worse."
    more = f"<details><summary>{escape(', '.join([*stage.contests][1:]))}</summary>{''.join(others)}</details>"
    return f"{head}<p class=soft>{escape(legend)}</p>{decides}{more}"


def _charts(figure: str, contest: Contest, kinds: Mapping[str, str]) -> str:
    """The means, and the differences from the candidate."""
    candidate = next(iter(contest.values))
    means, gains = (
        [Whisker(name, kinds[name], one.value, one.low, one.high, strong=name == strong) for name, one in some.items()]
        for some, strong in ((contest.totals, candidate), (contest.gains, contest.rival))
    )
    # The line at no difference is always in sight.
    axis = Axis().spanning([0.0, *(end for one in contest.gains.values() for end in (one.low, one.high))])
    apart = dot_chart(f"{candidate} minus …", f"{figure}, paired", gains, axis, 0.0)
    return f"<div class=dots>{dot_chart(figure, 'mean', means, Axis())}{apart}</div>"


def _models(comparison: Comparison) -> str:
    heads = ["descriptor", "photos registered", "points", "track length", "reprojection error"]
    rows = []
    for name, model in comparison.models.items():
        error = "–" if model.reprojection_error is None else f"{model.reprojection_error:.2f} px"
        rows.append([name, f"{model.registered:,}", f"{model.points:,}", f"{model.track_length:.2f}", error])
    head = f"<h2>Reconstruction <small>{escape(comparison.models_note)}</small></h2>"
    return head + (_rows(heads, rows) if rows else "")


def _pictures(drawn: Sequence[Drawn]) -> str:
    if not drawn:
        return ""
    parts = ["<h2>What it looks like</h2><p class=soft>Green matches agree with one geometry, red ones do not.</p>"]
    for pair in drawn:
        pictures = "".join(
            f"<figure><img src='{data_uri(pixels, '.jpg')}' alt='matches of {escape(name)}'></figure>"
            for name, pixels in pair.pictures.items()
        )
        parts.append(f"<h3>{escape(pair.title)}</h3><div class=charts>{pictures}</div>")
    return "".join(parts)


def _provenance(comparison: Comparison) -> str:
    seconds = {name: f"{value:.3g} s per 1,000 keypoints" for name, value in comparison.seconds.items()}
    prints = {
        one.name: one.fingerprint[:16] + (f", file {one.file_sha256[:16]}" if one.file_sha256 else "")
        for one in comparison.descriptors
    }
    told = {
        "settings": {**comparison.settings, "seed": comparison.seed, "date": comparison.date},
        "time to describe": seconds,
        "fingerprints": prints,
        "versions": comparison.versions,
        "left out": comparison.left_out,
        "photos": {str(place): name for place, name in enumerate(comparison.photos)},
    }
    return f"<div class=tables>{setting_tables(told)}</div>"
