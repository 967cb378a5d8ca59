"""Generate the tables of results in the README and the documentation: `python scripts/tables.py`.

This reads results/evaluation, which `recipes/evaluate.sh` writes, results/reconstruct.json, and the results of earlier
comparisons of losses. It replaces the parts of `PAGES` that are marked with `<!-- NAME: written by scripts/tables.py
-->`.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean as mean
from typing import Any, NamedTuple

from generated_markdown import MIN_UNITS, replace_generated, table

from doap.evaluation.report.table import difference_interval
from doap.evaluation.result import Result, read_results

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from comparison import paired  # noqa: E402

TOOL = "scripts/tables.py"
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in ("colmap", "weights", "training", "patches")))
Results = dict[str, dict[str, Result]]
"""Results by benchmark and dataset, and by descriptor."""
Sets = dict[str, dict[str, dict[str, Any]]]
"""Figures of reconstructions by set of photos, variant and name."""


class Column(NamedTuple):
    """A figure of a benchmark: file of the results, name, heading, and its format if it is not in per cent."""

    file: str
    figure: str
    heading: str
    plain: str = ""


POSE = Column("pose-scenes", "AUC@10", "pose AUC@10°")
TURNED = Column("pose-scenes", "AUC@10, turned by 90°", "one photo turned by 90°")
POSE_2048 = Column("pose-scenes", "AUC@10, 2,048 keypoints", "2,048 keypoints")
SFM = Column("sfm-scenes", "AUC@5", "SfM AUC@5°")
OXFORD = Column("oxford-oxford_affine", "mAP", "Oxford mAP")
EXACT = Column("oxford-oxford_affine", "homography AUC@1", "Oxford homography AUC@1 px")
EXACT_3 = Column("oxford-oxford_affine", "homography AUC@3", "Oxford homography AUC@3 px")
WXBS = Column("wxbs-wxbs", "mAA", "WxBS mAA")
SPEED = Column("speed-images", "ms per 1,000 keypoints", "CPU ms per 1,000 keypoints", "{:.0f}")
IMAGE = Column("speed-images", "s per image", "CPU s per image", "{:.2f}")
PAIR = Column("speed-images", "s per pair", "CPU s per pair", "{:.3f}")
# Names of results, in the words of their authors.
LABELS = {
    "doap-128": "**doap-128**",
    "doap-256bit": "**doap-256bit**",
    "doap-fast": "**doap-fast**",
    "rootsift": "RootSIFT",
    "dsp-sift": "DSP-SIFT",
    "HardTFeat": "HardTFeat",
    "mkd-concat-64": "MKD",
    "SIFT+Boost-F": "FeatureBooster-F",
    "SIFT+Boost-B": "FeatureBooster-B",
    "hashsift-256": "HashSIFT-256",
    "teblid": "TEBLID",
    "aliked-lightglue": "ALIKED + LightGlue",
    "xfeat-lighterglue": "XFeat + LighterGlue",
}
README = ("doap-128", "doap-256bit", "doap-fast", "rootsift", "aliked-lightglue")
# Variants of benchmarks/reconstruct.py, the reference first.
RECONSTRUCTED = {
    "colmap": "COLMAP",
    "colmap-ratio": "COLMAP, ratio 0.9, 1 px",
    "doap-128": "**doap-128**",
    "doap-256bit": "**doap-256bit**",
    "doap-fast": "**doap-fast**",
    "aliked-lightglue": "ALIKED + LightGlue",
}
OURS, REFERENCE = ("doap-128", "doap-256bit", "doap-fast"), "rootsift"


class Runs(NamedTuple):
    """The training runs of one name in one file of results."""

    file: str
    name: str


# Figure of a training run, heading, factor and number of digits.
LOSS_FIGURES = (
    ("map", "validation mAP", 1, 4),
    ("fpr95", "validation FPR95, % (lower is better)", 100, 2),
    ("pose AUC@10", "pose AUC@10, %", 100, 1),
)
TRIPLET_4 = Runs("ap-losses", "triplet, 4 per group, random groups")
AP_8 = Runs("ap-losses-8", "AP, 8 per group, random groups")
LOSSES = {
    "4": (Runs("ap-losses", "AP, 4 per group, random groups"), TRIPLET_4),
    "4, AP with `second_order = 0.1`, rate 3": (
        Runs("ap-losses-second-order", "AP with second-order similarity, 4 per group, random groups"),
        TRIPLET_4,
    ),
    "4, AP with `second_order = 0.1`, rate 10": (Runs("ap-levers-5", "second-order similarity"), TRIPLET_4),
    "8": (AP_8, Runs("ap-losses-8", "triplet, 8 per group, random groups")),
    "AP with 8, triplet with 4": (AP_8, TRIPLET_4),
}


def main() -> None:
    contents = make_tables(ROOT / "results")
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(replace_generated(text, TOOL, contents), encoding="utf-8")


def make_tables(folder: Path) -> dict[str, str]:
    """Return the generated parts of the pages by name."""
    results = {path.stem: read_results(path) for path in sorted((folder / "evaluation").glob("*.json"))}
    sets = json.loads((folder / "reconstruct.json").read_text(encoding="utf-8"))["scenes"]
    accuracy = (POSE, TURNED, POSE_2048, SFM, OXFORD, EXACT, WXBS)
    return {
        "results": results_table(results, README, (POSE, TURNED, POSE_2048, SPEED)),
        "all results": results_table(results, LABELS, (*accuracy, SPEED, IMAGE, PAIR)),
        "differences": differences_table(results, (POSE, TURNED, POSE_2048, SFM, OXFORD, EXACT, EXACT_3, WXBS)),
        "rotation": rotation_table(results[POSE.file] | read_results(folder / "evaluation/rotation/pose-scenes.json")),
        "reconstructions": reconstruction_summary(sets),
        "reconstruction sets": reconstruction_details(sets),
        "losses": losses_table(folder),
    }


def results_table(results: Results, names: Iterable[str], columns: Sequence[Column]) -> str:
    """Return one row per descriptor, best pose first, and then the pipelines; the best descriptor is bold."""
    descriptors = {name: results[SPEED.file][name].descriptor for name in LABELS}
    pipelines = {name for name, descriptor in descriptors.items() if descriptor.pipeline}
    ordered = sorted(names, key=lambda name: (name in pipelines, -(value(results, POSE, name) or 0)))
    rows = []
    for name in ordered:
        size = "own keypoints" if name in pipelines else str(descriptors[name].bytes)
        cells = [shown(results, column, name) for column in columns]
        for index, column in enumerate(columns):
            best = max(value(results, column, other) or 0 for other in LABELS.keys() - pipelines)
            if not column.plain and name not in pipelines and cells[index] == f"{100 * best:.1f}":
                cells[index] = f"**{cells[index]}**"
        rows.append([LABELS[name], size, *cells])
    return table(["", "bytes", *(column.heading for column in columns)], rows)


def differences_table(results: Results, columns: Iterable[Column]) -> str:
    """Return the differences of the shipped descriptors from RootSIFT, in points, with paired 95 % intervals."""
    rows = [[column.heading, *(difference(results, column, name) for name in OURS)] for column in columns]
    return table(["", *(LABELS[name] for name in OURS)], rows)


def difference(results: Results, column: Column, name: str) -> str:
    """Return a difference in points with its interval, bold if significant; by scene if there are too few of them."""
    ours, theirs = (results[column.file][one].figure(column.figure) for one in (name, REFERENCE))
    if ours.total.units < MIN_UNITS:
        parts = [100 * (ours.parts[part].value - theirs.parts[part].value) for part in sorted(ours.parts)]
        return ", ".join(f"{part:+.1f}".replace("-", "−") for part in parts)
    interval = difference_interval(ours.total, theirs.total)
    return signed(ours.total.value - theirs.total.value, *interval, 100, 1)


def rotation_table(results: dict[str, Result]) -> str:
    """Return the pose AUC@10 by the angle of the second photo; the pipeline was turned by 90° only."""
    curves = {name: rotation(result) for name, result in results.items()}
    angles = sorted(max(curves.values(), key=len))
    rows = [
        [LABELS[name], *(f"{100 * curve[angle]:.1f}" if angle in curve else "" for angle in angles)]
        for name, curve in sorted(curves.items(), key=lambda item: -item[1][0])
        if len(curve) == len(angles) or results[name].descriptor.pipeline
    ]
    return table(["", *(f"{angle:g}°" for angle in angles)], rows)


def rotation(result: Result) -> dict[float, float]:
    """Return the pose AUC@10 of a result by the angle of the second photo in degrees."""
    return dict(next(curve for curve in result.curves if curve.name == "rotation").points)


def reconstruction_summary(sets: Sets) -> str:
    """Return one row per variant, over all sets that have the figures of all our descriptors: the headline."""
    rows = []
    sets = {name: variants for name, variants in sets.items() if variants.keys() >= {"colmap", "colmap-ratio", *OURS}}
    for variant, label in RECONSTRUCTED.items():
        if not (found := {name: variants[variant] for name, variants in sets.items() if variant in variants}):
            continue
        built = {name: one for name, one in found.items() if one["points"] and sets[name]["colmap"]["points"]}
        within = [one["pairs_within_5_degrees"] for one in found.values() if "pairs_within_5_degrees" in one]
        registered, photos = (sum(one[key] for one in found.values()) for key in ("registered", "photos"))
        rows.append(
            [
                label if len(found) == len(sets) else f"{label} ({len(found)} sets)",
                f"{registered:g} of {photos}",
                points_ratio([(one["points"], sets[name]["colmap"]["points"]) for name, one in built.items()]),
                f"{mean(one['track_length'] for one in built.values()):.2f}",
                f"{mean(one['reprojection_error'] for one in built.values()):.2f}",
                f"{100 * mean(within):.1f}",
                f"{sum(one['minutes'] for one in found.values()):.0f}",
            ]
        )
    headings = ("registered photos", "points ÷ COLMAP's", "track length", "reprojection error, px")
    return table(["", *headings, "pairs within 5°, %", "minutes"], rows)


def points_ratio(pairs: Sequence[tuple[float, float]]) -> str:
    """Return the geometric mean of ratios, with its 95 % interval over sets if they are enough."""
    ours, theirs = ([math.log(one) for one in column] for column in zip(*pairs, strict=True))
    if ours == theirs:
        return "1"
    found = {name: f"{math.exp(one):.2f}" for name, one in paired(ours, theirs).items()}
    interval = f" ({found['low']} to {found['high']})" if len(pairs) >= MIN_UNITS else ""
    return found["difference"] + interval


def reconstruction_details(sets: Sets) -> str:
    """Return one row per set and variant."""
    rows = []
    for name, variants in sets.items():
        for number, (variant, one) in enumerate((key, variants[key]) for key in RECONSTRUCTED if key in variants):
            errors = (one.get("reprojection_error"), one.get("median_centre_error"), one.get("pairs_within_5_degrees"))
            scales, digits = (1, 100, 100), (3, 2, 1)
            shown = ["" if e is None else f"{k * e:.{d}f}" for e, k, d in zip(errors, scales, digits, strict=True)]
            rows.append(
                [
                    name if not number else "",
                    RECONSTRUCTED[variant],
                    f"{one['registered']:g} of {one['photos']}",
                    f"{one['verified_matches']:,}",
                    f"{one['points']:,.0f}",
                    f"{one['track_length']:.2f}",
                    *shown,
                    f"{one['minutes']:.1f}",
                ]
            )
    headings = ("registered", "verified matches", "points", "track length", "reprojection error, px")
    return table(["set", "features", *headings, "median centre error, %", "pairs within 5°, %", "minutes"], rows)


def losses_table(folder: Path) -> str:
    """Return one row per pair of training runs, with the difference in each figure over the seeds that both have."""
    rows = []
    for label, runs in LOSSES.items():
        row = [label]
        for figure, _, factor, digits in LOSS_FIGURES:
            ours, theirs = (seeds(folder, one, figure) for one in runs)
            common = sorted(ours.keys() & theirs.keys())
            found = paired([ours[seed] for seed in common], [theirs[seed] for seed in common])
            row.append(signed(found["difference"], found["low"], found["high"], factor, digits))
        rows.append(row)
    return table(["patches per group", *(heading for _, heading, *_ in LOSS_FIGURES)], rows)


def seeds(folder: Path, runs: Runs, figure: str) -> dict[int, float]:
    """Return a figure of all runs of a name, by seed."""
    rows = json.loads((folder / f"{runs.file}.json").read_text(encoding="utf-8"))["runs"]
    return {row["seed"]: row[figure] for row in rows if row["name"] == runs.name}


def signed(difference: float, low: float, high: float, factor: float, digits: int) -> str:
    """Return a difference with its interval; it is bold if it is significant."""
    value, begin, end = (f"{factor * one:+.{digits}f}".replace("-", "−") for one in (difference, low, high))
    text = f"{value} ({begin} to {end})"
    return text if low <= 0 <= high else f"**{text}**"


def shown(results: Results, column: Column, name: str) -> str:
    """Return a figure of a descriptor; empty if it was not measured."""
    found = value(results, column, name)
    return "" if found is None else column.plain.format(found) if column.plain else f"{100 * found:.1f}"


def value(results: Results, column: Column, name: str) -> float | None:
    """Return the value of a figure, or None if it was not measured."""
    result = results[column.file].get(name)
    figure = result and result.figure(column.figure)
    return figure.total.value if figure else None


if __name__ == "__main__":
    main()
