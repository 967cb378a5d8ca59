"""Image pairs with ground-truth relative poses, in the formats in which they are published.

COLMAP models        ROOT/SCENE/sparse and ROOT/SCENE/images; every pair of images that share points, with its overlap
Strecha              ROOT/SCENE/*.camera beside the images; every pair of images
MegaDepth-1500       a text file of pairs, in SuperGlue's or glue-factory's format, and the folder images/ beside it
IMC Phototourism     ROOT/SCENE/set_100 with images/, calibration/*.h5 and new-vis-pairs/keys-th-*.npy
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from doap._support.errors import DataError, import_extra
from doap._support.files import check_inside
from doap.evaluation.posed_scenes import PosedScene, is_colmap_root, is_strecha_root, read_posed_scenes
from doap.geometry.pose import Camera, Pose


@dataclass(frozen=True, eq=False)
class PosedPair:
    """Two calibrated images of one scene and their relative pose.

    Attributes:
        scene: Name of the scene.
        paths: Files of the two images.
        cameras: Their intrinsics.
        pose: Transformation from camera 0 to camera 1; the scale of its translation is arbitrary.
        overlap: Share of the 3D points of one image that the other one sees too; None if the dataset does not have it.
    """

    scene: str
    paths: tuple[Path, Path]
    cameras: tuple[Camera, Camera]
    pose: Pose
    overlap: float | None = None

    @property
    def name(self) -> str:
        """Name of the pair within its scene."""
        return f"{self.paths[0].stem}-{self.paths[1].stem}"


def read_posed_pairs(root: str | Path) -> list[PosedPair]:
    """Read all pairs of a dataset in any of the formats above.

    Args:
        root: Folder of the dataset, or a text file of pairs.
    """
    root = Path(root)
    pair_lists = [root] if root.is_file() else sorted(root.glob("*pairs*.txt"))
    if pair_lists:
        return list(_from_pair_list(pair_lists[0]))
    if scenes := sorted(root.glob("*/set_100/calibration")):
        return [pair for folder in scenes for pair in _from_phototourism(folder.parent)]
    if is_colmap_root(root) or is_strecha_root(root):
        return [pair for scene in read_posed_scenes(root) for pair in pairs_of(scene)]
    raise DataError(
        f"{root}: no image pairs with poses found. Expected SCENE/sparse and SCENE/images of COLMAP models, "
        "SCENE/*.camera (Strecha), a text file of pairs beside images/ (MegaDepth-1500), or SCENE/set_100 (IMC "
        "Phototourism)."
    )


def _from_pair_list(file: Path) -> Iterator[PosedPair]:
    """Read SuperGlue's format (names, two EXIF rotations, K₀, K₁, T 4×4) or glue-factory's (names, K₀, K₁, R, t)."""
    images = file.parent / "images"
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        if len(words) < 2:
            raise DataError(f"{file}, line {number}: expected two names and their geometry, got {line!r}.")
        first, second, *rest = words
        for name in (first, second):
            check_inside(name, f"{file}, line {number}")
        try:
            values = np.array(rest, np.float64)
        except ValueError as error:
            raise DataError(f"{file}, line {number}: expected numbers after the two names ({error}).") from error
        if len(values) == 36:
            # The EXIF rotations turn the images upright; intrinsics and pose belong to the pixels as stored.
            values = values[2:]
            transformation = values[18:].reshape(4, 4)
            pose = Pose(transformation[:3, :3], transformation[:3, 3])
        elif len(values) == 30:
            pose = Pose(values[18:27].reshape(3, 3), values[27:])
        else:
            raise DataError(
                f"{file}, line {number}: expected 36 numbers (two EXIF rotations, K0, K1, T) or 30 (K0, K1, R, t) "
                f"after the names, got {len(values)}."
            )
        cameras = Camera(values[:9].reshape(3, 3)), Camera(values[9:18].reshape(3, 3))
        yield PosedPair(first.partition("/")[0], (images / first, images / second), cameras, pose)


def _from_phototourism(folder: Path) -> Iterator[PosedPair]:
    """Read the pairs with a co-visibility of 0.1 or more; the highest list that has a pair gives its overlap."""
    h5py = import_extra("h5py", "hloc")
    overlaps: dict[str, float] = {}
    for tenth in range(1, 10):
        file = folder / "new-vis-pairs" / f"keys-th-{tenth / 10:.1f}.npy"
        if file.is_file():
            overlaps |= {str(key): tenth / 10 for key in np.load(file, allow_pickle=False)}
    calibrations: dict[str, tuple[Camera, Pose]] = {}

    def calibration(name: str) -> tuple[Camera, Pose]:
        if name not in calibrations:
            with h5py.File(folder / "calibration" / f"calibration_{name}.h5", "r") as stored:
                matrix, rotation, translation = (np.asarray(stored[key], np.float64) for key in ("K", "R", "T"))
            calibrations[name] = Camera(matrix.reshape(3, 3)), Pose(rotation.reshape(3, 3), translation.ravel())
        return calibrations[name]

    for key, overlap in sorted(overlaps.items()):
        names = key.split("-")
        for name in names:
            check_inside(name, folder / "new-vis-pairs")
        (camera0, pose0), (camera1, pose1) = (calibration(name) for name in names)
        path0, path1 = (_only_file(folder / "images", name) for name in names)
        pose = pose1.relative_to(pose0)
        yield PosedPair(folder.parent.name, (path0, path1), (camera0, camera1), pose, overlap)


def _only_file(folder: Path, stem: str) -> Path:
    found = sorted(folder.glob(f"{stem}.*"))
    if not found:
        raise DataError(f"{folder}: the image {stem} is missing.")
    return found[0]


def pairs_of(scene: PosedScene) -> Iterator[PosedPair]:
    """Pair all images that see a common point; the overlap is relative to the image with fewer points.

    Where the dataset has no points, pair all images.
    """
    for first, second in combinations(scene.images, 2):
        overlap = None
        if first.points is not None and second.points is not None:
            common = len(first.points & second.points)
            if not common:
                continue
            overlap = common / min(len(first.points), len(second.points))
        paths, cameras = (first.path, second.path), (first.camera, second.camera)
        yield PosedPair(scene.name, paths, cameras, second.pose.relative_to(first.pose), overlap)
