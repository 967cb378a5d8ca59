"""The report of a run: one self-contained HTML file, written from the log and the gallery without computing anything.

It shows, in this order: the result and its comparison with the baselines, whether more training pays off, the worst
errors, and the recipe.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import takewhile
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from doap._support.checks import check_shape
from doap._support.errors import DataError
from doap._support.html import Axis, Line, line_chart, patch_grid, setting_tables, write_html
from doap._support.text import counted
from doap.training.log import Point, Record, baseline_scores, points, read_log, seconds_of

TITLES = {"sift": "SIFT", "rootsift": "RootSIFT"}
MIN_RISE = 0.5
"""Rise of the validation mAP over the last third of the run that makes more training pay off, in points."""


def write_training_page(run: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run atomically; also possible while the run continues.

    Args:
        run: Folder of the run, with `log.jsonl` and optionally `gallery.npz`. The gallery has `patches` (N, 3, S, S)
            uint8 (query, best match, nearest wrong patch) and `distances` (N, 2) from the query to these two.
        out: File to write; None for `report.html` in the folder.
    """
    run = Path(run).resolve()
    out = run / "report.html" if out is None else Path(out)
    log = read_log(run / "log.jsonl")
    gallery = run / "gallery.npz"
    start = next((record for record in reversed(log) if record["kind"] == "start"), {})
    environment = {name: value for name, value in start.items() if name not in ("kind", "step", "seconds", "config")}
    verdict, reason = outlook(log)
    parts = [
        f"<h1>{escape(headline(log))}</h1><p class=soft>{escape(_status(log))}</p>",
        f"<p><b>{verdict}.</b> {reason}</p>",
        *(f"<p><b>Warning.</b> {escape(text)}</p>" for text in warnings_of(log)),
        _tiles(log),
        f"<h2>Validation</h2><div class=charts>{''.join(_validation_charts(log))}</div>",
        f"<h2>Training</h2><div class='charts training'>{''.join(_training_charts(log))}</div>",
        f"<h2>Worst errors</h2>{_gallery(gallery)}" if gallery.exists() else "",
        f"<h2>Recipe</h2><div class=tables>{setting_tables(start.get('config', {}))}</div>",
        f"<h2>Environment</h2><div class=tables>{setting_tables(environment)}</div>",
    ]
    return write_html(out, run.name, parts)


def headline(log: Sequence[Record]) -> str:
    """Return the first and the latest mAP, steps, time, and the comparison with the best baseline."""
    scores, trained = points(log, "validation", "map"), seconds_of(log)
    if not scores:
        return f"No validation yet after {_clock(trained)} of training" if trained else "Not trained yet"
    time, steps, score = scores[-1]
    text = f"mAP {_change(scores)} on held-out scenes"
    if steps:
        text += f" after {counted(steps, 'step')} ({_clock(time)}, {_clock(time / steps)} per step)"
    baselines = baseline_scores(log, "map")
    if not baselines:
        return text
    name = max(baselines, key=lambda baseline: baselines[baseline])
    best = f"{TITLES.get(name, name)} ({baselines[name]:.3f})"
    if score <= baselines[name]:
        return f"{text}: {'below' if score < baselines[name] else 'equal to'} {best}"
    *_, (since, _, _) = takewhile(lambda point: point[2] > baselines[name], reversed(scores))
    word, _, size = _unit(since)
    return f"{text}: above {best} {f'since {word} {since / size:.3g}' if since else 'from the start'}"


def _change(scores: Sequence[Point]) -> str:
    """The first and the last score; the step of the first one if there is no score of the initial weights."""
    (_, step, first), (_, _, last) = scores[0], scores[-1]
    if len(scores) == 1:
        return f"{last:.3f}"
    return f"{first:.3f} {f'(step {step:,}) ' if step else ''}→ {last:.3f}"


def outlook(log: Sequence[Record]) -> tuple[str, str]:
    """Return whether more training pays off, and why, from a line fitted to the last third of the validation mAP.

    A rise counts if it is at least `MIN_RISE` and at least twice its standard error. Without one, the verdict
    distinguishes a flat curve from one that is too noisy.
    """
    scores = points(log, "validation", "map")
    last = [point for point in scores if point[0] >= scores[-1][0] * 2 / 3]
    if len(last) < 3:
        reason = f"A trend needs 3 validations in the last third of the training time, which has {len(last)}."
        return "Too early to predict whether more training pays off", reason
    minutes, rising = np.array([(time / 60, 100 * score) for time, _, score in last]).T
    (slope, _), covariance = np.polyfit(minutes, rising, 1, cov=True)
    error, length = math.sqrt(covariance[0, 0]), minutes[-1] - minutes[0]
    rise, doubt = slope * length, 2 * error * length
    if rise >= max(MIN_RISE, doubt):
        verdict = "Still rising"
    elif rise <= -max(MIN_RISE, doubt):
        verdict = "Falling: more training with these settings harms"
    elif doubt > MIN_RISE:
        verdict = "Too noisy to predict whether more training pays off"
    else:
        verdict = "Flat: more training with these settings will not pay off"
    reason = (
        f"Over the last third ({len(last)} validations), mAP changes by {10 * slope:+.2f} ± {10 * error:.2f} points "
        f"per 10 minutes, {rise:+.2f} in total. A rise counts from {MIN_RISE} points and twice its standard error."
    )
    rates = [rate for _, _, rate in points(log, "train", "learning_rate")]
    if rates and rates[-1] < max(rates) / 2:
        # The schedule bends the curve, so its end does not predict the result of a longer schedule.
        reason += (
            f" The learning rate has fallen to {rates[-1] / max(rates):.0%} of its peak, which also affects the trend."
        )
    return verdict, reason


def warnings_of(log: Sequence[Record]) -> list[str]:
    """Return the warnings of a run, without the repetitions of resumed runs."""
    return list(dict.fromkeys(record.get("text", "") for record in log if record["kind"] == "warning"))


def _status(log: Sequence[Record]) -> str:
    if not log:
        return "The log is empty."
    step = log[-1]["step"]
    complete = log[-1]["kind"] == "end"
    text = f"Complete after {step} steps." if complete else f"At step {step}; not complete: running or stopped."
    resumed = [str(record["step"]) for record in log if record["kind"] == "start" and record["step"]]
    return text + (f" Resumed at step {', '.join(resumed)}." if resumed else "")


def _tiles(log: Sequence[Record]) -> str:
    scores, errors = points(log, "validation", "map"), points(log, "validation", "fpr95")
    speeds = [speed for _, _, speed in points(log, "train", "patches_per_second")]
    best = max(scores, key=lambda point: point[2], default=(0.0, 0, 0.0))
    at_best = next((error for _, step, error in errors if step == best[1]), None)
    steps = log[-1]["step"] if log else 0
    regression = [record for record in log if None not in (record.get("before"), record.get("after"))]
    tiles = [
        ("mAP", f"{scores[-1][2]:.3f}" if scores else "–", f"best {best[2]:.3f} at step {best[1]}" if scores else ""),
        ("FPR95", f"{errors[-1][2]:.3g}" if errors else "–", "" if at_best is None else f"{at_best:.3g} at best mAP"),
        *(("regression set", f"{one['after']:.3f}", f"mAP {one['before']:.3f} before") for one in regression[-1:]),
        ("steps", f"{steps:,}", f"{_clock(seconds_of(log) / steps)} each" if steps else ""),
        ("patches/s", f"{np.median(speeds):,.0f}" if speeds else "–", "median" if speeds else ""),
        ("training time", _clock(seconds_of(log)), ""),
    ]
    return f"<div class=tiles>{''.join(f'<div>{n}<b>{v}</b><small>{more}</small></div>' for n, v, more in tiles)}</div>"


def _validation_charts(log: Sequence[Record]) -> list[str]:
    charts, axis = [], _time_axis(log)
    for metric, title, note in (("map", "mAP", "higher is better"), ("fpr95", "FPR95", "lower is better")):
        scores = points(log, "validation", metric)
        lines = [_line("ours", "ours", scores, log)] if scores else []
        for name, value in baseline_scores(log, metric).items() if scores else ():
            label = f"{TITLES.get(name, name)} {_short(value)}"
            lines.append(Line(label, "baseline", [(0.0, value), (axis.high or 0.0, value)]))
        values = [value for line in lines for _, value in line.points]
        decades = metric == "fpr95" and bool(values) and 0 < 10 * min(values) <= max(values)
        scale = Axis(base=10 if decades else None)
        charts.append(line_chart(title, note + (", log scale" if decades else ""), lines, axis, scale))
    return charts


def _training_charts(log: Sequence[Record]) -> list[str]:
    losses, axis = points(log, "train", "loss"), _time_axis(log)
    not_finite = sum(record["kind"] == "train" for record in log) - len(losses)
    # A centred moving average: one over past values only would show each bend too late.
    reach = len(losses) // 30
    values = np.array([value for _, _, value in losses])
    means = [float(values[max(0, index - reach) : index + reach + 1].mean()) for index in range(len(values))]
    smooth = [(time, step, mean) for (time, step, _), mean in zip(losses, means, strict=True)]
    notes = []
    if reach:
        notes.append(f"mean of {2 * reach + 1} values; single values are faint")
    if not_finite:
        notes.append(f"not finite in {not_finite}")
    raw = Line("", "raw", _line("", "", losses, log).points)
    rates, speeds = points(log, "train", "learning_rate"), points(log, "train", "patches_per_second")
    return [
        line_chart("Loss", "; ".join(notes), [raw, _line("loss", "ours", smooth, log)], axis, Axis()),
        line_chart("Learning rate", "", [_line("rate", "ours", rates, log)], axis, Axis(low=0), height=80),
        line_chart("Speed", "patches/s", [_line("", "ours", speeds, log)], axis, Axis(low=0), height=80),
    ]


def _line(name: str, style: str, drawn: Sequence[Point], log: Sequence[Record]) -> Line:
    """A line over the training time, in the unit of `_time_axis`, labelled with its last value."""
    size = _unit(seconds_of(log))[2]
    marks = [f"{value:.4g} after {_clock(time)}, step {step}" for time, step, value in drawn]
    label = f"{name} {_short(drawn[-1][2])}" if drawn else name
    return Line(label, style, [(time / size, value) for time, _, value in drawn], marks)


def _time_axis(log: Sequence[Record]) -> Axis:
    """The training time, the same axis in all charts."""
    word, _, size = _unit(seconds_of(log))
    return Axis(f"{word}s", 0.0, seconds_of(log) / size)


def _gallery(path: Path) -> str:
    try:
        with np.load(path) as arrays:
            patches, distances = arrays["patches"], arrays["distances"]
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise DataError(f"{path}: expected arrays patches and distances, got {error}; remove the file") from error
    number = check_shape(patches, "N 3 S S", name=f"{path}: patches")["N"]
    check_shape(distances, f"{number} 2", name=f"{path}: distances")
    captions = [("query", f"match {match:.3g}", f"<b>wrong {wrong:.3g}</b>") for match, wrong in distances]
    legend = "A query, its best match, and the nearest wrong patch. The numbers are distances to the query."
    return f"<p class=soft>{legend}</p>{patch_grid(patches, captions)}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _unit(seconds: float) -> tuple[str, str, int]:
    """A readable unit for a duration: its name, its symbol and its length in seconds."""
    if seconds < 180:
        return "second", "s", 1
    return ("minute", "min", 60) if seconds < 3 * 3600 else ("hour", "h", 3600)


def _clock(seconds: float) -> str:
    _, symbol, size = _unit(seconds)
    return f"{seconds / size:.3g} {symbol}"
