"""Photos with known cameras, reconstructed by COLMAP from its own features and from ours.

    python benchmarks/reconstruct.py STRECHA doap-128 --detector colmap --out results/reconstruct.json

STRECHA holds folders of photos at half size with `NNNN.jpg.camera` files (Strecha and others, 2008). All paths have
the true camera (features are matched and verified without it), as many keypoints, the same ratio test, one thread and
one seed. COLMAP's cap counts spots, of which one may have two directions; ours count as many keypoints as that gave.
Camera centres are held against the true ones after the similarity that fits them best, rotations too.

    colmap            COLMAP's own SIFT and its own matcher
    rootsift          a database by `doap colmap`, RootSIFT, our matches
    rootsift bytes    the same keypoints, COLMAP's own matcher on our bytes
    (others)          the same two with other descriptors, if given
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pycolmap
import record

from doap.cli.names import open_descriptors, open_detector
from doap.describer import Describer
from doap.export.colmap import write_database

CPU = pycolmap.Device.cpu


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("strecha", type=Path)
    parser.add_argument("--places", nargs="*", help="some of the folders; else all")
    parser.add_argument("descriptors", nargs="*", help="names or files, beside rootsift")
    parser.add_argument("--detector", default="sift", help="whose keypoints ours see")
    parser.add_argument("--max-keypoints", type=int, default=8192, help="COLMAP's cap on keypoints of a photo")
    parser.add_argument("--ratio", type=float, default=0.8, help="of all matchers; 0.8 is COLMAP's")
    options = parser.parse_args()
    pycolmap.logging.minloglevel = pycolmap.logging.FATAL.value
    descriptors, _ = open_descriptors(["rootsift", *options.descriptors])
    places = sorted(path for path in options.strecha.iterdir() if not options.places or path.name in options.places)
    figures = {place.name: reconstruct_place(place, descriptors, options) for place in places}
    record.write(
        options.out,
        options.seed,
        {
            "max_keypoints": options.max_keypoints,
            "ratio": options.ratio,
            "detector": options.detector,
            "places": figures,
        },
    )


def reconstruct_place(place: Path, descriptors: dict[str, Describer], options: Any) -> dict[str, dict[str, Any]]:
    """All paths for one place."""
    told = {}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        paths = {"colmap": own_database(place, work / "colmap.db", options)}
        max_keypoints = contents(paths["colmap"])["keypoints"] // len(list(place.glob("*.camera")))
        for name, descriptor in descriptors.items():
            common = {
                "max_keypoints": max_keypoints,
                "camera_mode": "single",
                "detector": open_detector(options.detector),
            }
            ours, codes = work / f"{name}.db", work / f"{name}-bytes.db"
            write_database(place, ours, descriptor, ratio=options.ratio, **common)
            paths[name] = ours
            if descriptor.kind == "real" and descriptor.dim == 128:
                # The features are the same, so they are not looked for twice.
                (work / f"{name}.db.features").rename(work / f"{name}-bytes.db.features")
                write_database(place, codes, descriptor, pairs=None, **common)
                match_exhaustive(codes, options)
                paths[f"{name} bytes"] = codes
        for name, database in paths.items():
            told[name] = {**contents(database), **reconstruct(place, database, work / f"{name} model", options.seed)}
            if name.endswith(" bytes"):
                ours = paths[name.removesuffix(" bytes")]
                told[name]["share of verified float matches"] = share_found(ours, database)
    show(place.name, told)
    return told


def show(place: str, told: dict[str, dict[str, Any]]) -> None:
    """A table: figures down, paths across."""
    print(f"\n{place:34}" + "".join(f"{name:>20}" for name in told))
    for figure in dict.fromkeys(figure for path in told.values() for figure in path):
        values = [path.get(figure, float("nan")) for path in told.values()]
        print(
            f"{figure:34}"
            + "".join(f"{value:20,.4f}" if isinstance(value, float) else f"{value:20,}" for value in values)
        )


def own_database(place: Path, database: Path, options: Any) -> Path:
    """COLMAP's own features and matches."""
    pycolmap.extract_features(
        database,
        place,
        camera_mode=pycolmap.CameraMode.SINGLE,
        extraction_options=pycolmap.FeatureExtractionOptions(
            num_threads=1, use_gpu=False, sift={"max_num_features": options.max_keypoints}
        ),
        device=CPU,
    )
    match_exhaustive(database, options)
    return database


def match_exhaustive(database: Path, options: Any) -> None:
    """COLMAP's own matcher."""
    pycolmap.match_exhaustive(
        database,
        matching_options=pycolmap.FeatureMatchingOptions(
            num_threads=1, use_gpu=False, sift={"max_ratio": options.ratio}
        ),
        verification_options=pycolmap.TwoViewGeometryOptions(ransac={"random_seed": options.seed}),
        device=CPU,
    )


def calibrate(database: Path, place: Path) -> None:
    """Give the photos of a place their true camera, the same for all; it is noted for the full size."""
    rows = camera_rows(min(place.glob("*.camera")))
    with pycolmap.Database.open(database) as opened:
        (camera,) = opened.read_all_cameras()
        camera.model = pycolmap.CameraModelId.PINHOLE
        camera.params = [rows[0][0] / 2, rows[1][1] / 2, rows[0][2] / 2, rows[1][2] / 2]
        camera.has_prior_focal_length = True
        opened.update_camera(camera)


def contents(database: Path) -> dict[str, int]:
    """What goes into the reconstruction."""
    with pycolmap.Database.open(database) as opened:
        return {
            "keypoints": opened.num_keypoints(),
            "matches": opened.num_matches(),
            "verified matches": opened.num_inlier_matches(),
            "verified pairs": opened.num_verified_image_pairs(),
        }


def reconstruct(place: Path, database: Path, model: Path, seed: int) -> dict[str, Any]:
    """The largest model, and how far its cameras are from the true ones."""
    model.mkdir()
    calibrate(database, place)
    known = {"ba_refine_focal_length": False, "ba_refine_extra_params": False}
    options = pycolmap.IncrementalPipelineOptions(num_threads=1, random_seed=seed, extract_colors=False, **known)
    models = pycolmap.incremental_mapping(database, place, model, options)
    photos = len(list(place.glob("*.camera")))
    if not models:
        return {"photos": photos, "registered": 0}
    largest = max(models.values(), key=lambda one: one.num_reg_images())
    return {
        "photos": photos,
        "registered": largest.num_reg_images(),
        "points": largest.num_points3D(),
        "track length": largest.compute_mean_track_length(),
        "reprojection error, px": largest.compute_mean_reprojection_error(),
        **pose_errors(largest, {path.name.removesuffix(".camera"): true_pose(path) for path in place.glob("*.camera")}),
    }


def camera_rows(path: Path) -> list[list[float]]:
    """The lines of a camera file: K (3), zeros, Rᵀ (3), centre, width and height."""
    return [[float(word) for word in line.split()] for line in path.read_text().splitlines() if line.strip()]


def true_pose(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rotation (3, 3), world to camera, and centre (3,) in metres."""
    rows = camera_rows(path)
    return np.array(rows[4:7]).T, np.array(rows[7])


def pose_errors(model: Any, truth: dict[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """Errors of centres and rotations after the similarity (Umeyama's) that takes the centres to the true ones."""
    images = [image for image in model.images.values() if image.has_pose]
    centres = np.array([image.projection_center() for image in images])
    true_centres = np.array([truth[image.name][1] for image in images])
    similarity = pycolmap.estimate_sim3d(centres, true_centres)
    if similarity is None:
        return {}
    apart = np.linalg.norm([similarity * centre for centre in centres] - true_centres, axis=1)
    turn = similarity.rotation.matrix()
    turned = [image.cam_from_world().rotation.matrix() @ turn.T @ truth[image.name][0].T for image in images]
    angles = [np.degrees(np.arccos(np.clip((np.trace(one) - 1) / 2, -1, 1))) for one in turned]
    return {
        "centre error, median m": float(np.median(apart)),
        "centre error, largest m": float(apart.max()),
        "rotation error, median degrees": float(np.median(angles)),
    }


def share_found(ours: Path, theirs: Path) -> float:
    """Of our geometrically verified matches, those that COLMAP's own matcher finds too, before verification."""
    found, total = 0, 0
    with pycolmap.Database.open(ours) as first, pycolmap.Database.open(theirs) as second:
        for pair, geometry in zip(*first.read_two_view_geometries(), strict=True):
            verified = {tuple(row) for row in np.asarray(geometry.inlier_matches).tolist()}
            other = second.read_matches(*pycolmap.pair_id_to_image_pair(pair)).tolist()
            found, total = found + len(verified.intersection(map(tuple, other))), total + len(verified)
    return found / max(total, 1)


if __name__ == "__main__":
    main()
