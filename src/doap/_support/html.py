"""Self-contained HTML pages: the style sheet of all pages, embedded pictures and tables of settings."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap._support.files import atomic_write

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2024; --soft: #646b73; --line: #e3e6e9; --baseline: #848b93;
  --ours: #0b66d8; --bits: #cf5b12; --first: #b3215c; --second: #08808f; --third: #6b46d6;
  --better: #11772d; --worse: #c2261d }
@media (prefers-color-scheme: dark) { :root { --paper: #15181c; --ink: #e6e9ec; --soft: #9aa2ab; --line: #2c3137;
  --baseline: #8b939c; --ours: #62a8ff; --bits: #ff9b52; --first: #ff7fae; --second: #45cbd9; --third: #b39bff;
  --better: #5ecb78; --worse: #ff857c } }
body { margin: 0 auto; max-width: 1080px; padding: 24px 20px 48px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 24px; line-height: 1.3; margin: 0 0 4px; text-wrap: balance }
h2 { font-size: 17px; margin: 40px 0 12px; border-top: 1px solid var(--line); padding-top: 12px }
h3 { font-size: 15px; margin: 28px 0 6px } a { color: var(--ours); text-decoration: none }
p { margin: 4px 0 12px; max-width: 75ch } .soft, small, th { color: var(--soft); font-weight: 400 }
.charts, .dots, .pictures, .panels { display: grid; gap: 12px }
.charts { gap: 20px 32px; grid-template-columns: repeat(auto-fill, minmax(min(100%, 400px), 1fr)) }
.dots { gap: 20px 32px; grid-template-columns: repeat(auto-fill, minmax(min(100%, 290px), 1fr)) }
.training { margin: 20px 0 } .training figure:nth-child(3) { grid-row: span 2 } figure { margin: 0; min-width: 0 }
figure > img { display: block; width: 100%; border-radius: 4px }
figcaption { font-weight: 600; font-size: 14px; overflow-wrap: anywhere } figcaption small { margin-left: 6px }
svg { display: block; width: 100%; height: auto; overflow: visible; font-size: 12px; fill: var(--soft) }
.charts svg { font-size: 11px } text { paint-order: stroke; stroke: var(--paper); stroke-width: 3px }
path { fill: none; stroke: var(--line); stroke-linejoin: round } path.raw { stroke: var(--ours); opacity: .35 }
text.strong { fill: var(--ink); font-weight: 600 } .ours { --own: var(--ours) } .first { --own: var(--first) }
.second { --own: var(--second) } .third { --own: var(--third) }
path.ours, path.first, path.second, path.third { stroke: var(--own); stroke-width: 2 }
text.ours, text.first, text.second, text.third { fill: var(--own); font-weight: 600 }
path.baseline { stroke: var(--baseline); stroke-width: 1.5; stroke-dasharray: 5 4 } circle { fill: var(--ours) }
path.other { stroke: var(--baseline); opacity: .4 } path.other:hover { stroke: var(--ink); stroke-width: 3; opacity: 1 }
path.lead { stroke: var(--baseline); opacity: .5 } path.reference { stroke: var(--baseline); stroke-dasharray: 3 3 }
circle:hover { stroke: var(--ours); stroke-width: 3 }
path.real { stroke: var(--ours); stroke-width: 2; opacity: .55 } rect.real { fill: var(--ours); rx: 4px }
path.binary { stroke: var(--bits); stroke-width: 2; opacity: .55 } rect.binary { fill: var(--bits) }
path.pipeline { stroke: var(--second); stroke-width: 2; opacity: .55 }
rect.pipeline { fill: var(--second); transform: rotate(45deg); transform-box: fill-box; transform-origin: center }
span.real { color: var(--ours) } span.binary { color: var(--bits) } span.pipeline { color: var(--second) }
td.better { color: var(--better) } td.worse { color: var(--worse) } td.better small, td.worse small { color: inherit }
.pictures { gap: 20px; margin-bottom: 20px; grid-template-columns: repeat(auto-fill, minmax(min(100%, 300px), 1fr)) }
/* Wider than the text, up to the width of the window. */
.panels { --wide: min(100vw - 40px, 1800px); gap: 16px; margin: 0 calc((100% - var(--wide)) / 2) 20px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 520px), 1fr)) }
span.own, span.common, span.rejected { font-weight: 600; padding: 0 4px; border-radius: 3px; background: #16181c }
span.own { color: #3cf050 } span.common { color: #4db1ff } span.rejected { color: #ff5c52 }
.pictures figure { display: grid; grid-auto-flow: column; grid-auto-columns: 1fr; gap: 2px 6px; font-size: 13px }
.pictures img { width: 100%; image-rendering: pixelated; border-radius: 3px } .pictures b { color: var(--bits) }
.tables { columns: 300px; column-gap: 32px } .wide { overflow-x: auto; margin: 0 0 12px }
table { break-inside: avoid; border-collapse: collapse; width: 100%; margin: 0 0 16px; font-size: 13px }
caption { text-align: left; font-weight: 600; padding: 2px 0 }
td, th { text-align: left; vertical-align: top; padding: 2px 12px 2px 0; border-top: 1px solid var(--line) }
td { font-variant-numeric: tabular-nums } .tables td, .tables th { overflow-wrap: anywhere } .tables th { width: 45% }
.wide table { width: auto; margin-bottom: 4px; font-size: 14px } .wide td small { font-size: 12px; margin-left: 6px }
.wide.many td small { display: block; margin: 0 }
.wide td, .wide th { padding: 4px 18px 4px 0; white-space: nowrap }
.wide thead th { border: 0; white-space: normal; vertical-align: bottom }
.wide th:first-child { position: sticky; left: 0; background: var(--paper); color: var(--ink) }
details { margin: 12px 0 } summary { cursor: pointer; color: var(--soft) }
details[open] > summary { margin-bottom: 8px }
@media (max-width: 480px) { .charts svg { font-size: 13px } .wide td, .wide th { padding-right: 12px }
  .wide th:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 90px }
  .wide td small { display: block; margin: 0 } }
"""


def write_html(out: Path, title: str, parts: Iterable[str]) -> Path:
    """Write one page atomically; `title` is plain text, `parts` are HTML."""
    head = f"<meta charset=utf-8><meta name=viewport content='width=device-width'><title>{escape(title)}</title>"
    page = f"<!doctype html><html lang=en>{head}<style>{STYLE}</style><body>{''.join(parts)}</body></html>\n"
    with atomic_write(out) as unfinished:
        unfinished.write_text(page, encoding="utf-8")
    return out


def patch_grid(patches: NDArray[np.uint8], captions: Iterable[Sequence[str]]) -> str:
    """Show rows of patches (N, n, S, S) side by side, each with its caption in HTML below it."""
    import cv2

    figures = []
    for row, texts in zip(patches, captions, strict=True):
        sources = (data_uri(cv2.imencode(".png", patch)[1].tobytes(), "png") for patch in row)
        cells = zip(sources, texts, strict=True)
        figures.append("".join(f"<div><img src='{source}' alt=''><br>{text}</div>" for source, text in cells))
    return f"<div class=pictures>{''.join(f'<figure>{figure}</figure>' for figure in figures)}</div>"


def setting_tables(values: Mapping[str, Any], name: str = "") -> str:
    """Show nested settings: a table of the plain values, then a table for each nested section."""
    rows = [(key, value) for key, value in values.items() if not isinstance(value, dict)]
    texts = [(key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) for key, value in rows]
    cells = "".join(f"<tr><th>{escape(key)}<td>{escape(text)}" for key, text in texts)
    table = f"<table><caption>{escape(name)}</caption>{cells}</table>" if rows else ""
    sections = {key: value for key, value in values.items() if isinstance(value, dict)}
    return table + "".join(setting_tables(value, f"{name}.{key}".lstrip(".")) for key, value in sections.items())


def data_uri(encoded: bytes, kind: str) -> str:
    """Return an encoded picture, `png` or `jpeg`, as the source of an `img` tag."""
    return f"data:image/{kind};base64,{base64.b64encode(encoded).decode()}"
