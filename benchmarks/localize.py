"""Localise photos that a COLMAP model does not contain, and compare the poses with the reference.

    python benchmarks/localize.py SCENES rootsift doap-128 doap-256bit --scene sacre_coeur --scene church \\
        --out results/localize.json

SCENES contains scenes with camera poses (`doap data from-poses`). Every fifth image of a scene is removed from its
model, and so are the points that fewer than two of the other images observe. The removed photos are then localised as
new ones: their intrinsics are unknown. Position errors are relative to the median distance between the centres of
the cameras of the scene, whose scale is arbitrary. A photo without a pose has an infinite error.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pycolmap
import record

import doap
from doap.detectors import colmap
from doap.evaluation.posed_scenes import PosedScene, read_posed_scenes
from doap.geometry.pose import Pose, rotation_angle

EVERY = 5


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("scenes", type=Path, help="folder of scenes with camera poses")
    parser.add_argument("descriptors", nargs="+", help="names or files of descriptors")
    parser.add_argument("--scene", action="append", required=True, help="scene to localise photos in")
    parser.add_argument("--max-keypoints", type=int, default=2048)
    options = parser.parse_args()
    scenes = {scene.name: scene for scene in read_posed_scenes(options.scenes)}
    rows = []
    for name in options.scene:
        scene = scenes[name]
        removed = scene.images[::EVERY]
        with tempfile.TemporaryDirectory() as folder:
            model = without(options.scenes / name / "sparse", {image.path.name for image in removed}, Path(folder))
            for descriptor in options.descriptors:
                localizer = doap.Localizer(
                    model,
                    scene.folder,
                    Path(folder) / Path(descriptor).stem,
                    descriptor=descriptor,
                    detector=colmap(),
                    max_keypoints=options.max_keypoints,
                )
                errors = [error(localizer.localize(image.path), image.pose, extent(scene)) for image in removed]
                rows.append({"scene": name, "descriptor": Path(descriptor).stem, **summarise(np.array(errors))})
                print(rows[-1], flush=True)
                record.write(options.out, options.seed, {"every": EVERY, "table": rows})


def without(model: Path, names: set[str], folder: Path) -> Path:
    """Write a model without some images and without the points that only they support."""
    reconstruction = pycolmap.Reconstruction(model)
    for image in list(reconstruction.images.values()):
        if image.name in names:
            reconstruction.deregister_frame(image.frame_id)
    out = folder / "sparse"
    out.mkdir()
    reconstruction.write(out)
    return out


def extent(scene: PosedScene) -> float:
    """Return the median distance between the centres of the cameras of a scene."""
    centres = np.array([-image.pose.rotation.T @ image.pose.translation for image in scene.images])
    distances = np.linalg.norm(centres[:, None] - centres, axis=2)
    return float(np.median(distances[np.triu_indices(len(centres), 1)]))


def error(found: Any, truth: Pose, unit: float) -> tuple[float, float]:
    """Return the rotation error in degrees and the relative position error."""
    if found is None:
        return np.inf, np.inf
    centre = -truth.rotation.T @ truth.translation
    return rotation_angle(found.pose.rotation @ truth.rotation.T), float(np.linalg.norm(found.centre - centre)) / unit


def summarise(errors: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, Any]:
    """Return medians and shares of errors (n, 2)."""
    rotation, position = errors.T
    median = [float(np.median(values)) for values in (rotation, position)]
    return {
        "photos": len(errors),
        "localised": int(np.isfinite(rotation).sum()),
        "median rotation error, degrees": median[0] if np.isfinite(median[0]) else None,
        "median position error": median[1] if np.isfinite(median[1]) else None,
        "within 5 degrees and 0.1": float(((rotation <= 5) & (position <= 0.1)).mean()),
    }


if __name__ == "__main__":
    main()
