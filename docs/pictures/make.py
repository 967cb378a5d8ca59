"""Draw the figures of the documentation: `python docs/pictures/make.py` (needs matplotlib).

The figures of docs/loss.md are computed with `doap.loss`. adapting.svg shows results/own-photos/run.json,
and rotation.svg shows results/evaluation. matches.jpg is the output of `doap match --sample`,
and patches.png the output of `doap data preview`.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib
import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from doap.evaluation.result import read_results
from doap.loss import relaxed_average_precision, soft_histogram
from doap.metrics import average_precision

HERE = Path(__file__).parent
MATCH, DISTRACTOR, LINE, FAINT = "#1a7f5a", "#c9ced6", "#2f5fb3", "#8a94a3"
STYLE = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.facecolor": "white",
    # Makes the SVG files reproducible.
    "svg.hashsalt": "doap",
}


def one_query() -> tuple[Tensor, Tensor]:
    """Return distances (1, N) from one query to 3 matches and 500 distractors, and a mask of the matches."""
    generator = torch.Generator().manual_seed(0)
    distractors = (1.25 + 0.16 * torch.randn(1, 500, generator=generator)).clamp(0.3, 2)
    distances = torch.cat([torch.tensor([[0.45, 0.78, 0.95]]), distractors], dim=1)
    return distances, torch.arange(503)[None] < 3


def relaxed(distances: Tensor, positive: Tensor, bins: int) -> Tensor:
    """Return the relaxed AP (Q,) of distances (Q, N) in 0…2."""
    return relaxed_average_precision(distances, positive, ~positive, torch.linspace(0, 2, bins + 1))


def rankings() -> Figure:
    """Draw rankings with their AP and their number of violated triplets."""
    figure, axes = plt.subplots(figsize=(7.6, 2.9))
    for row, matches in enumerate([(1, 2), (1, 3), (2, 3), (1, 4), (1, 10), (9, 10)]):
        positive = torch.tensor([[rank in matches for rank in range(1, 11)]])
        precision = average_precision(torch.arange(10.0)[None], positive).item()
        wrong = sum(rank - 1 - index for index, rank in enumerate(matches))
        for rank, is_match in enumerate(positive[0].tolist()):
            axes.add_patch(Rectangle((rank, -row), 0.86, 0.72, color=MATCH if is_match else DISTRACTOR))
        axes.text(-0.4, -row + 0.34, f"{row + 1}", va="center", ha="right", color=FAINT)
        axes.text(11, -row + 0.34, f"{precision:.2f}", va="center", ha="right", weight="bold")
        axes.text(14.4, -row + 0.34, f"{wrong}", va="center", ha="right", color=FAINT)
    axes.text(11, 1.15, "AP", ha="right", weight="bold")
    axes.text(14.4, 1.15, "violated triplets", ha="right", color=FAINT)
    axes.text(0, 1.15, "nearest", ha="left")
    axes.text(9.86, 1.15, "furthest", ha="right")
    axes.set(xlim=(-0.9, 14.5), ylim=(-5.1, 1.7))
    axes.axis("off")
    return figure


def two_bins() -> Figure:
    """Draw one distance and the two bins to which it contributes."""
    figure, axes = plt.subplots(figsize=(7.6, 2.8))
    centres, distance = torch.linspace(0, 2, 9), 0.83
    counts = soft_histogram(torch.tensor([[distance]]), centres, torch.ones(1, 1, dtype=torch.bool))[0]
    for centre, count in zip(centres.tolist(), counts.tolist(), strict=True):
        kernel = [centre - 0.25, centre, centre + 0.25]
        axes.plot(kernel, [0, 1, 0], color=LINE if count else DISTRACTOR, linewidth=2 if count else 1.2)
        axes.plot(centre, 0, marker="|", color=FAINT, markersize=9)
        if count:
            axes.hlines(count, min(centre, distance), max(centre, distance), color=MATCH, linestyle=":")
            axes.plot(distance, count, "o", color=MATCH)
            aside, side = (0.03, "left") if centre > distance else (-0.03, "right")
            share = axes.text(centre + aside, count, f"{count:.2f}", ha=side, va="center", color=MATCH)
            share.set_bbox({"color": "white", "pad": 1})
    axes.vlines(distance, 0, 1.05, color=MATCH)
    axes.text(distance, 1.09, f"distance {distance}", ha="center", color=MATCH)
    axes.set(xlim=(0, 2), ylim=(0, 1.2), xlabel="distance (ticks: bin centres)", ylabel="contribution to a bin")
    return figure


def moving_match() -> Figure:
    """Draw exact and relaxed AP while the only match moves away from the query."""
    distances, positive = one_query()
    where = torch.linspace(0.3, 1.9, 800)
    moved = distances[:, 2:].repeat(len(where), 1)
    moved[:, 0] = where
    positives = positive[:, 2:].expand_as(moved)
    figure, axes = plt.subplots(figsize=(7.6, 3.2))
    axes.plot(where, average_precision(moved, positives), color=FAINT, label="exact AP", linewidth=1.4)
    axes.plot(where, relaxed(moved, positives, 25), color=LINE, label="relaxed AP, 25 bins", linewidth=2)
    axes.plot(where, relaxed(moved, positives, 8), color=MATCH, label="relaxed AP, 8 bins", linewidth=2)
    axes.plot(distances[0, 3:], torch.full((500,), -0.05), "|", color=DISTRACTOR, markersize=8)
    axes.set(xlabel="distance of the match (ticks: 500 distractors)", ylabel="AP", xlim=(0.3, 1.9))
    axes.legend()
    return figure


def pushes() -> Figure:
    """Draw the distances of one query and the gradient of AP with respect to each."""
    distances, positive = one_query()
    moved = distances.clone().requires_grad_()
    relaxed(moved, positive, 25).sum().backward()
    assert moved.grad is not None
    slope, near = moved.grad[0], distances[0]
    figure, (above, below) = plt.subplots(2, 1, figsize=(7.6, 4.2), sharex=True, height_ratios=(1, 1.3))
    above.hist(near[3:].tolist(), bins=50, color=DISTRACTOR)
    above.vlines(near[:3], 0, 34, color=MATCH, linewidth=2.5)
    above.text(near[0].item() + 0.015, 28, "3 matches", color=MATCH)
    above.text(1.27, 36, "500 distractors", color=FAINT, ha="center")
    above.set(ylabel="count")
    below.axhline(0, color=FAINT, linewidth=0.8)
    below.vlines(near[3:], 0, slope[3:], color=LINE, linewidth=1.2)
    below.vlines(near[:3], 0, slope[:3], color=MATCH, linewidth=2.5)
    below.text(1.42, 0.9 * slope.max().item(), "distractors: AP rises with distance", ha="center", color=LINE)
    below.text(1.42, 0.9 * slope.min().item(), "matches: AP falls with distance", ha="center", color=MATCH)
    below.set(xlabel="distance to the query", ylabel="∂AP / ∂distance", xlim=(0.3, 1.8))
    return figure


def adapting() -> Figure:
    """Draw mAP and FPR95 on the validation photos during fine-tuning."""
    run = json.loads((HERE.parents[1] / "results" / "own-photos" / "run.json").read_text(encoding="utf-8"))
    minutes = [one["seconds"] / 60 for one in run["validations"]]
    figure, panels = plt.subplots(1, 2, figsize=(7.6, 2.9), layout="constrained")
    for axes, key, title in zip(
        panels, ("map", "fpr95"), ("mAP, higher is better", "FPR95, lower is better"), strict=True
    ):
        axes.plot(minutes, [one[key] for one in run["validations"]], "o-", color=LINE, markersize=4, label="fine-tuned")
        for (name, baseline), style in zip(run["baselines"].items(), (":", "--"), strict=True):
            label = {"sift": "SIFT", "rootsift": "RootSIFT"}[name]
            axes.axhline(baseline[key], color=FAINT, linestyle=style, label=label)
        axes.set(xlabel="minutes", title=title, yscale="log" if key == "fpr95" else "linear")
    panels[0].legend(loc="upper right", bbox_to_anchor=(1, 0.92))
    return figure


def rotation() -> Figure:
    """Draw the pose accuracy by the angle by which the second photo is turned."""
    folder = HERE.parents[1] / "results" / "evaluation"
    results = read_results(folder / "rotation" / "pose-scenes.json")
    # The pipeline was turned by 90° only, so no line connects its points.
    pipeline = "aliked-lightglue"
    results[pipeline] = read_results(folder / "pose-scenes.json")[pipeline]
    curves = {
        name: [(angle, 100 * area) for angle, area in curve.points]
        for name, result in results.items()
        for curve in result.curves
        if curve.name == "rotation"
    }
    figure, axes = plt.subplots(figsize=(7.6, 3.4))
    at = -math.inf
    for name, points in sorted(curves.items(), key=lambda item: item[1][-1][1]):
        ours = name.startswith("doap")
        colour, line = LINE if ours else FAINT, {"doap-fast": "--", pipeline: "none"}.get(name, "-")
        axes.plot(
            *zip(*points, strict=True),
            linestyle=line,
            marker="o",
            color=colour,
            markersize=4,
            linewidth=2 if ours else 1.4,
        )
        label = {"rootsift": "RootSIFT", "aliked-lightglue": "ALIKED + LightGlue"}.get(name, name)
        if name == pipeline:
            for angle, area in points:
                axes.text(angle + 5, area, f"{label}: {area:.1f}", va="center", color=colour)
            continue
        # The names of neighbouring lines must not overlap.
        at = max(at + 6.5, points[-1][1])
        axes.text(points[-1][0] + 5, at, label, va="center", color=colour, weight="bold" if ours else "normal")
    axes.set(xlim=(-4, 182), ylim=(-2, 84), xticks=(0, 45, 90, 135, 180), ylabel="pose AUC@10°, per cent")
    axes.set(xlabel="rotation of the second photo in degrees")
    return figure


def main() -> None:
    """Write all figures."""
    matplotlib.use("svg")
    with plt.rc_context(STYLE):
        for draw in (rankings, two_bins, moving_match, pushes, adapting, rotation):
            figure = draw()
            figure.savefig(HERE / f"{draw.__name__}.svg", bbox_inches="tight", metadata={"Date": None})
            plt.close(figure)
    run("match", "--sample", "--out", HERE / "matches.jpg")
    with TemporaryDirectory() as scratch:
        photos, patches = Path(scratch, "photos", "cup"), Path(scratch, "cup.patches")
        photos.mkdir(parents=True)
        shutil.copy(HERE.parents[1] / "src" / "doap" / "images" / "samples" / "photo.jpg", photos)
        run("data", "from-images", photos.parent, "--out", patches, "--no-tracks", "--keypoints", "200")
        run("data", "preview", patches, "--out", HERE / "patches.png", "--groups", "8")


def run(*arguments: str | Path) -> None:
    """Run a command of doap."""
    subprocess.run([sys.executable, "-m", "doap", *map(str, arguments)], check=True)


if __name__ == "__main__":
    main()
