"""Reconstruct photo sets with COLMAP, from its own default features and from those of other descriptors.

    python benchmarks/reconstruct.py SCENES strecha photos/caliterra --out results/reconstruct.json

Each argument is a folder of scenes in one of the formats of `doap.evaluation.posed_scenes`, or a folder of photos,
whose true cameras are unknown. Sets with more photos than the maximum begin with the first ones by name, because
neighbours overlap. The variants are

    colmap            COLMAP's feature extractor, exhaustive matcher and verification, as they are by default
    colmap-ratio      the same with the ratio test and the maximum epipolar error that `doap colmap` has for RootSIFT
    aliked-lightglue  keypoints and matches of a learned pipeline, verified by COLMAP with its default error
    NAME              the database of `doap colmap IMAGES --out DATABASE --descriptor NAME`
    NAME@RATIO        the same with another ratio test than the descriptor's own

COLMAP guesses the intrinsics from EXIF data and refines them. All variants use the same mapper in one thread; all that
comes before it may use all cores, and takes `minutes`. Run nothing else beside it. Each database is mapped with several
seeds, and figures are means over these models; `centre_errors` lists the median error of each. Camera centres and
rotations are compared with the ground truth after the best similarity transform. Centre errors are relative to the mean
distance of the true centres from their mean. One wrong camera can spoil the transform and with it all errors. Therefore
`pairs_within_5_degrees` compares the relative poses of all pairs of photos, as the benchmark `sfm` does; a pair with an
unregistered photo is wrong.

The run continues with the variants that are missing in the file of results.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import numpy as np
import pycolmap
import record

import doap
from doap.baselines import PIPELINES
from doap.evaluation.mapping import map_database, registered_poses, summarise_models
from doap.evaluation.posed_scenes import read_posed_scenes
from doap.evaluation.sfm import relative_pose_errors
from doap.export.colmap_database import MAX_ERROR, create_database, verify_matches, write_matched_features
from doap.geometry.pose import Pose, rotation_angle
from doap.images import list_images

CPU = pycolmap.Device.cpu
VARIANTS = ["colmap", "colmap-ratio", "doap-128", "doap-fast", "doap-256bit", "aliked-lightglue"]
PIPELINE_KEYPOINTS = 2048
"""Maximum number of keypoints of a learned pipeline: more are out of reach on a CPU."""
Photos = dict[Path, Pose | None]
"""True poses, or None, by photo."""


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("roots", type=Path, nargs="+", help="folders of scenes, or of photos")
    parser.add_argument("--variants", nargs="*", default=VARIANTS)
    parser.add_argument("--images", type=int, default=20, help="maximum number of photos per set")
    parser.add_argument("--models", type=int, default=2, help="number of models per database, each with its own seed")
    options = parser.parse_args()
    pycolmap.logging.minloglevel = pycolmap.logging.FATAL.value
    done: dict[str, Any] = json.loads(options.out.read_text())["scenes"] if options.out.exists() else {}
    # Sets take turns, so that an interrupted run has all variants of the first sets.
    for name, photos in (item for root in options.roots for item in read_sets(root).items()):
        drawn = dict(islice(photos.items(), options.images))
        for variant in options.variants:
            if variant in done.setdefault(name, {}):
                continue
            done[name][variant] = reconstruct(drawn, variant, options)
            settings = {"images": options.images, "models": options.models}
            record.write(options.out, options.seed, {**settings, "scenes": done})
        show(name, done[name])


def read_sets(root: Path) -> dict[str, Photos]:
    """Return the photos and true poses of each set in a folder, by name."""
    if photos := [path for path in list_images(root) if path.parent == root]:
        return {root.name: dict.fromkeys(photos)}
    return {scene.name: {image.path: image.pose for image in scene.images} for scene in read_posed_scenes(root)}


def reconstruct(photos: Photos, variant: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one variant for one set of photos."""
    with tempfile.TemporaryDirectory() as folder:
        database, images = Path(folder) / "database.db", Path(folder) / "images"
        images.mkdir()
        for path in photos:
            (images / path.name).symlink_to(path.resolve())
        begin = time.perf_counter()
        write_database(variant, images, database, options.seed)
        minutes = (time.perf_counter() - begin) / 60
        runs = [
            map_database(database, images, Path(folder) / str(seed), seed)
            for seed in range(options.seed, options.seed + options.models)
        ]
        truth = {path.name: pose for path, pose in photos.items() if pose is not None}
        return {"photos": len(photos), "minutes": minutes, **contents(database), **summarise(runs, truth)}


def summarise(runs: list[list[Any]], truth: dict[str, Pose]) -> dict[str, Any]:
    """Return the means of all figures over several runs of the mapper."""
    rows = [figures_of(models, truth) for models in runs]
    names = dict.fromkeys(name for row in rows for name in row)
    found = {name: [row[name] for row in rows if row.get(name) is not None] for name in names}
    means = {name: statistics.fmean(values) for name, values in found.items() if values}
    return {**means, "centre_errors": found.get("median_centre_error", [])}


def write_database(variant: str, images: Path, database: Path, seed: int) -> None:
    """Write the database of a variant."""
    if variant == "colmap":
        write_with_colmap(images, database, seed)
    elif variant == "colmap-ratio":
        write_with_colmap(images, database, seed, max_ratio=doap.load("rootsift").ratio, max_error=MAX_ERROR)
    elif variant in PIPELINES:
        write_with_pipeline(variant, images, database, seed)
    else:
        name, _, ratio = variant.partition("@")
        doap.write_colmap(images, database, name, ratio=float(ratio) if ratio else None)


def write_with_colmap(
    images: Path, database: Path, seed: int, max_ratio: float | None = None, max_error: float | None = None
) -> None:
    """Write a database with COLMAP's features and matches; its defaults hold for what is not given."""
    extraction = pycolmap.FeatureExtractionOptions(use_gpu=False)
    pycolmap.extract_features(database, images, extraction_options=extraction, device=CPU)
    sift = {} if max_ratio is None else {"max_ratio": max_ratio}
    ransac = {"random_seed": seed} if max_error is None else {"random_seed": seed, "max_error": max_error}
    pycolmap.match_exhaustive(
        database,
        matching_options=pycolmap.FeatureMatchingOptions(use_gpu=False, sift=sift),
        verification_options=pycolmap.TwoViewGeometryOptions(ransac=ransac),
        device=CPU,
    )


def write_with_pipeline(name: str, images: Path, database: Path, seed: int) -> None:
    """Write a database with the keypoints and matches of a learned pipeline."""
    pipeline = doap.load(name)
    features = {path.name: pipeline.extract(path, max_keypoints=PIPELINE_KEYPOINTS) for path in list_images(images)}
    create_database(database, images, list(features), "auto")
    matches = (
        (first, second, pipeline.matcher.match(features[first], features[second]))
        for first, second in combinations(features, 2)
    )
    write_matched_features(database, features, matches)
    verify_matches(database, seed)


def contents(database: Path) -> dict[str, int]:
    """Return the numbers of keypoints and verified matches in a database."""
    with pycolmap.Database.open(database) as opened:
        return {"keypoints": opened.num_keypoints(), "verified_matches": opened.num_inlier_matches()}


def figures_of(models: list[Any], truth: dict[str, Pose]) -> dict[str, Any]:
    """Return the figures of one run of the mapper."""
    poses = [registered_poses(model) for model in models]
    figures = vars(summarise_models(models))
    if truth:
        errors = relative_pose_errors(truth, poses)
        figures = {**figures, "pairs_within_5_degrees": float((errors <= 5).mean())}
        figures |= camera_errors(poses[0], truth) if poses else {}
    return figures


def camera_errors(poses: dict[str, Pose], truth: dict[str, Pose]) -> dict[str, float]:
    """Return the errors of centres and rotations after aligning the centres with a similarity (Umeyama)."""
    centres, true_centres = (np.array([centre(some[name]) for name in poses]) for some in (poses, truth))
    similarity = pycolmap.estimate_sim3d(centres, true_centres)
    if similarity is None:
        return {}
    distances = np.linalg.norm([similarity * one for one in centres] - true_centres, axis=1)
    extent = np.linalg.norm(true_centres - true_centres.mean(axis=0), axis=1).mean()
    rotation = similarity.rotation.matrix()
    residuals = [pose.rotation @ rotation.T @ truth[name].rotation.T for name, pose in poses.items()]
    angles = [rotation_angle(one) for one in residuals]
    return {
        "median_centre_error": float(np.median(distances) / extent),
        "largest_centre_error": float(distances.max() / extent),
        "median_rotation_error_degrees": float(np.median(angles)),
    }


def centre(pose: Pose) -> np.ndarray:
    """Return the centre (3,) of a camera."""
    return -pose.rotation.T @ pose.translation


def show(scene: str, variants: dict[str, dict[str, Any]]) -> None:
    """Print a table with one row per figure and one column per variant."""
    print(f"\n{scene:34}" + "".join(f"{name:>20}" for name in variants))
    for figure in dict.fromkeys(figure for variant in variants.values() for figure in variant):
        # A scene without a model has no reprojection error.
        found = (variant.get(figure) for variant in variants.values())
        values = [float("nan") if value is None else value for value in found]
        if figure == "centre_errors":
            continue
        cells = (f"{value:20,.5f}" if isinstance(value, float) else f"{value:20,}" for value in values)
        print(f"{figure:34}" + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
