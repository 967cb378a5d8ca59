"""Markdown that the tools generate."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

MIN_UNITS = 5
"""Figures over fewer scenes or sequences are shown without intervals."""


def paragraph(text: str) -> str:
    """Return a text with its lines wrapped at 120 characters."""
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def replace_generated(text: str, tool: str, contents: dict[str, str]) -> str:
    """Replace the generated parts of a page.

    A part stands between `<!-- NAME: written by TOOL -->` and `<!-- end of NAME -->`. Parts that the page does not have
    are skipped.
    """
    for name, content in contents.items():
        begin, end = f"<!-- {name}: written by {tool} -->", f"<!-- end of {name} -->"
        part = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
        text = part.sub(lambda _, new=f"{begin}\n{content}\n{end}": new, text)
    return text
