"""Image pairs with their matches: the same pair for several descriptors side by side."""

from __future__ import annotations

import base64
from html import escape

from doap.descriptor import SHIPPED
from doap.evaluation.pictures import Picture, read_pictures
from doap.evaluation.report.table import BenchmarkTable, Entry


def pair_pictures(table: BenchmarkTable) -> str:
    """Show the pictures of the best descriptor, of the reference and of the shipped descriptors; empty without any."""
    shown = [(entry, read_pictures(entry.path, entry.result.descriptor.name)) for entry in _shown(table)]
    titles = list(dict.fromkeys(picture.title for _, pictures in shown for picture in pictures))
    if not titles:
        return ""
    folds = []
    for number, title in enumerate(titles):
        figures = [
            _figure(entry.label, picture) for entry, pictures in shown for picture in pictures if picture.title == title
        ]
        opened = " open" if number == 0 else ""
        folds.append(
            f"<details{opened}><summary>{escape(title)}</summary><div class=charts>{''.join(figures)}</div></details>"
        )
    legend = "Green matches agree with the ground truth, red ones do not. At most 150 matches are drawn."
    return f"<h3>Image pairs</h3><p class=soft>{legend}</p>{''.join(folds)}"


def _shown(table: BenchmarkTable) -> list[Entry]:
    """Return the best entry, the reference and the shipped descriptors, in the order of the table."""
    wanted = {table.entries[0].label, *SHIPPED}
    if table.reference:
        wanted.add(table.reference.label)
    return [entry for entry in table.entries if entry.label in wanted]


def _figure(label: str, picture: Picture) -> str:
    source = f"data:image/jpeg;base64,{base64.b64encode(picture.jpeg).decode()}"
    caption = f"{escape(label)} <small>{escape(picture.caption)}</small>"
    return f"<figure><figcaption>{caption}</figcaption><img src='{source}' alt=''></figure>"
