"""Reconstruct scenes with known cameras in COLMAP, from COLMAP's default features and from those of `doap colmap`.

    python benchmarks/reconstruct.py SCENES --images 20 --models 2 --out test.json

Each argument is a folder of scenes in one of the formats of `doap.evaluation.posed_scenes`. The variants are

    colmap    COLMAP's feature extractor, exhaustive matcher and verification, as they are by default
    NAME      the database of `doap colmap IMAGES --out DATABASE --descriptor NAME`, with its defaults or with --ratio
              and --max-error

COLMAP guesses the intrinsics from EXIF data and refines them. All variants use the same mapper and one thread. Each
database is mapped with several seeds. Figures are means over these models; `centre_errors` lists the median error of
each. Camera centres and rotations are compared with the ground truth after the best similarity transform. Centre errors
are relative to the mean distance of the true centres from their mean. One wrong camera can spoil the transform and with
it all errors. Therefore `pairs_within_5_degrees` compares the relative poses of all pairs of photos, as the benchmark
`sfm` does; a pair with an unregistered photo is wrong.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pycolmap
import record

import doap
from doap.evaluation.mapping import map_database, registered_poses, summarise_models
from doap.evaluation.posed_scenes import PosedScene, read_posed_scenes
from doap.evaluation.sfm import relative_pose_errors
from doap.geometry.pose import Pose, rotation_angle

CPU = pycolmap.Device.cpu


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("roots", type=Path, nargs="+", help="folders of scenes")
    parser.add_argument("--scenes", nargs="*", help="names of scenes (default: all)")
    parser.add_argument("--variants", nargs="*", default=["colmap", "rootsift", "doap-128"])
    parser.add_argument("--ratio", type=float, help="ratio test of `doap colmap` (default: its own)")
    parser.add_argument("--max-error", type=float, help="epipolar error of `doap colmap` (default: its own)")
    parser.add_argument("--images", type=int, default=15, help="maximum number of images per scene, evenly spaced")
    parser.add_argument("--models", type=int, default=3, help="number of models per database, each with its own seed")
    options = parser.parse_args()
    pycolmap.logging.minloglevel = pycolmap.logging.FATAL.value
    figures = {}
    for scene in (scene for root in options.roots for scene in read_posed_scenes(root)):
        if options.scenes and scene.name not in options.scenes:
            continue
        chosen = np.linspace(0, len(scene.images) - 1, min(options.images, len(scene.images))).round().astype(int)
        scene = replace(scene, images=tuple(scene.images[number] for number in chosen))
        figures[scene.name] = reconstruct_scene(scene, options)
        show(scene.name, figures[scene.name])
        record.write(options.out, options.seed, {"images": options.images, "models": options.models, "scenes": figures})


def reconstruct_scene(scene: PosedScene, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return the figures of all variants for one scene."""
    given = {"ratio": options.ratio, "max_error": options.max_error}
    settings = {name: value for name, value in given.items() if value is not None}
    figures = {}
    for variant in options.variants:
        with tempfile.TemporaryDirectory() as folder:
            database, images = Path(folder) / "database.db", Path(folder) / "images"
            images.mkdir()
            for image in scene.images:
                (images / image.path.name).symlink_to(image.path.resolve())
            if variant == "colmap":
                write_with_colmap(images, database, options.seed)
            else:
                doap.write_colmap(images, database, variant, **settings)
            models = [
                map_database(database, images, Path(folder) / str(seed), seed)
                for seed in range(options.seed, options.seed + options.models)
            ]
            figures[variant] = {"photos": len(scene.images), **contents(database), **summarise(models, scene)}
    return figures


def summarise(runs: list[list[Any]], scene: PosedScene) -> dict[str, Any]:
    """Return the means of all figures over several runs of the mapper."""
    truth = {image.path.name: image.pose for image in scene.images}
    rows = [figures_of(models, truth) for models in runs]
    names = dict.fromkeys(name for row in rows for name in row)
    found = {name: [row[name] for row in rows if row.get(name) is not None] for name in names}
    means = {name: statistics.fmean(values) for name, values in found.items() if values}
    return {**means, "centre_errors": found.get("median_centre_error", [])}


def write_with_colmap(images: Path, database: Path, seed: int) -> None:
    """Write a database with COLMAP's default features and matches."""
    extraction = pycolmap.FeatureExtractionOptions(num_threads=1, use_gpu=False)
    pycolmap.extract_features(database, images, extraction_options=extraction, device=CPU)
    pycolmap.match_exhaustive(
        database,
        matching_options=pycolmap.FeatureMatchingOptions(num_threads=1, use_gpu=False),
        verification_options=pycolmap.TwoViewGeometryOptions(ransac={"random_seed": seed}),
        device=CPU,
    )


def contents(database: Path) -> dict[str, int]:
    """Return the numbers of keypoints and verified matches in a database."""
    with pycolmap.Database.open(database) as opened:
        return {"keypoints": opened.num_keypoints(), "verified_matches": opened.num_inlier_matches()}


def figures_of(models: list[Any], truth: dict[str, Pose]) -> dict[str, Any]:
    """Return the figures of one run of the mapper."""
    poses = [registered_poses(model) for model in models]
    errors = relative_pose_errors(truth, poses)
    figures = {**vars(summarise_models(models)), "pairs_within_5_degrees": float((errors <= 5).mean())}
    return {**figures, **camera_errors(poses[0], truth)} if poses else figures


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
