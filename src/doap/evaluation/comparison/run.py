"""Run a comparison: photos → views, pairs, reconstructions → verdict → HTML page and JSON."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from doap._support.errors import ArgumentError, DataError
from doap._support.files import atomic_write, make_folder
from doap.detectors import Detector, as_detector
from doap.evaluation.candidates import Candidate, open_candidates
from doap.evaluation.comparison.page import write_comparison_page
from doap.evaluation.comparison.pairs import PairPicture, draw_pairs, evaluate_pairs
from doap.evaluation.comparison.photos import LONGEST_SIDE, VIEWS, read_photos, select_photos
from doap.evaluation.comparison.reconstruction import evaluate_reconstructions
from doap.evaluation.comparison.result import Comparison
from doap.evaluation.comparison.stage import MIN_ITEMS
from doap.evaluation.comparison.verdict import decide
from doap.evaluation.comparison.views import evaluate_views
from doap.evaluation.mapping import Reconstruction
from doap.evaluation.run import descriptor_info, library_versions
from doap.extractor import DescriptorSource
from doap.geometry import MIN_INLIER_RATIO, MIN_INLIERS
from doap.images import list_images
from doap.types import Progress, no_progress


def compare(
    photos: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    descriptor: DescriptorSource = "doap-128",
    baselines: Sequence[DescriptorSource] = ("sift", "rootsift"),
    detector: str | Detector | None = None,
    max_keypoints: int = 2048,
    max_photos: int = 20,
    max_pairs: int = 200,
    reconstruction: bool = True,
    seed: int = 0,
    device: str | torch.device = "auto",
    progress: Progress = no_progress,
) -> Comparison:
    """Compare a descriptor with baselines on photos without ground truth; all use the same keypoints.

    It writes `index.html`, a self-contained page, and `comparison.json`. The rule of the verdict is in
    `doap.evaluation.comparison.verdict`.

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
        max_photos: Maximum number of photos, at least six; runs of five neighbours are selected from a larger set.
        max_pairs: Maximum number of pairs of these photos to match; nearest neighbours first.
        reconstruction: Whether to run COLMAP as well, which takes the longest.
        seed: Random seed.
        device: "auto", "cpu", "cuda", "cuda:N" or "mps".
        progress: Progress callback.
    """
    options = _Options(as_detector(detector), max_keypoints, max_photos, max_pairs, reconstruction, seed)
    files = _list_photos(photos)
    if len(files) < MIN_ITEMS:
        raise ArgumentError(_too_few(len(files)))
    opened = open_candidates([descriptor, *baselines], device=device)
    if len(opened) < 2:
        raise ArgumentError(f"baselines: expected at least one besides the candidate, got only {', '.join(opened)}.")
    folder = make_folder(Path(out))
    comparison, pictures = _compare(opened, files, options, progress)
    with atomic_write(folder / "comparison.json") as unfinished:
        text = json.dumps(comparison.to_json(), indent=1, ensure_ascii=False)
        unfinished.write_text(text + "\n", encoding="utf-8")
    write_comparison_page(comparison, pictures, folder / "index.html")
    return comparison


@dataclass(frozen=True)
class _Options:
    """Arguments of `compare` that affect the figures."""

    detector: Detector
    max_keypoints: int
    max_photos: int
    max_pairs: int
    reconstruction: bool
    seed: int

    def __post_init__(self) -> None:
        limits = {"max_keypoints": 1, "max_photos": MIN_ITEMS, "max_pairs": 1}
        for name, least in limits.items():
            if (value := getattr(self, name)) < least:
                raise ArgumentError(f"{name}: expected {least} or more, got {value}.")

    def to_json(self) -> dict[str, Any]:
        """Return everything that affects the figures, by name."""
        overlap = f"{MIN_INLIERS} inliers and {MIN_INLIER_RATIO * 100:.0f} % of the matches of a descriptor"
        return {
            "detector": self.detector.name,
            "magnification": self.detector.magnification,
            "max keypoints": self.max_keypoints,
            "max photos": self.max_photos,
            "max pairs": self.max_pairs,
            "longest side": LONGEST_SIDE,
            "views per photo": VIEWS,
            "matches": "mutual nearest neighbours, no ratio test",
            "geometry": "fundamental matrix by USAC_MAGSAC, 1.5 px",
            "overlapping pair": overlap,
            "interval": "95 % of 1,000 resamples of photos",
        }


def _compare(
    opened: Mapping[str, Candidate], given: Sequence[Path], options: _Options, progress: Progress
) -> tuple[Comparison, list[PairPicture]]:
    """Run all stages and decide."""
    detector, max_keypoints, seed = options.detector, options.max_keypoints, options.seed
    for one in opened.values():
        one.check("frames", detector)
    selected = select_photos(given, options.max_photos)
    photos, skipped = read_photos(selected, opened, detector, max_keypoints, progress)
    if len(photos) < MIN_ITEMS:
        raise DataError(f"{_too_few(len(photos))} Skipped, among others: {next(iter(skipped.values()))}")
    keypoints = sum(len(one.photo.frames) for one in photos)
    seconds = {name: 1000 * one.seconds / keypoints for name, one in opened.items()}
    views = evaluate_views(photos, opened, detector, max_keypoints, seed, progress)
    pairs = evaluate_pairs(photos, list(opened), options.max_pairs, seed, progress)
    reconstructions: dict[str, Reconstruction] = {}
    note = "not requested"
    if options.reconstruction:
        reconstructions, note = evaluate_reconstructions(
            photos, pairs.items, opened, detector, max_keypoints, seed, progress
        )
    descriptors = tuple(descriptor_info(name, one) for name, one in opened.items())
    comparison = Comparison(
        verdict=decide(pairs, views, descriptors, seconds, len(photos)),
        descriptors=descriptors,
        photos=[one.name for one in photos],
        skipped=skipped,
        photos_given=len(given),
        pairs=pairs,
        views=views,
        reconstructions=reconstructions,
        reconstruction_note=note,
        seconds=seconds,
        settings=options.to_json(),
        seed=seed,
        date=datetime.date.today().isoformat(),
        versions=library_versions(),
    )
    return comparison, draw_pairs(photos, pairs)


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
