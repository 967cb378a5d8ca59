"""The report of a run: one HTML file that needs nothing else, made from the log alone and never by computing anew.

It answers in this order: how good, against whom, does more training pay, what still goes wrong, and by which recipe.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import takewhile
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from doap.errors import DataError, check_shape
from doap.files import whole_file
from doap.training.charts import Curve, chart, clock, unit
from doap.training.log import Record, peer_scores, points, read_log, seconds_of

PEER_NAMES = {"sift": "SIFT", "rootsift": "RootSIFT"}
# A rise of the validation mAP over the last third that is worth training on for, in points (0.01 of mAP).
PAYS = 0.5
STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2024; --soft: #646b73; --line: #e3e6e9; --peer: #848b93;
  --ours: #0b66d8; --tile: #f5f7f9 }
@media (prefers-color-scheme: dark) { :root { --paper: #15181c; --ink: #e6e9ec; --soft: #9aa2ab; --line: #2c3137;
  --peer: #8b939c; --ours: #62a8ff; --tile: #1d2126 } }
body { margin: 0 auto; max-width: 1080px; padding: 24px 20px 48px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 24px; line-height: 1.3; margin: 0 0 4px; text-wrap: balance }
h2 { font-size: 17px; margin: 40px 0 12px; border-top: 1px solid var(--line); padding-top: 12px }
p { margin: 4px 0 12px; max-width: 75ch } .soft, small, th { color: var(--soft); font-weight: 400 }
.tiles, .charts, .errors { display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)) }
.tiles { margin: 20px 0 } .tiles div { background: var(--tile); border-radius: 8px; padding: 10px 14px }
.tiles b { display: block; font-size: 23px; line-height: 1.35; font-weight: 600 } .tiles small { display: block }
.charts { gap: 20px 32px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)) }
.training figure:first-child { grid-row: span 2 } figure { margin: 0 }
figcaption { font-weight: 600; font-size: 14px } figcaption small { margin-left: 6px }
svg { display: block; width: 100%; height: auto; overflow: visible; font-size: 12px; fill: var(--soft) }
path { fill: none; stroke: var(--line); stroke-linejoin: round } path.raw { stroke: var(--ours); opacity: .35 }
path.ours { stroke: var(--ours); stroke-width: 2 } text.ours { fill: var(--ours); font-weight: 600 }
path.peer { stroke: var(--peer); stroke-width: 1.5; stroke-dasharray: 5 4 } circle { fill: var(--ours) }
circle.quiet { opacity: 0 } circle:hover { opacity: 1; stroke: var(--ours); stroke-width: 3 }
.errors { gap: 20px; grid-template-columns: repeat(auto-fill, minmax(min(100%, 300px), 1fr)) }
.errors figure { display: grid; grid-template-columns: repeat(3, 1fr); gap: 2px 6px; font-size: 13px }
.errors img { width: 100%; image-rendering: pixelated; border-radius: 3px } .errors b { color: var(--ours) }
.tables { columns: 300px; column-gap: 32px } table { break-inside: avoid; border-collapse: collapse; width: 100%;
  margin: 0 0 16px; font-size: 13px } caption { text-align: left; font-weight: 600; padding: 2px 0 }
td, th { text-align: left; vertical-align: top; padding: 2px 12px 2px 0; border-top: 1px solid var(--line);
  overflow-wrap: anywhere } td { font-variant-numeric: tabular-nums } th { width: 45% }
"""


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
        _tiles(log),
        f"<h2>On held-out places</h2><div class=charts>{''.join(_validation_charts(log))}</div>",
        f"<h2>In training</h2><div class='charts training'>{''.join(_training_charts(log))}</div>",
        f"<h2>Hardest errors</h2>{_gallery(gallery)}" if gallery.exists() else "",
        f"<h2>Recipe</h2><div class=tables>{_tables(start.get('config', {}))}</div>",
        f"<h2>Run</h2><div class=tables>{_tables(ran)}</div>",
    ]
    head = f"<meta charset=utf-8><meta name=viewport content='width=device-width'><title>{escape(run.name)}</title>"
    page = f"<!doctype html><html lang=en>{head}<style>{STYLE}</style><body>{''.join(parts)}</body></html>\n"
    with whole_file(out) as unfinished:
        unfinished.write_text(page, encoding="utf-8")
    return out


def headline(log: Sequence[Record]) -> str:
    """The latest mAP, and whether it is above the best peer; `since` is when it last came from below."""
    scores, trained = points(log, "validation", "map"), seconds_of(log)
    if not scores:
        return f"No validation yet after {clock(trained)} of training" if trained else "Nothing trained yet"
    time, _, score = scores[-1]
    said = f"mAP {score:.3f} on held-out places after {clock(time)}"
    peers = peer_scores(log, "map")
    if not peers:
        return said
    name = max(peers, key=lambda peer: peers[peer])
    bar = f"{PEER_NAMES.get(name, name)} ({peers[name]:.3f})"
    if score <= peers[name]:
        return f"{said}: {'below' if score < peers[name] else 'level with'} {bar}"
    *_, (since, _, _) = takewhile(lambda point: point[2] > peers[name], reversed(scores))
    word, _, size = unit(since)
    return f"{said}: above {bar} since {word} {since / size:.3g}"


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
    tiles = [
        ("mAP", f"{scores[-1][2]:.3f}" if scores else "–", f"best {best[2]:.3f} at step {best[1]}" if scores else ""),
        ("FPR95", f"{errors[-1][2]:.3g}" if errors else "–", "" if at_best is None else f"{at_best:.3g} at best mAP"),
        ("steps", f"{log[-1]['step'] if log else 0:,}", ""),
        ("patches/s", f"{np.median(speeds):,.0f}" if speeds else "–", "median" if speeds else ""),
        ("training time", clock(seconds_of(log)), ""),
    ]
    return f"<div class=tiles>{''.join(f'<div>{n}<b>{v}</b><small>{more}</small></div>' for n, v, more in tiles)}</div>"


def _validation_charts(log: Sequence[Record]) -> list[str]:
    charts, end = [], seconds_of(log)
    for name, title, note in (("map", "mAP", "higher is better"), ("fpr95", "FPR95", "lower is better")):
        curves: list[Curve] = [("ours", "ours", points(log, "validation", name))]
        for peer, value in peer_scores(log, name).items():
            curves.append((PEER_NAMES.get(peer, peer), "peer", [(0.0, 0, value), (end, 0, value)]))
        values = [value for _, _, drawn in curves for _, _, value in drawn]
        decades = name == "fpr95" and bool(values) and 0 < 10 * min(values) <= max(values)
        charts.append(chart(title, note + (", log scale" if decades else ""), curves, end, log=decades))
    return charts


def _training_charts(log: Sequence[Record]) -> list[str]:
    losses, end = points(log, "train", "loss"), seconds_of(log)
    lost = sum(record["kind"] == "train" for record in log) - len(losses)
    # A mean over neighbours on both sides: one over the past alone would show each bend too late.
    reach = len(losses) // 30
    values = np.array([value for _, _, value in losses])
    means = [float(values[max(0, place - reach) : place + reach + 1].mean()) for place in range(len(values))]
    smooth = [(time, step, mean) for (time, step, _), mean in zip(losses, means, strict=True)]
    notes = [f"mean of {2 * reach + 1} lines, each one faint"] * (reach > 0) + [f"not finite in {lost}"] * (lost > 0)
    rates, speeds = points(log, "train", "learning_rate"), points(log, "train", "patches_per_second")
    return [
        chart("Loss", "; ".join(notes), [("", "raw", losses), ("loss", "ours", smooth)], end),
        chart("Learning rate", "", [("rate", "ours", rates)], end, small=True),
        chart("Speed", "patches/s", [("", "ours", speeds)], end, small=True),
    ]


def _gallery(path: Path) -> str:
    try:
        with np.load(path) as arrays:
            patches, distances = arrays["patches"], arrays["distances"]
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise DataError(f"{path}: expected arrays patches and distances, got {error}; make it again") from error
    number = check_shape(patches, "N 3 S S", name=f"{path}: patches")["N"]
    check_shape(distances, f"{number} 2", name=f"{path}: distances")
    cards = []
    for trio, (match, wrong) in zip(patches, distances, strict=True):
        words = zip(trio, ("query", f"match {match:.3g}", f"<b>wrong {wrong:.3g}</b>"), strict=True)
        cards.append("".join(f"<div><img src='{_png(patch)}' alt=''><br>{word}</div>" for patch, word in words))
    legend = "A query, its best match, and the wrong patch nearest to it; the numbers are distances to the query."
    figures = "".join(f"<figure>{card}</figure>" for card in cards)
    return f"<p class=soft>{legend}</p><div class=errors>{figures}</div>"


def _png(patch: NDArray[np.uint8]) -> str:
    import cv2

    done, png = cv2.imencode(".png", patch)
    assert done, "a uint8 picture can be encoded"
    return "data:image/png;base64," + base64.b64encode(png.tobytes()).decode()


def _tables(values: Mapping[str, Any], name: str = "") -> str:
    """A table of the plain values, then one of each section inside, however deep."""
    rows = [(key, value) for key, value in values.items() if not isinstance(value, dict)]
    texts = [(key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) for key, value in rows]
    cells = "".join(f"<tr><th>{escape(key)}<td>{escape(text)}" for key, text in texts)
    table = f"<table><caption>{escape(name.lstrip('.'))}</caption>{cells}</table>" if rows else ""
    return table + "".join(_tables(inner, f"{name}.{key}") for key, inner in values.items() if isinstance(inner, dict))
