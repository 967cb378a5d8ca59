"""Write the figures that sentences quote from the results: `python scripts/figures.py`.

A number in a page is followed by a comment that says where it comes from:

    doap-128 has 66.7<!--% evaluation/pose-scenes: doap-128 > AUC@10 --> per cent

The comment begins with `%` for per cent, or with `=` for the value itself. `evaluation/pose-scenes` is a file in
results/, and the words behind the colon are keys; `name=AP` selects the row of a list whose key `name` has the value
`AP`. `a − b` and `a ÷ b` are the difference and the ratio of two values of one file. The value is written with the
decimals, the sign and the thousands separators that the number has already.
"""

from __future__ import annotations

import json
import operator
import re
from functools import cache
from pathlib import Path
from typing import Any

from doap.evaluation.result import FORMAT, read_results

ROOT = Path(__file__).resolve().parents[1]
QUOTED = re.compile(
    r"(?P<number>[+−]?\d[\d,]*(?:\.\d+)?)(?P<comment><!--(?P<unit>[%=]) (?P<file>\S+): (?P<keys>.+?) -->)"
)

OPERATORS = {"−": operator.sub, "÷": operator.truediv}


def main() -> None:
    for page in pages():
        page.write_text(replace_figures(page.read_text(encoding="utf-8")), encoding="utf-8")


def pages() -> list[Path]:
    """Return all pages that may quote figures."""
    return [
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "scripts" / "notes").glob("*.md")),
    ]


def replace_figures(text: str) -> str:
    """Replace all numbers with a comment by the values that the comments name."""
    return QUOTED.sub(lambda found: write(found) + found["comment"], text)


def write(found: re.Match[str]) -> str:
    """Return the value of a quoted number in the form of the present one."""
    wanted = value(found["file"], found["keys"]) * (100 if found["unit"] == "%" else 1)
    decimals = len(found["number"].partition(".")[2])
    sign = "+" if found["number"][0] in "+−" else ""
    return f"{wanted:{sign},.{decimals}f}".replace("-", "−")


def value(file: str, keys: str) -> float:
    """Return a value, a difference or a ratio of two values in a file of results."""
    for sign, combine in OPERATORS.items():
        if sign in keys:
            return combine(*(look_up(file, part) for part in keys.split(sign)))
    return look_up(file, keys)


def look_up(file: str, keys: str) -> float:
    """Return the value that keys lead to."""
    found: Any = read(file)
    for key in (one.strip() for one in keys.split(">")):
        if not isinstance(found, list):
            found = found[key]
        elif (name := key.partition("="))[1]:
            found = next(row for row in found if str(row[name[0]]) == name[2])
        else:
            found = found[int(key)]
    return float(found)


@cache
def read(file: str) -> Any:
    """Return the content of a file of results; that of `doap eval` by descriptor and figure."""
    path = ROOT / "results" / f"{file}.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("format") != FORMAT:
        return content
    return {
        name: {
            **{figure.name: figure.total.value for figure in result.figures},
            **result.selected,
            **{f"{figure.name} {part}": one.value for figure in result.figures for part, one in figure.parts.items()},
        }
        for name, result in read_results(path).items()
    }


if __name__ == "__main__":
    main()
