"""Benchmark `sfm`: camera poses of a COLMAP reconstruction from each descriptor's matches.

Keypoints are detected once for all descriptors. All image pairs of a scene are matched, COLMAP verifies the matches and
reconstructs the scene (incremental mapping) from its own guess of the intrinsics. The figures follow COLMAP's own
reconstruction benchmark:

    AUC@t                 Area under the cumulative curve of relative pose errors up to t degrees, divided by t, over
                          all ordered image pairs of the scene. The error is the larger of the rotation error and the
                          angle between the translations. A pair has an infinite error if one of its images is not
                          registered or if they are in different models.
    registered            Share of the images that the largest model contains.
    points, track length  Number of 3D points of the largest model, and mean number of images that observe a point.
    reprojection error    Mean reprojection error of the largest model in pixels, over the scenes with a model.

The headline is AUC@5, because the poses of internet photos are themselves estimates, good to about one degree. There
are two differences to COLMAP's benchmark. It counts a pair once for every model that contains it, this benchmark uses
the largest of them. It ignores the translation of pairs with a baseline below the accuracy of the true positions, which
is unknown for scenes of arbitrary scale. A descriptor that only matches easy points has a smaller reprojection error.

Figures are means over scenes. Intervals of the AUC resample scenes, and image pairs within each scene; other intervals
resample scenes. The ratio threshold is fixed, or selected on validation scenes as in the benchmark `pose`, because six
reconstructions of each would take too long.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from doap._support.errors import DataError, import_extra
from doap._support.files import sha256
from doap.evaluation.bootstrap import bootstrap_mean
from doap.evaluation.candidates import Candidate, Needs
from doap.evaluation.homography import area_under_recall
from doap.evaluation.mapping import MIN_IMAGES, Reconstruction, map_database, registered_poses, summarise_models
from doap.evaluation.pair_matcher import KeypointSettings, PairMatcher, SharedKeypoints
from doap.evaluation.pose import PoseBenchmark, draw_pairs, select_ratio_by_pose
from doap.evaluation.posed_scenes import PosedScene, pairs_of, read_posed_scenes
from doap.evaluation.result import Curve, Dataset, Direction, Figure, Scores
from doap.evaluation.scenes import Errors, draw_images, mean_of_scenes, scene_figure, split_scenes
from doap.export.colmap_database import create_database, verify_matches, write_matched_features
from doap.geometry.pose import Pose, pose_error
from doap.types import Progress, no_progress

SEED = 0
"""Seed of COLMAP's RANSAC and mapper."""
THRESHOLDS = (5, 0.5, 1, 10)
"""Thresholds of the AUC in degrees; the first one is the headline."""


@dataclass(frozen=True, eq=False)
class ReconstructedScene:
    """Pose errors (P, 2) of image pairs in both directions, share of images in the largest model, and its summary."""

    errors: Errors
    registered: float
    model: Reconstruction


class SfmBenchmark:
    """Scenes with ground-truth poses that COLMAP reconstructs.

    `root` has scenes in one of the formats of `doap.evaluation.posed_scenes`.
    """

    class Settings(KeypointSettings):
        """Settings of the benchmark `sfm`."""

        images: int = Field(20, ge=MIN_IMAGES, description="Maximum number of images per scene.")
        validation: str = Field("", description="Comma-separated scenes to select the ratio threshold on.")
        test: str = Field("", description="Comma-separated scenes to evaluate; by default all others.")
        ratio: float = Field(0.85, gt=0, le=1, description="Ratio threshold if there are no validation scenes.")

    name = "sfm"
    needs: Needs = "images"

    def __init__(self, root: str | Path, /, *, progress: Progress = no_progress, **settings: object) -> None:
        self.settings = self.Settings.parse(settings)
        scenes = {scene.name: scene for scene in read_posed_scenes(root)}
        validation, test = split_scenes(list(scenes), self.settings.validation, self.settings.test)
        self.test = [_draw(scenes[name], self.settings.images) for name in test]
        for scene in self.test:
            if len(scene.images) < MIN_IMAGES:
                raise DataError(f"{scene.folder}: expected {MIN_IMAGES} or more images, got {len(scene.images)}.")
        # The same validation pairs as the benchmark `pose`, so both select the same ratio.
        if validation:
            import_extra("poselib", "eval")
        pairs, of_pose = [pair for name in validation for pair in pairs_of(scenes[name])], PoseBenchmark.Settings()
        self.validation = draw_pairs(pairs, of_pose.images, of_pose.pairs)
        paths = [image.path for scene in self.test for image in scene.images]
        self._shared = SharedKeypoints(self.settings.detector, self.settings.max_keypoints)
        self._shared.read(paths, progress)
        used = [*(scenes[name] for name in validation), *self.test]
        self.dataset = Dataset(Path(root).resolve().stem, _checksum(used))
        self.protocol = self._protocol(validation)

    def evaluate(self, candidate: Candidate, seed: int) -> Scores:
        """Reconstruct the test scenes and score the poses."""
        matcher = PairMatcher(candidate, self._shared)
        ratio, _ = select_ratio_by_pose(matcher, self.validation, self.settings.ratio)
        found = {scene.name: self._reconstruct(scene, matcher, ratio) for scene in self.test}
        return _scores(found, {} if ratio is None else {"ratio": ratio}, seed)

    def _reconstruct(self, scene: PosedScene, matcher: PairMatcher, ratio: float | None) -> ReconstructedScene:
        """Match all pairs of a scene and reconstruct it."""
        paths = {image.path.relative_to(scene.folder).as_posix(): image.path for image in scene.images}
        features = {name: matcher.features(path) for name, path in paths.items()}
        matches = (
            (name0, name1, matcher.match(paths[name0], paths[name1], ratio)) for name0, name1 in combinations(paths, 2)
        )
        with tempfile.TemporaryDirectory() as folder:
            database = Path(folder) / "database.db"
            create_database(database, scene.folder, list(paths), "single" if scene.shared_camera else "per-image")
            write_matched_features(database, features, matches)
            verify_matches(database, SEED)
            out = Path(folder) / "models"
            models = map_database(database, scene.folder, out, SEED)
            poses = [registered_poses(model) for model in models]
            model = summarise_models(models)
        truth = dict(zip(paths, (image.pose for image in scene.images), strict=True))
        return ReconstructedScene(relative_pose_errors(truth, poses), model.registered / len(paths), model)

    def _protocol(self, validation: Sequence[str]) -> dict[str, Any]:
        settings = self.settings
        return {
            **self._shared.protocol(),
            "matches": "mutual nearest neighbours that pass the ratio test, all image pairs",
            "ratio": f"selected on {', '.join(validation)} by pose AUC@10" if validation else settings.ratio,
            "mapper": f"COLMAP, incremental, seed {SEED}",
            "cameras": "unknown",
            "images": {scene.name: len(scene.images) for scene in self.test},
            "shared camera": {scene.name: scene.shared_camera for scene in self.test},
            "error": "larger of rotation and signed translation angle; infinite unless both images are in one model",
            "resampled": "scenes, and image pairs within scenes",
        }


def relative_pose_errors(truth: dict[str, Pose], models: Sequence[dict[str, Pose]]) -> Errors:
    """Return the relative pose errors of all image pairs in degrees.

    Args:
        truth: True poses of n images, world to camera, by name.
        models: Estimated poses of the images of each model, in its own coordinate frame, the largest model first.

    Returns:
        (n(n−1)/2, 2) errors of each pair, from its first image to the second and back. The directions of the two
        translations are measured in different cameras, so the errors differ slightly. They are infinite if no model
        contains both images.
    """
    errors = []
    for first, second in combinations(truth, 2):
        model = next((model for model in models if first in model and second in model), None)
        if model is None:
            errors.append([np.inf, np.inf])
            continue
        directions = (first, second), (second, first)
        errors.append(
            [
                pose_error(model[to].relative_to(model[start]), truth[to].relative_to(truth[start]), signed=True)
                for start, to in directions
            ]
        )
    return np.array(errors, np.float64)


def _draw(scene: PosedScene, limit: int) -> PosedScene:
    """Return a scene with up to `limit` of its images."""
    drawn = set(draw_images((image.path for image in scene.images), limit))
    return replace(scene, images=tuple(image for image in scene.images if image.path in drawn))


def _scores(found: dict[str, ReconstructedScene], selected: dict[str, float], seed: int) -> Scores:
    scenes = [name for name, scene in found.items() for _ in scene.errors]
    errors = np.concatenate([scene.errors for scene in found.values()])
    figures = [
        scene_figure(f"AUC@{limit:g}", scenes, errors, partial(_area, limit=limit), seed) for limit in THRESHOLDS
    ]
    one_per_scene: dict[str, tuple[Direction, dict[str, float | None]]] = {
        "registered": ("higher", {name: scene.registered for name, scene in found.items()}),
        "points": ("higher", {name: float(scene.model.points) for name, scene in found.items()}),
        "track length": ("higher", {name: scene.model.track_length for name, scene in found.items()}),
        "reprojection error": ("lower", {name: scene.model.reprojection_error for name, scene in found.items()}),
    }
    for name, (better, values) in one_per_scene.items():
        known = {scene: value for scene, value in values.items() if value is not None}
        # No scene has a reprojection error if none was reconstructed.
        if known:
            parts = {scene: bootstrap_mean([value], seed) for scene, value in known.items()}
            figures.append(Figure(name, better, "scenes", bootstrap_mean(list(known.values()), seed), parts))
    angles = np.linspace(0, 10, 81)
    recall = [mean_of_scenes(scenes, errors <= angle, lambda below: float(below.mean())) for angle in angles]
    points = list(zip(angles.tolist(), recall, strict=True))
    curve = Curve("pose error", "error in degrees", "share of pairs", points)
    return Scores(tuple(figures), (curve,), selected=selected)


def _area(errors: Errors, limit: float) -> float:
    return area_under_recall(errors.ravel(), limit)


def _checksum(scenes: Sequence[PosedScene]) -> str:
    """Return a checksum of the images and their poses."""
    digest = hashlib.sha256()
    for scene in scenes:
        for image in scene.images:
            digest.update(f"{scene.name} {image.path.name} {sha256(image.path)}".encode())
            for array in (image.pose.rotation, image.pose.translation):
                digest.update(array.astype("<f8").tobytes())
    return digest.hexdigest()
