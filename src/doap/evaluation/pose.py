"""Benchmark `pose`: relative camera pose of image pairs from matches.

Keypoints are detected once for all descriptors. Rotation and translation are estimated by RANSAC from mutual nearest
neighbours that pass the ratio test. The error of a pair is the larger of the rotation error and the angle between the
translations, in degrees; a pair without an estimate has an infinite error.

    AUC@t    Area under the cumulative error curve up to t degrees, divided by t (as in SuperGlue).
    mAA@10   Mean share of pairs with an error of at most 1, 2, …, 10 degrees (as in the Image Matching Challenge).

Figures are means over scenes. The ratio threshold of each descriptor is selected on the
validation scenes, by AUC@10, and then applied to the test scenes. Pairs are drawn from three bands of co-visibility
(easy, medium, hard), where the dataset has it. Intervals resample scenes, and pairs within each scene.

Two settings add figures of the same pairs: with the strongest keypoints only, for which a ratio threshold is selected
again, and with the second photo turned by some angles.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field

from doap._support.errors import import_extra
from doap._support.random_streams import stream
from doap.evaluation.candidates import Candidate, Needs
from doap.evaluation.homography import area_under_recall
from doap.evaluation.pair_matcher import RATIOS, KeypointSettings, PairMatcher, SharedKeypoints
from doap.evaluation.posed_scenes import PosedPair, read_posed_pairs
from doap.evaluation.result import Curve, Dataset, Scores
from doap.evaluation.scenes import Errors, draw_images, mean_of_scenes, scene_figure, split_scenes
from doap.geometry.pose import estimate_pose, pose_error
from doap.types import Progress, no_progress

INLIER = 1.0
"""Inlier threshold of RANSAC in pixels."""
THRESHOLDS = (10, 5, 20)
"""Thresholds of the AUC in degrees; the first one is the headline."""
BANDS = {"easy": (0.4, np.inf), "medium": (0.2, 0.4), "hard": (0.05, 0.2)}
"""Co-visibility of the pairs: share of the 3D points of one image that the other one sees."""


def _split(angles: object) -> object:
    """Split angles that are separated by commas."""
    return [part for part in angles.split(",") if part.strip()] if isinstance(angles, str) else angles


class PoseBenchmark:
    """Image pairs with ground-truth poses. `root` is a dataset in one of the formats of `posed_scenes`."""

    class Settings(KeypointSettings):
        """Settings of the benchmark `pose`."""

        images: int = Field(30, ge=2, description="Maximum number of images per scene.")
        pairs: int = Field(100, ge=1, description="Maximum number of pairs per scene.")
        validation: str = Field("", description="Comma-separated scenes to select the ratio threshold on.")
        test: str = Field("", description="Comma-separated scenes to evaluate; by default all others.")
        ratio: float = Field(0.9, gt=0, le=1, description="Ratio threshold if there are no validation scenes.")
        fewer_keypoints: int = Field(0, ge=0, description="Score also with so many of the keypoints; 0 for none.")
        turned: Annotated[tuple[float, ...], BeforeValidator(_split)] = Field(
            (), description="Comma-separated angles in degrees: score also with the second photo turned by each."
        )

    name = "pose"
    needs: Needs = "images"

    def __init__(self, root: str | Path, /, *, progress: Progress = no_progress, **settings: object) -> None:
        self.settings = self.Settings.parse(settings)
        import_extra("poselib", "eval")
        every = read_posed_pairs(root)
        validation, test = split_scenes(_scenes(every), self.settings.validation, self.settings.test)
        images, limit = self.settings.images, self.settings.pairs
        self.validation = draw_pairs([pair for pair in every if pair.scene in validation], images, limit)
        self.test = draw_pairs([pair for pair in every if pair.scene in test], images, limit)
        pairs = [*self.validation, *self.test]
        paths = sorted({path for pair in pairs for path in pair.paths})
        self._shared = SharedKeypoints(self.settings.detector, self.settings.max_keypoints)
        self._shared.read(paths, progress)
        self.dataset = Dataset(Path(root).resolve().stem, _checksum(paths, pairs))
        self.protocol = self._protocol(validation)

    def evaluate(self, candidate: Candidate, seed: int) -> Scores:
        """Select the ratio threshold on the validation scenes and score the test scenes."""
        matcher, fewer = PairMatcher(candidate, self._shared), self.settings.fewer_keypoints
        variants = {"": matcher}
        if fewer:
            variants[f", {fewer:,} keypoints"] = replace(matcher, limit=fewer)
        ratios, curves = {}, []
        for name, one in variants.items():
            ratios[name], areas = select_ratio_by_pose(one, self.validation, self.settings.ratio)
            if areas:
                curves.append(Curve(f"validation{name}", "ratio threshold", "AUC@10", areas))
        variants |= {_turned(degrees): replace(matcher, degrees=degrees) for degrees in self.settings.turned}
        errors = {name: pose_errors(one, self.test, ratios.get(name, ratios[""])) for name, one in variants.items()}
        selected = {f"ratio{name}": ratio for name, ratio in ratios.items() if ratio is not None}
        scores = _scores(self.test, errors, selected, seed)
        if self.settings.turned:
            curves.append(self._rotation(scores))
        return replace(scores, curves=(*scores.curves, *curves))

    def _rotation(self, scores: Scores) -> Curve:
        """Return the AUC@10 by the angle by which the second photo is turned."""
        names = {0.0: "AUC@10", **{degrees: f"AUC@10{_turned(degrees)}" for degrees in self.settings.turned}}
        areas = {one.name: one.total.value for one in scores.figures}
        return Curve(
            "rotation", "degrees", "AUC@10", [(degrees, areas[name]) for degrees, name in sorted(names.items())]
        )

    def _protocol(self, validation: Sequence[str]) -> dict[str, Any]:
        settings = self.settings
        return {
            **self._shared.protocol(),
            "images per scene": settings.images,
            "matches": "mutual nearest neighbours that pass the ratio test",
            "ratio": f"selected on {', '.join(validation)} by AUC@10" if validation else settings.ratio,
            "estimator": f"poselib, {INLIER:g} px, 1 seeds",
            "pairs": {scene: sum(pair.scene == scene for pair in self.test) for scene in _scenes(self.test)},
            "bands": {name: [low, high if np.isfinite(high) else None] for name, (low, high) in BANDS.items()},
            "fewer keypoints": settings.fewer_keypoints,
            "turned": list(settings.turned),
            "error": "larger of rotation and translation angle; infinite without an estimate",
            "resampled": "scenes, and pairs within scenes",
        }


def select_ratio_by_pose(
    matcher: PairMatcher, pairs: Sequence[PosedPair], default: float
) -> tuple[float | None, list[tuple[float, float]]]:
    """Select the ratio threshold with the best mean AUC@10 over the scenes of validation pairs.

    Returns:
        The ratio: `default` without pairs, and None for a pipeline with its own matcher. And the AUC@10 of each ratio.
    """
    if matcher.candidate.matcher:
        return None, []
    if not pairs:
        return default, []
    scenes = [pair.scene for pair in pairs]
    area = partial(area_under_recall, threshold=10)
    areas = [(ratio, mean_of_scenes(scenes, pose_errors(matcher, pairs, ratio), area)) for ratio in RATIOS]
    return max(areas, key=lambda one: one[1])[0], areas


def pose_errors(matcher: PairMatcher, pairs: Sequence[PosedPair], ratio: float | None) -> Errors:
    """Return the pose errors (P,) of P pairs in degrees; infinite without an estimate."""
    errors = []
    for pair in pairs:
        found = estimate_pose(*matcher.matched_points(*pair.paths, ratio), *pair.cameras, threshold=INLIER)
        errors.append(np.inf if found is None else pose_error(found, pair.pose))
    return np.array(errors)


def draw_pairs(pairs: Sequence[PosedPair], images_per_scene: int, pairs_per_scene: int) -> list[PosedPair]:
    """Draw images of each scene and pairs of them, an equal number from each band; always the same ones."""
    drawn: list[PosedPair] = []
    for scene in _scenes(pairs):
        of_scene = [pair for pair in pairs if pair.scene == scene]
        images = set(draw_images((path for pair in of_scene for path in pair.paths), images_per_scene))
        of_scene = [pair for pair in of_scene if images.issuperset(pair.paths)]
        bands = [[pair for pair in of_scene if band_of(pair) == band] for band in BANDS]
        if all(pair.overlap is None for pair in of_scene):
            bands = [of_scene]
        generator = stream(0, "pose pairs")
        for left, band in zip(range(len(bands), 0, -1), sorted(bands, key=len), strict=True):
            room = pairs_per_scene - sum(pair.scene == scene for pair in drawn)
            chosen = np.sort(generator.permutation(len(band))[: room // left])
            drawn += [band[index] for index in chosen]
    return drawn


def band_of(pair: PosedPair) -> str | None:
    """Return the name of a pair's band of co-visibility, or None without one."""
    overlap = pair.overlap
    if overlap is None:
        return None
    return next((name for name, (low, high) in BANDS.items() if low <= overlap < high), None)


def _turned(degrees: float) -> str:
    return f", turned by {degrees:g}°"


def _scenes(pairs: Sequence[PosedPair]) -> list[str]:
    return list(dict.fromkeys(pair.scene for pair in pairs))


def _scores(pairs: Sequence[PosedPair], variants: dict[str, Errors], selected: dict[str, float], seed: int) -> Scores:
    """Summarise the errors (P,) of P pairs in each variant, the standard one first."""
    scenes, errors = np.array([pair.scene for pair in pairs]), variants[""]
    area = partial(area_under_recall, threshold=10)
    figures = [
        scene_figure(f"AUC@{limit}", scenes, errors, partial(area_under_recall, threshold=limit), seed)
        for limit in THRESHOLDS
    ]
    figures.append(scene_figure("mAA@10", scenes, errors, _mean_accuracy, seed))
    bands = np.array([band_of(pair) or "" for pair in pairs])
    for band in BANDS:
        if (inside := bands == band).any():
            figures.append(scene_figure(f"AUC@10, {band}", scenes[inside], errors[inside], area, seed))
    figures += [
        scene_figure(f"AUC@10{variant}", scenes, others, area, seed) for variant, others in variants.items() if variant
    ]
    angles = np.linspace(0, 20, 81)
    recall = [float((errors <= angle).mean()) for angle in angles]
    curve = Curve("pose error", "error in degrees", "share of pairs", list(zip(angles.tolist(), recall, strict=True)))
    return Scores(tuple(figures), (curve,), selected=selected)


def _mean_accuracy(errors: Errors) -> float:
    return float(np.mean([(errors <= limit).mean() for limit in range(1, 11)]))


def _checksum(paths: Sequence[Path], pairs: Sequence[PosedPair]) -> str:
    """Return a checksum of the images and of the true poses."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    for pair in pairs:
        digest.update(f"{pair.scene} {pair.name}".encode())
        digest.update(pair.pose.rotation.astype("<f8").tobytes() + pair.pose.translation.astype("<f8").tobytes())
    return digest.hexdigest()
