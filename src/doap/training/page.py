"""The report of a run: one HTML file that needs nothing else, made from the log alone and never by computing anew.

It answers in this order: how good, against whom, does more training pay, what still goes wrong, and by which recipe.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import takewhile
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from doap.checks import check_shape
from doap.errors import DataError
from doap.html import Axis, Line, line_chart, patch_grid, setting_tables, write_html
from doap.training.log import Point, Record, peer_scores, points, read_log, seconds_of

PEER_NAMES = {"sift": "SIFT", "rootsift": "RootSIFT"}
# A rise of the validation mAP over the last third that is worth training on for, in points (0.01 of mAP).
PAYS = 0.5


def write_page(run: Path, out: Path | None = None) -> Path:
    """Write the report of a run, whole or not at all; at any time, also while the run goes on.

    Args:
        run: its folder, with `log.jsonl` and perhaps `gallery.npz`: `patches` (N, 3, S, S) uint8, a query, its best
            match and the wrong patch nearest to it; `distances` (N, 2), from the query to these two.
        out: the file to write; `report.html` in the folder if None.
    """
    run = Path(run).resolve()
    out = run / "report.html" if out is None else Path(out)
    log = read_log(run / "log.jsonl")
    gallery = run / "gallery.npz"
    start = next((record for record in reversed(log) if record["kind"] == "start"), {})
    ran = {name: value for name, value in start.items() if name not in ("kind", "step", "seconds", "config")}
    verdict, reason = outlook(log)
    parts = [
        f"<h1>{escape(headline(log))}</h1><p class=soft>{escape(_status(log))}</p>",
        f"<p><b>{verdict}.</b> {reason}</p>",
        *(f"<p><b>Warning.</b> {escape(text)}</p>" for text in warnings_of(log)),
        _tiles(log),
        f"<h2>On held-out places</h2><div class=charts>{''.join(_validation_charts(log))}</div>",
        f"<h2>In training</h2><div class='charts training'>{''.join(_training_charts(log))}</div>",
        f"<h2>Hardest errors</h2>{_gallery(gallery)}" if gallery.exists() else "",
        f"<h2>Recipe</h2><div class=tables>{setting_tables(start.get('config', {}))}</div>",
        f"<h2>Run</h2><div class=tables>{setting_tables(ran)}</div>",
    ]
    return write_html(out, run.name, parts)


def headline(log: Sequence[Record]) -> str:
    """The latest mAP, and whether it is above the best peer; `since` is when it last came from below."""
    scores, trained = points(log, "validation", "map"), seconds_of(log)
    if not scores:
        return f"No validation yet after {_clock(trained)} of training" if trained else "Nothing trained yet"
    time, _, score = scores[-1]
    said = f"mAP {score:.3f} on held-out places after {_clock(time)}"
    if scores[0][1] == 0 < time:
        said += f", from {scores[0][2]:.3f}"
    peers = peer_scores(log, "map")
    if not peers:
        return said
    name = max(peers, key=lambda peer: peers[peer])
    bar = f"{PEER_NAMES.get(name, name)} ({peers[name]:.3f})"
    if score <= peers[name]:
        return f"{said}: {'below' if score < peers[name] else 'level with'} {bar}"
    *_, (since, _, _) = takewhile(lambda point: point[2] > peers[name], reversed(scores))
    word, _, size = _unit(since)
    return f"{said}: above {bar} {f'since {word} {since / size:.3g}' if since else 'from the start'}"


def outlook(log: Sequence[Record]) -> tuple[str, str]:
    """Whether more training still pays, and why: a line fitted to the validation mAP over the last third of the time.

    The rule asks for a rise that is both worth having and larger than twice its standard error, and tells a curve that
    is flat from one too noisy to judge.
    """
    scores = points(log, "validation", "map")
    last = [point for point in scores if point[0] >= scores[-1][0] * 2 / 3]
    if len(last) < 3:
        reason = f"A trend needs 3 validations, and the last third of the time has {len(last)}."
        return "Too early to say whether more training pays", reason
    minutes, rising = np.array([(time / 60, 100 * score) for time, _, score in last]).T
    (slope, _), covariance = np.polyfit(minutes, rising, 1, cov=True)
    error, length = math.sqrt(covariance[0, 0]), minutes[-1] - minutes[0]
    rise, doubt = slope * length, 2 * error * length
    if rise >= max(PAYS, doubt):
        verdict = "Still rising"
    elif rise <= -max(PAYS, doubt):
        verdict = "Falling: more of the same harms"
    elif doubt > PAYS:
        verdict = "Too noisy to say whether more training pays"
    else:
        verdict = "Flat: more of the same will not pay"
    reason = (
        f"Over the last third ({len(last)} validations) mAP changes by {10 * slope:+.2f} ± {10 * error:.2f} points per "
        f"10 minutes, {rise:+.2f} in all. Rising means {PAYS} or more in all, and more than twice the standard error."
    )
    rates = [rate for _, _, rate in points(log, "train", "learning_rate")]
    if rates and rates[-1] < max(rates) / 2:
        # The schedule bends the curve then, so that its end does not tell what a longer schedule would give.
        reason += (
            f" The learning rate is down to {rates[-1] / max(rates):.0%} of its peak, which shapes this trend too."
        )
    return verdict, reason


def warnings_of(log: Sequence[Record]) -> list[str]:
    """What the run warned of, each once however often it was resumed."""
    return list(dict.fromkeys(record["text"] for record in log if record["kind"] == "warning"))


def _status(log: Sequence[Record]) -> str:
    if not log:
        return "The log is empty."
    step = log[-1]["step"]
    said = f"Ended at step {step}." if log[-1]["kind"] == "end" else f"At step {step}; not ended: going on, or stopped."
    resumed = [str(record["step"]) for record in log if record["kind"] == "start" and record["step"]]
    return said + (f" Resumed at step {', '.join(resumed)}." if resumed else "")


def _tiles(log: Sequence[Record]) -> str:
    scores, errors = points(log, "validation", "map"), points(log, "validation", "fpr95")
    speeds = [speed for _, _, speed in points(log, "train", "patches_per_second")]
    best = max(scores, key=lambda point: point[2], default=(0.0, 0, 0.0))
    at_best = next((error for _, step, error in errors if step == best[1]), None)
    elsewhere = [record for record in log if record["kind"] == "general"]
    tiles = [
        ("mAP", f"{scores[-1][2]:.3f}" if scores else "–", f"best {best[2]:.3f} at step {best[1]}" if scores else ""),
        ("FPR95", f"{errors[-1][2]:.3g}" if errors else "–", "" if at_best is None else f"{at_best:.3g} at best mAP"),
        *(("mAP elsewhere", f"{one['after']:.3f}", f"{one['before']:.3f} before") for one in elsewhere[-1:]),
        ("steps", f"{log[-1]['step'] if log else 0:,}", ""),
        ("patches/s", f"{np.median(speeds):,.0f}" if speeds else "–", "median" if speeds else ""),
        ("training time", _clock(seconds_of(log)), ""),
    ]
    return f"<div class=tiles>{''.join(f'<div>{n}<b>{v}</b><small>{more}</small></div>' for n, v, more in tiles)}</div>"


def _validation_charts(log: Sequence[Record]) -> list[str]:
    charts, axis = [], _time_axis(log)
    for name, title, note in (("map", "mAP", "higher is better"), ("fpr95", "FPR95", "lower is better")):
        judged = points(log, "validation", name)
        lines = [_line("ours", "ours", judged, log)] if judged else []
        for peer, value in peer_scores(log, name).items() if judged else ():
            label = f"{PEER_NAMES.get(peer, peer)} {_short(value)}"
            lines.append(Line(label, "baseline", [(0.0, value), (axis.high or 0.0, value)]))
        values = [value for line in lines for _, value in line.points]
        decades = name == "fpr95" and bool(values) and 0 < 10 * min(values) <= max(values)
        scale = Axis(base=10 if decades else None)
        charts.append(line_chart(title, note + (", log scale" if decades else ""), lines, axis, scale))
    return charts


def _training_charts(log: Sequence[Record]) -> list[str]:
    losses, axis = points(log, "train", "loss"), _time_axis(log)
    lost = sum(record["kind"] == "train" for record in log) - len(losses)
    # A mean over neighbours on both sides: one over the past alone would show each bend too late.
    reach = len(losses) // 30
    values = np.array([value for _, _, value in losses])
    means = [float(values[max(0, place - reach) : place + reach + 1].mean()) for place in range(len(values))]
    smooth = [(time, step, mean) for (time, step, _), mean in zip(losses, means, strict=True)]
    notes = [f"mean of {2 * reach + 1} lines, each one faint"] * (reach > 0) + [f"not finite in {lost}"] * (lost > 0)
    raw = Line("", "raw", _line("", "", losses, log).points)
    rates, speeds = points(log, "train", "learning_rate"), points(log, "train", "patches_per_second")
    return [
        line_chart("Loss", "; ".join(notes), [raw, _line("loss", "ours", smooth, log)], axis, Axis()),
        line_chart("Learning rate", "", [_line("rate", "ours", rates, log)], axis, Axis(low=0), height=80),
        line_chart("Speed", "patches/s", [_line("", "ours", speeds, log)], axis, Axis(low=0), height=80),
    ]


def _line(name: str, style: str, drawn: Sequence[Point], log: Sequence[Record]) -> Line:
    """A line over the time trained, in the unit of `_time_axis`, with its last value as its label."""
    size = _unit(seconds_of(log))[2]
    marks = [f"{value:.4g} after {_clock(time)}, step {step}" for time, step, value in drawn]
    label = f"{name} {_short(drawn[-1][2])}" if drawn else name
    return Line(label, style, [(time / size, value) for time, _, value in drawn], marks)


def _time_axis(log: Sequence[Record]) -> Axis:
    """From the start to the end of training, the same in all charts."""
    word, _, size = _unit(seconds_of(log))
    return Axis(f"{word}s", 0.0, seconds_of(log) / size)


def _gallery(path: Path) -> str:
    try:
        with np.load(path) as arrays:
            patches, distances = arrays["patches"], arrays["distances"]
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise DataError(f"{path}: expected arrays patches and distances, got {error}; make it again") from error
    number = check_shape(patches, "N 3 S S", name=f"{path}: patches")["N"]
    check_shape(distances, f"{number} 2", name=f"{path}: distances")
    words = [("query", f"match {match:.3g}", f"<b>wrong {wrong:.3g}</b>") for match, wrong in distances]
    legend = "A query, its best match, and the wrong patch nearest to it; the numbers are distances to the query."
    return f"<p class=soft>{legend}</p>{patch_grid(patches, words)}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _unit(seconds: float) -> tuple[str, str, int]:
    """The unit that keeps a time readable: its word, its sign and its seconds."""
    if seconds < 180:
        return "second", "s", 1
    return ("minute", "min", 60) if seconds < 3 * 3600 else ("hour", "h", 3600)


def _clock(seconds: float) -> str:
    _, sign, size = _unit(seconds)
    return f"{seconds / size:.3g} {sign}"
