"""Reconstruct scenes with known cameras in COLMAP, from COLMAP's own features and from doap's.

    python benchmarks/reconstruct.py STRECHA doap-128 --detector colmap --out results/reconstruct.json

STRECHA contains folders of half-size photos with `NNNN.jpg.camera` files (Strecha et al., 2008). All variants use the
known calibration in the mapper (not in matching and verification), the same number of keypoints, the same ratio test,
one thread and one seed. COLMAP limits the number of locations, and a location can have two orientations; the limit of
the other variants is the number of keypoints that COLMAP returned. Camera centres and rotations are compared with the
ground truth after the best similarity transform.

    colmap            COLMAP's SIFT and matcher
    rootsift          a database of `doap colmap` with RootSIFT and doap's matches
    rootsift bytes    the same keypoints, COLMAP's matcher on doap's uint8 descriptors
    NAME, NAME bytes  the same with other descriptors, if given
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pycolmap
import record

from doap.describer import Describer
from doap.evaluation.descriptors import open_describers
from doap.export.colmap import write_colmap

CPU = pycolmap.Device.cpu


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("strecha", type=Path, help="folder of scenes")
    parser.add_argument("--scenes", nargs="*", help="names of scenes (default: all)")
    parser.add_argument("descriptors", nargs="*", help="names or files, in addition to rootsift")
    parser.add_argument("--detector", default="sift", help="keypoint detector of doap's variants")
    parser.add_argument("--max-keypoints", type=int, default=8192, help="COLMAP's limit of keypoints per image")
    parser.add_argument("--ratio", type=float, default=0.8, help="ratio test of all matchers; 0.8 is COLMAP's default")
    options = parser.parse_args()
    pycolmap.logging.minloglevel = pycolmap.logging.FATAL.value
    opened = open_describers(["rootsift", *options.descriptors])
    descriptors = {name: one.describer for name, one in opened.items()}
    scenes = sorted(path for path in options.strecha.iterdir() if not options.scenes or path.name in options.scenes)
    figures = {scene.name: reconstruct_scene(scene, descriptors, options) for scene in scenes}
    record.write(
        options.out,
        options.seed,
        {
            "max_keypoints": options.max_keypoints,
            "ratio": options.ratio,
            "detector": options.detector,
            "scenes": figures,
        },
    )


def reconstruct_scene(scene: Path, descriptors: dict[str, Describer], options: Any) -> dict[str, dict[str, Any]]:
    """Return the figures of all variants for one scene."""
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        paths = {"colmap": own_database(scene, work / "colmap.db", options)}
        max_keypoints = contents(paths["colmap"])["keypoints"] // len(list(scene.glob("*.camera")))
        for name, descriptor in descriptors.items():
            common = {
                "max_keypoints": max_keypoints,
                "camera_mode": "single",
                "detector": options.detector,
            }
            ours, codes = work / f"{name}.db", work / f"{name}-bytes.db"
            write_colmap(scene, ours, descriptor, ratio=options.ratio, **common)
            paths[name] = ours
            if descriptor.kind == "real" and descriptor.dim == 128:
                # The features are the same: reuse them.
                (work / f"{name}.db.features").rename(work / f"{name}-bytes.db.features")
                write_colmap(scene, codes, descriptor, pairs=None, **common)
                match_exhaustive(codes, options)
                paths[f"{name} bytes"] = codes
        for name, database in paths.items():
            figures[name] = {**contents(database), **reconstruct(scene, database, work / f"{name} model", options.seed)}
            if name.endswith(" bytes"):
                ours = paths[name.removesuffix(" bytes")]
                figures[name]["share of verified float matches"] = share_found(ours, database)
    show(scene.name, figures)
    return figures


def show(scene: str, variants: dict[str, dict[str, Any]]) -> None:
    """Print a table with one row per figure and one column per variant."""
    print(f"\n{scene:34}" + "".join(f"{name:>20}" for name in variants))
    for figure in dict.fromkeys(figure for variant in variants.values() for figure in variant):
        values = [variant.get(figure, float("nan")) for variant in variants.values()]
        print(
            f"{figure:34}"
            + "".join(f"{value:20,.4f}" if isinstance(value, float) else f"{value:20,}" for value in values)
        )


def own_database(scene: Path, database: Path, options: Any) -> Path:
    """Write a database with COLMAP's own features and matches."""
    pycolmap.extract_features(
        database,
        scene,
        camera_mode=pycolmap.CameraMode.SINGLE,
        extraction_options=pycolmap.FeatureExtractionOptions(
            num_threads=1, use_gpu=False, sift={"max_num_features": options.max_keypoints}
        ),
        device=CPU,
    )
    match_exhaustive(database, options)
    return database


def match_exhaustive(database: Path, options: Any) -> None:
    """Match all pairs with COLMAP's own matcher."""
    pycolmap.match_exhaustive(
        database,
        matching_options=pycolmap.FeatureMatchingOptions(
            num_threads=1, use_gpu=False, sift={"max_ratio": options.ratio}
        ),
        verification_options=pycolmap.TwoViewGeometryOptions(ransac={"random_seed": options.seed}),
        device=CPU,
    )


def calibrate(database: Path, scene: Path) -> None:
    """Set the known camera of a scene, which all its photos share; the files give it for full-size photos."""
    rows = camera_rows(min(scene.glob("*.camera")))
    with pycolmap.Database.open(database) as opened:
        (camera,) = opened.read_all_cameras()
        camera.model = pycolmap.CameraModelId.PINHOLE
        camera.params = [rows[0][0] / 2, rows[1][1] / 2, rows[0][2] / 2, rows[1][2] / 2]
        camera.has_prior_focal_length = True
        opened.update_camera(camera)


def contents(database: Path) -> dict[str, int]:
    """Return the numbers of keypoints, matches and pairs in a database."""
    with pycolmap.Database.open(database) as opened:
        return {
            "keypoints": opened.num_keypoints(),
            "matches": opened.num_matches(),
            "verified matches": opened.num_inlier_matches(),
            "verified pairs": opened.num_verified_image_pairs(),
        }


def reconstruct(scene: Path, database: Path, model: Path, seed: int) -> dict[str, Any]:
    """Return the figures of the largest model, with the errors of its cameras."""
    model.mkdir()
    calibrate(database, scene)
    known = {"ba_refine_focal_length": False, "ba_refine_extra_params": False}
    options = pycolmap.IncrementalPipelineOptions(num_threads=1, random_seed=seed, extract_colors=False, **known)
    models = pycolmap.incremental_mapping(database, scene, model, options)
    photos = len(list(scene.glob("*.camera")))
    if not models:
        return {"photos": photos, "registered": 0}
    largest = max(models.values(), key=lambda one: one.num_reg_images())
    return {
        "photos": photos,
        "registered": largest.num_reg_images(),
        "points": largest.num_points3D(),
        "track length": largest.compute_mean_track_length(),
        "reprojection error, px": largest.compute_mean_reprojection_error(),
        **pose_errors(largest, {path.name.removesuffix(".camera"): true_pose(path) for path in scene.glob("*.camera")}),
    }


def camera_rows(path: Path) -> list[list[float]]:
    """Return the lines of a camera file: K (3), zeros, Rᵀ (3), centre, width and height."""
    return [[float(word) for word in line.split()] for line in path.read_text().splitlines() if line.strip()]


def true_pose(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the rotation (3, 3), world to camera, and the centre (3,) in metres."""
    rows = camera_rows(path)
    return np.array(rows[4:7]).T, np.array(rows[7])


def pose_errors(model: Any, truth: dict[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """Return the errors of centres and rotations after aligning the centres with a similarity (Umeyama)."""
    images = [image for image in model.images.values() if image.has_pose]
    centres = np.array([image.projection_center() for image in images])
    true_centres = np.array([truth[image.name][1] for image in images])
    similarity = pycolmap.estimate_sim3d(centres, true_centres)
    if similarity is None:
        return {}
    distances = np.linalg.norm([similarity * centre for centre in centres] - true_centres, axis=1)
    rotation = similarity.rotation.matrix()
    residuals = [image.cam_from_world().rotation.matrix() @ rotation.T @ truth[image.name][0].T for image in images]
    angles = [np.degrees(np.arccos(np.clip((np.trace(one) - 1) / 2, -1, 1))) for one in residuals]
    return {
        "centre error, median m": float(np.median(distances)),
        "centre error, largest m": float(distances.max()),
        "rotation error, median degrees": float(np.median(angles)),
    }


def share_found(ours: Path, theirs: Path) -> float:
    """Return the share of our geometrically verified matches that COLMAP's matcher also finds, before verification."""
    found, total = 0, 0
    with pycolmap.Database.open(ours) as first, pycolmap.Database.open(theirs) as second:
        for pair, geometry in zip(*first.read_two_view_geometries(), strict=True):
            verified = {tuple(row) for row in np.asarray(geometry.inlier_matches).tolist()}
            other = second.read_matches(*pycolmap.pair_id_to_image_pair(pair)).tolist()
            found, total = found + len(verified.intersection(map(tuple, other))), total + len(verified)
    return found / max(total, 1)


if __name__ == "__main__":
    main()
