"""Comparison of one descriptor with baselines on photos without ground truth: should you switch?"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from doap._support.errors import ArgumentError, DataError
from doap._support.files import atomic_write, make_folder, sha256
from doap.detectors import Detector, as_detector
from doap.evaluation.candidates import open_candidates
from doap.evaluation.comparison.page import write_comparison_page
from doap.evaluation.comparison.pairs import draw_pairs, evaluate_pairs, evaluate_reconstructions
from doap.evaluation.comparison.photos import LONGEST_SIDE, read_photos, select_photos
from doap.evaluation.comparison.verdict import MIN_ITEMS, Stage, Verdict, decide
from doap.evaluation.result import Dataset, DescriptorInfo, Result
from doap.evaluation.run import descriptor_info, library_versions
from doap.extractor import DescriptorSource
from doap.geometry import MIN_INLIER_RATIO, MIN_INLIERS
from doap.images import list_images
from doap.types import Progress, no_progress

__all__ = ["Comparison", "compare"]
FORMAT = "doap comparison 1"
PROTOCOL = {
    "longest side": LONGEST_SIDE,
    "matches": "mutual nearest neighbours that pass the ratio test at the descriptor's own threshold",
    "geometry": "fundamental matrix by USAC_MAGSAC, 1.5 px",
    "overlapping pair": f"{MIN_INLIERS} inliers and {MIN_INLIER_RATIO * 100:.0f} % of the matches of a descriptor",
    "interval": "95 % of 1,000 resamples of photos",
}
"""What is the same in all comparisons."""


@dataclass(frozen=True)
class Comparison:
    """One descriptor compared with baselines; `comparison.json` has the same content.

    Attributes:
        verdict: Answer and reasons.
        results: Results by stage, as `doap eval` stores them, the candidate first. A stage without data has none.
        notes: What each stage used, or why it has no results.
        photos: Names of the photos used.
        skipped: Reason why a photo was not used, by name.
    """

    verdict: Verdict
    results: dict[str, list[Result]]
    notes: dict[str, str]
    photos: list[str]
    skipped: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the content of `comparison.json`."""
        return {"format": FORMAT, **dataclasses.asdict(self)}


def compare(
    photos: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    descriptor: DescriptorSource = "doap-128",
    baselines: Sequence[DescriptorSource] = ("sift", "rootsift"),
    detector: str | Detector | None = None,
    max_keypoints: int = 2048,
    max_photos: int = 20,
    reconstruction: bool = True,
    seed: int = 0,
    device: str | torch.device = "auto",
    progress: Progress = no_progress,
) -> Comparison:
    """Compare a descriptor with baselines on photos without ground truth; all use the same keypoints.

    It writes `index.html`, a self-contained page, and `comparison.json`. The page has the rule of the verdict.

    >>> import doap
    >>> doap.compare("photos", "report").verdict.answer  # doctest: +SKIP
    'no difference'

    Args:
        photos: At least six image files, or folders of images, in the order they were taken if there is one.
        out: Folder of the report.
        descriptor: The candidate: a name or file as in `doap.load`, or a describer.
        baselines: Descriptors to compare it with, in the same forms.
        detector: Keypoint detector; SIFT by default.
        max_keypoints: Maximum number of keypoints per photo.
        max_photos: Maximum number of photos, at least six; runs of five neighbours are selected from a larger set. All
            pairs of these photos are matched.
        reconstruction: Whether to run COLMAP as well.
        seed: Random seed.
        device: "auto", "cpu", "cuda", "cuda:N" or "mps".
        progress: Progress callback.
    """
    for name, value, least in (("max_keypoints", max_keypoints, 1), ("max_photos", max_photos, MIN_ITEMS)):
        if value < least:
            raise ArgumentError(f"{name}: expected {least} or more, got {value}.")
    detector, given = as_detector(detector), _list_photos(photos)
    if len(given) < MIN_ITEMS:
        raise ArgumentError(_too_few(len(given)))
    describers = open_candidates([descriptor, *baselines], device=device)
    if len(describers) < 2:
        raise ArgumentError(
            f"baselines: expected at least one besides the candidate, got only {', '.join(describers)}."
        )
    for describer in describers.values():
        describer.check("frames", detector)
    folder = make_folder(Path(out))

    selected = select_photos(given, max_photos)
    described, skipped = read_photos(selected, describers, detector, max_keypoints, progress)
    if len(described) < MIN_ITEMS:
        raise DataError(f"{_too_few(len(described))} Skipped, among others: {next(iter(skipped.values()))}")
    keypoints = sum(len(one.photo.frames) for one in described)
    seconds = {name: 1000 * one.seconds / keypoints for name, one in describers.items()}
    ratios = {name: one.describer.ratio for name, one in describers.items() if one.describer is not None}
    pairs, overlapping = evaluate_pairs(described, ratios, seed, progress)
    model = Stage("reconstructions", "not requested")
    if reconstruction:
        model = evaluate_reconstructions(described, overlapping, seed, progress)

    stages = (pairs, model)
    protocol = {
        "detector": detector.name,
        "magnification": detector.magnification,
        "max keypoints": max_keypoints,
        "photos": f"{len(described)} of {len(given)}",
        **PROTOCOL,
    }
    infos = {name: descriptor_info(name, one) for name, one in describers.items()}
    results = _make_results(stages, infos, seconds, ratios, protocol, [one.path for one in described], seed)
    verdict = decide(pairs, list(infos.values()), seconds)
    notes = {stage.name: stage.note for stage in stages}
    comparison = Comparison(verdict, results, notes, [one.name for one in described], skipped)
    with atomic_write(folder / "comparison.json") as unfinished:
        unfinished.write_text(json.dumps(comparison.to_json(), ensure_ascii=False) + "\n", encoding="utf-8")
    pictures = draw_pairs(described, overlapping, pairs)
    write_comparison_page(verdict, results, notes, pictures, folder / "index.html")
    return comparison


def _make_results(
    stages: Sequence[Stage],
    descriptors: Mapping[str, DescriptorInfo],
    seconds: Mapping[str, float],
    ratios: Mapping[str, float],
    protocol: dict[str, Any],
    files: Sequence[Path],
    seed: int,
) -> dict[str, list[Result]]:
    """Return the results of each stage, with what is needed to reproduce them."""
    checksum = hashlib.sha256("".join(map(sha256, files)).encode()).hexdigest()
    common: dict[str, Any] = {
        "protocol": protocol,
        "dataset": Dataset(f"{len(files)} photos", checksum),
        "curves": (),
        "histogram": None,
        "seed": seed,
        "date": datetime.date.today().isoformat(),
        "versions": library_versions(),
    }
    found: dict[str, list[Result]] = {}
    for stage in stages:
        found[stage.name] = []
        for name, figures in stage.figures.items():
            timed = {**common, "descriptor": descriptors[name], "seconds": {"1,000 keypoints": seconds[name]}}
            found[stage.name].append(Result(stage.name, figures=figures, selected={"ratio": ratios[name]}, **timed))
    return found


def _too_few(photos: int) -> str:
    return f"photos: expected at least {MIN_ITEMS}, because fewer cannot decide anything, got {photos}. Add photos."


def _list_photos(photos: str | Path | Sequence[str | Path]) -> list[Path]:
    """Replace folders by the images in them and drop repeated files."""
    paths = [photos] if isinstance(photos, str | Path) else photos
    files: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise DataError(f"{path}: no such photo or folder. Check the path.")
        files += list_images(path) if path.is_dir() else [path]
    return list(dict.fromkeys(files))
