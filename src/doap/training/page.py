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

from doap._support.charts import Axis, Line, line_chart
from doap._support.checks import check_shape
from doap._support.errors import DataError
from doap._support.html import patch_grid, setting_tables, write_html
from doap._support.text import counted
from doap.training.log import Point, Record, points, read_log

TITLES = {"sift": "SIFT", "rootsift": "RootSIFT"}
MIN_RISE = 0.5
"""Rise of the validation mAP over the last third of the run that makes more training pay off, in points."""


def write_training_page(run: str | Path) -> Path:
    """Write `report.html` in the folder of a run, atomically; also possible while the run continues.

    It shows `log.jsonl` and, if it exists, `gallery.npz`, which has `patches` (N, 3, S, S) uint8 (query, best match,
    nearest wrong patch) and `distances` (N, 2) from the query to these two.
    """
    run = Path(run).resolve()
    log, gallery = read_log(run / "log.jsonl"), run / "gallery.npz"
    start = next((record for record in reversed(log) if record["kind"] == "start"), {})
    environment = {name: value for name, value in start.items() if name not in ("kind", "step", "seconds", "config")}
    verdict, reason = outlook(log)
    warnings = dict.fromkeys(record.get("text", "") for record in log if record["kind"] == "warning")
    parts = [
        f"<h1>{escape(headline(log))}</h1><p class=soft>{escape(_status(log))}</p>",
        f"<p><b>{verdict}.</b> {reason}</p>",
        *(f"<p><b>Warning.</b> {escape(text)}</p>" for text in warnings),
        f"<div class='charts training'>{''.join(_charts(log))}</div>",
        f"<h2>Worst errors</h2>{_gallery(gallery)}" if gallery.exists() else "",
        f"<h2>Recipe</h2><div class=tables>{setting_tables(start.get('config', {}))}</div>",
        f"<h2>Environment</h2><div class=tables>{setting_tables(environment)}</div>",
    ]
    return write_html(run / "report.html", run.name, parts)


def headline(log: Sequence[Record]) -> str:
    """Return the first and the latest mAP, steps, time, and the comparison with the best baseline."""
    scores, trained = points(log, "validation", "map"), _seconds(log)
    if not scores:
        return f"No validation yet after {_clock(trained)} of training" if trained else "Not trained yet"
    (_, first_step, first), (time, steps, score) = scores[0], scores[-1]
    text = f"mAP {score:.3f} on held-out scenes"
    if len(scores) > 1:
        text = f"mAP {first:.3f} {f'(step {first_step:,}) ' if first_step else ''}→ {score:.3f} on held-out scenes"
    if steps:
        text += f" after {counted(steps, 'step')} ({_clock(time)}, {_clock(time / steps)} per step)"
    baselines = _baselines(log, "map")
    if not baselines:
        return text
    name = max(baselines, key=lambda baseline: baselines[baseline])
    best = f"{TITLES.get(name, name)} ({baselines[name]:.3f})"
    if score <= baselines[name]:
        return f"{text}: {'below' if score < baselines[name] else 'equal to'} {best}"
    *_, (since, _, _) = takewhile(lambda point: point[2] > baselines[name], reversed(scores))
    word, _, size = _unit(since)
    return f"{text}: above {best} {f'since {word} {since / size:.3g}' if since else 'from the start'}"


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
    return verdict, (
        f"Over the last third ({len(last)} validations), mAP changes by {10 * slope:+.2f} ± {10 * error:.2f} points "
        f"per 10 minutes, {rise:+.2f} in total. A rise counts from {MIN_RISE} points and twice its standard error. "
        "A learning rate that falls to zero flattens the end of the curve too."
    )


def _status(log: Sequence[Record]) -> str:
    if not log:
        return "The log is empty."
    step = log[-1]["step"]
    complete = log[-1]["kind"] == "end"
    text = f"Complete after {step} steps." if complete else f"At step {step}; not complete: running or stopped."
    resumed = [str(record["step"]) for record in log if record["kind"] == "start" and record["step"]]
    regression = [record for record in log if None not in (record.get("before"), record.get("after"))]
    text += "".join(f" Regression set: mAP {one['before']:.3f} → {one['after']:.3f}." for one in regression[-1:])
    return text + (f" Resumed at step {', '.join(resumed)}." if resumed else "")


def _charts(log: Sequence[Record]) -> list[str]:
    """Draw the curves of validation and training over the training time."""
    word, _, size = _unit(_seconds(log))
    axis = Axis(f"{word}s", 0.0, _seconds(log) / size)

    def line(name: str, drawn: Sequence[Point]) -> Line:
        marks = [f"{value:.4g} after {_clock(time)}, step {step}" for time, step, value in drawn]
        label = f"{name} {_short(drawn[-1][2])}" if drawn else name
        return Line(label, "ours", [(time / size, value) for time, _, value in drawn], marks)

    charts = []
    for metric, title, note in (("map", "mAP", "higher is better"), ("fpr95", "FPR95", "lower is better")):
        lines = [line("ours", points(log, "validation", metric))]
        for name, value in _baselines(log, metric).items():
            label = f"{TITLES.get(name, name)} {_short(value)}"
            lines.append(Line(label, "baseline", [(0.0, value), (axis.high or 0.0, value)]))
        charts.append(line_chart(title, note, lines, axis, Axis()))
    losses = points(log, "train", "loss")
    # A centred moving average: one over past values only would show each bend too late.
    reach = len(losses) // 30
    values = np.array([value for _, _, value in losses])
    means = [float(values[max(0, index - reach) : index + reach + 1].mean()) for index in range(len(values))]
    smooth = [(time, step, mean) for (time, step, _), mean in zip(losses, means, strict=True)]
    note = f"mean of {2 * reach + 1} values; single values are faint" if reach else ""
    raw = Line("", "raw", [(time / size, value) for time, _, value in losses])
    charts.append(line_chart("Loss", note, [raw, line("loss", smooth)], axis, Axis()))
    rates, speeds = points(log, "train", "learning_rate"), points(log, "train", "patches_per_second")
    charts.append(line_chart("Learning rate", "", [line("rate", rates)], axis, Axis(low=0), height=80))
    charts.append(line_chart("Speed", "patches/s", [line("", speeds)], axis, Axis(low=0), height=80))
    return charts


def _baselines(log: Sequence[Record], metric: str) -> dict[str, float]:
    """Return the `map` or `fpr95` of each baseline, from the latest start."""
    baselines: Record = next((record["baselines"] for record in reversed(log) if record.get("baselines")), {})
    return {name: float(scores[metric]) for name, scores in baselines.items() if scores.get(metric) is not None}


def _seconds(log: Sequence[Record]) -> float:
    """Return the training time so far."""
    return float(next((record["seconds"] for record in reversed(log) if record.get("seconds")), 0))


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
