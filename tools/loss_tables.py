"""Generate the tables that compare the losses, in the documentation.

    python tools/loss_tables.py results

This reads the results of `benchmarks/ap_or_triplet.py` and replaces the parts of `PAGES` that are marked with
`<!-- NAME: written by tools/loss_tables.py -->`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import NamedTuple

from generated_markdown import replace_generated, table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from training_runs import paired  # noqa: E402

TOOL = "tools/loss_tables.py"
PAGES = (ROOT / "docs" / "training.md", ROOT / "docs" / "design-notes.md")


class Runs(NamedTuple):
    """The runs of one name in one file of results."""

    file: str
    name: str


class Figure(NamedTuple):
    """A figure of a run: its heading, and how it is shown."""

    name: str
    heading: str
    factor: float
    digits: int


FIGURES = (
    Figure("map", "validation mAP", 1, 4),
    Figure("fpr95", "validation FPR95, % (lower is better)", 100, 2),
    Figure("pose AUC@10", "pose AUC@10, %", 100, 1),
    Figure("homography AUC@1", "homography AUC@1 px, %", 100, 1),
    Figure("homography AUC@3", "homography AUC@3 px, %", 100, 1),
)
AP, TRIPLET = "AP, {} per group, random groups", "triplet, {} per group, random groups"
AP_4, TRIPLET_4 = Runs("ap-losses", AP.format(4)), Runs("ap-losses", TRIPLET.format(4))
AP_8, TRIPLET_8 = Runs("ap-losses-8", AP.format(8)), Runs("ap-losses-8", TRIPLET.format(8))
SECOND_ORDER = Runs("ap-losses-second-order", f"AP with second-order similarity{AP.format(4).removeprefix('AP')}")
SECOND_ORDER_10 = Runs("ap-levers-5", "second-order similarity")
PILOT = (Runs("ap-pilot", AP.format(4)), Runs("ap-pilot", TRIPLET.format(4)))
LOSSES = {
    "4": (AP_4, TRIPLET_4),
    "4, AP with `second_order = 0.1`, rate 3": (SECOND_ORDER, TRIPLET_4),
    "4, AP with `second_order = 0.1`, rate 10": (SECOND_ORDER_10, TRIPLET_4),
    "8": (AP_8, TRIPLET_8),
    "AP with 8, triplet with 4": (AP_8, TRIPLET_4),
    "4, pilot: 200 steps on other sets": PILOT,
}
LEVERS = {
    "`regularised-ap` with a second-order term of 0.1": "second-order similarity",
    "`regularised-ap` with a triplet term of 0.3": "triplet term",
    "near misses (`sampler.neighbours`)": "near misses",
    "margin 0.2": "margin 0.2",
    "moving average of the weights, 0.99": "moving average",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder of results")
    contents = make_tables(parser.parse_args().results)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(replace_generated(text, TOOL, contents), encoding="utf-8")


def make_tables(folder: Path) -> dict[str, str]:
    """Return the generated parts of the pages by name."""
    levers = {label: (Runs("ap-levers", name), Runs("ap-levers", "base")) for label, name in LEVERS.items()}
    return {
        "losses": differences(folder, "patches per group", LOSSES, FIGURES[:3]),
        "levers": differences(folder, "lever", levers, FIGURES),
        "loss figures": figures(folder),
    }


def differences(folder: Path, first: str, rows: dict[str, tuple[Runs, Runs]], columns: tuple[Figure, ...]) -> str:
    """Return one row per pair of runs, with the difference in each figure."""
    cells = [[label, *(difference(folder, *runs, figure) for figure in columns)] for label, runs in rows.items()]
    return table([first, *(figure.heading for figure in columns)], cells)


def figures(folder: Path) -> str:
    """Return one row per comparison of losses and figure, with both means and the difference."""
    cells = [
        [label if figure is FIGURES[0] else "", figure.heading, *means, difference(folder, *runs, figure)]
        for label, runs in LOSSES.items()
        for figure in FIGURES
        for means in [[mean(folder, one, figure) for one in runs]]
    ]
    return table(["patches per group", "", "listwise AP", "hardest triplet", "AP − triplet"], cells)


def difference(folder: Path, first: Runs, second: Runs, figure: Figure) -> str:
    """Return a difference with its 95 % interval over the seeds that both have; it is bold if it is significant."""
    ours, theirs = values(folder, first, figure), values(folder, second, figure)
    seeds = sorted(ours.keys() & theirs.keys())
    found = paired([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds])
    value, low, high = (f"{figure.factor * found[key]:+.{figure.digits}f}" for key in ("difference", "low", "high"))
    text = f"{value} ({low} to {high})".replace("-", "−")
    return f"**{text}**" if found["low"] > 0 or found["high"] < 0 else text


def mean(folder: Path, runs: Runs, figure: Figure) -> str:
    """Return the mean of a figure over all seeds."""
    found = values(folder, runs, figure)
    return f"{figure.factor * sum(found.values()) / len(found):.{figure.digits}f}"


def values(folder: Path, runs: Runs, figure: Figure) -> dict[int, float]:
    """Return a figure of all runs of a name, by seed."""
    rows = json.loads((folder / f"{runs.file}.json").read_text(encoding="utf-8"))["runs"]
    return {row["seed"]: row[figure.name] for row in rows if row["name"] == runs.name}


if __name__ == "__main__":
    main()
