"""Generate the tables of evaluation results in the README and the documentation.

    python tools/evaluation_tables.py results/evaluation

This reads the results of `recipes/evaluate.sh`, and those of `sweeps` in the folder beside them. It replaces the parts
of `PAGES` that are marked with `<!-- NAME: written by tools/evaluation_tables.py -->`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from generated_markdown import replace_generated, table

from doap.evaluation.pose import BANDS
from doap.evaluation.report.table import difference_interval
from doap.evaluation.result import Result, read_result

ROOT = Path(__file__).parents[1]
TOOL = "tools/evaluation_tables.py"
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in ("weights", "alternatives", "design-notes")))
# Folder of results, name of the figure, heading of the column.
Column = tuple[str, str, str]
POSE: Column = ("pose-scenes", "AUC@10", "pose AUC@10°")
SFM: Column = ("sfm-scenes", "AUC@5", "SfM AUC@5°")
OXFORD: Column = ("oxford-oxford_affine", "mAP", "Oxford mAP")
EXACTNESS: Column = ("oxford-oxford_affine", "homography AUC@1", "Oxford homography AUC@1 px")
EXACTNESS_3: Column = ("oxford-oxford_affine", "homography AUC@3", "Oxford homography AUC@3 px")
WXBS: Column = ("wxbs-wxbs", "mAA", "WxBS mAA")
EVD: Column = ("evd-evd", "mAA", "EVD mAA")
ACCURACY = (POSE, SFM, OXFORD, EXACTNESS, WXBS, EVD)
SHORT = (POSE, SFM, OXFORD)
DIFFERENCES = (POSE, SFM, OXFORD, EXACTNESS, EXACTNESS_3, WXBS, EVD)
BY_DIFFICULTY: tuple[Column, ...] = tuple(("pose-scenes", f"AUC@10, {band}", band) for band in BANDS)
SPEED: Column = ("speed-images", "ms per 1,000 keypoints", "CPU ms per 1,000 keypoints")
IMAGE: Column = ("speed-images", "s per image", "CPU s per image")
PAIR: Column = ("speed-images", "s per pair", "CPU s per pair")
# Names of results, in the words of their authors.
LABELS = {
    "doap-128": "**doap-128**",
    "doap-256bit": "**doap-256bit**",
    "doap-fast": "**doap-fast**",
    "rootsift": "RootSIFT",
    "rootsift-wide": "RootSIFT, 1.5 × support",
    "dsp-sift": "DSP-SIFT",
    "HardTFeat": "HardTFeat",
    "mkd-concat-64": "MKD",
    "SIFT+Boost-F": "FeatureBooster-F",
    "SIFT+Boost-B": "FeatureBooster-B",
    "hashsift-256": "HashSIFT-256",
    "teblid": "TEBLID",
    "aliked-lightglue": "ALIKED + LightGlue",
    "disk-lightglue": "DISK + LightGlue",
    "xfeat": "XFeat",
    "xfeat-lighterglue": "XFeat + LighterGlue",
}
OURS, REFERENCE = ("doap-128", "doap-256bit", "doap-fast"), "rootsift"
# Descriptors of `results/sweeps`.
ROTATED = {
    "sift": "SIFT",
    "rootsift": "RootSIFT",
    "teblid": "TEBLID",
    "short-128": "doap, after ten minutes of training",
}
# Figures that are not in per cent.
PLAIN = {SPEED: "{:.0f}", IMAGE: "{:.2f}", PAIR: "{:.3f}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder of evaluation results")
    contents = make_tables(parser.parse_args().results)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(replace_generated(text, TOOL, contents), encoding="utf-8")


def make_tables(folder: Path) -> dict[str, str]:
    """Return the generated parts of the pages by name."""
    results = {path.relative_to(folder).as_posix(): read_result(path) for path in sorted(folder.glob("*/*.json"))}
    return {
        "results": results_table(results, (*SHORT, SPEED)),
        "all results": results_table(results, ACCURACY),
        "alternatives": results_table(results, (POSE, SFM, WXBS, EVD, IMAGE, PAIR)),
        "costs": results_table(results, (SPEED, IMAGE, PAIR)),
        "poses": poses_table(results),
        f"differences from {REFERENCE}": differences_table(results),
        "rotation": rotation_table(folder.with_name("sweeps")),
    }


def results_table(results: dict[str, Result], columns: Iterable[Column]) -> str:
    """Return one row per descriptor; the best descriptor of a column is bold."""
    columns = list(columns)
    rows = []
    for name in ordered_names(results):
        found = next((one for path, one in results.items() if path.endswith(f"/{name}.json")), None)
        if found is None:
            continue
        size = "own keypoints" if is_pipeline(results, name) else str(found.descriptor.bytes)
        rows.append([LABELS[name], size, *(cell(results, column, name) for column in columns)])
    return table(["", "bytes", *(heading for *_, heading in columns)], rows)


def poses_table(results: dict[str, Result]) -> str:
    """Return ratio threshold, AUC@10, difference from RootSIFT and AUC@10 by difficulty of each descriptor."""
    rows = []
    for name in ordered_names(results):
        if found := results.get(f"{POSE[0]}/{name}.json"):
            ratio = found.selected.get("ratio")
            change = "" if name == REFERENCE else difference(results, POSE, name)
            bands = [cell(results, column, name) for column in BY_DIFFICULTY]
            rows.append([LABELS[name], f"{ratio:g}" if ratio else "", cell(results, POSE, name), change, *bands])
    return table(
        ["", "ratio", "AUC@10°", "difference, 95 % interval", *(heading for *_, heading in BY_DIFFICULTY)], rows
    )


def rotation_table(folder: Path) -> str:
    """Return the inlier ratio without rotation, and the share of it that the worst rotation loses."""
    rows = []
    for name, label in ROTATED.items():
        result = read_result(folder / f"{name}.json")
        figures = (result.figure(one) for one in ("inlier ratio at 0°, ×1", "rotation fall"))
        rows.append([label, *(f"{100 * figure.total.value:.1f} %" for figure in figures if figure)])
    return table(["", "inlier ratio without rotation", "lost by the worst rotation"], rows)


def ordered_names(results: dict[str, Result]) -> list[str]:
    """Return the names of all descriptors, best pose first, and then the pipelines."""
    return sorted(LABELS, key=lambda name: (is_pipeline(results, name), -(value(results, POSE, name) or 0.0)))


def cell(results: dict[str, Result], column: Column, name: str) -> str:
    """Return a figure of a descriptor; empty if it was not measured."""
    found = value(results, column, name)
    if found is None:
        return ""
    text = PLAIN[column].format(found) if column in PLAIN else f"{100 * found:.1f}"
    if column in PLAIN or is_pipeline(results, name):
        return text
    best = max(value(results, column, other) or 0.0 for other in LABELS if not is_pipeline(results, other))
    return f"**{text}**" if text == f"{100 * best:.1f}" else text


def value(results: dict[str, Result], column: Column, name: str) -> float | None:
    """Return the value of a figure, or None if it was not measured."""
    found = results.get(f"{column[0]}/{name}.json")
    figure = found and found.figure(column[1])
    return figure.total.value if figure else None


def is_pipeline(results: dict[str, Result], name: str) -> bool:
    """Return whether a result is that of a pipeline with its own keypoints."""
    return any(one.descriptor.pipeline for path, one in results.items() if path.endswith(f"/{name}.json"))


def differences_table(results: dict[str, Result]) -> str:
    """Return the differences of the shipped descriptors from RootSIFT, in points, with paired 95 % intervals."""
    rows = []
    for column in DIFFERENCES:
        cells = [difference(results, column, name) for name in OURS]
        if any(cells):
            rows.append([column[2], *cells])
    return table(["", *(LABELS[name] for name in OURS)], rows)


def difference(results: dict[str, Result], column: Column, name: str) -> str:
    """Return a difference in points with its interval; wins and losses that are significant are bold."""
    figures = [
        results[path].figure(column[1]) for one in (name, REFERENCE) if (path := f"{column[0]}/{one}.json") in results
    ]
    if len(figures) < 2 or figures[0] is None or figures[1] is None:
        return ""
    ours, theirs = (figure.total for figure in figures if figure)
    text, interval = f"{100 * (ours.value - theirs.value):+.1f}", difference_interval(ours, theirs)
    if interval is None:
        return f"{text} (no interval)"
    low, high = interval
    text += f" ({100 * low:+.1f} to {100 * high:+.1f})"
    return text if low <= 0 <= high else f"**{text}**"


if __name__ == "__main__":
    main()
