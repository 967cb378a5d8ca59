"""Scenes and image pairs with ground-truth cameras, in the formats in which they are published.

- COLMAP models: `ROOT/SCENE/sparse` and `ROOT/SCENE/images`; every pair of images that share points, with its overlap.
  A file `ROOT/SCENE/pairs.txt` replaces them by a list: the names of two images and their overlap on each line.
- Strecha: `ROOT/SCENE/NAME.jpg` and `NAME.jpg.camera` (K, three zeros, R from camera to world, centre, width and
  height); every pair of images.
- MegaDepth-1500, only pairs: a text file in SuperGlue's or glue-factory's format, and the folder `images/` beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from doap._support.errors import DataError
from doap._support.files import check_inside
from doap.data.colmap_model import open_model
from doap.geometry.pose import Camera, Pose, camera_from_colmap, pose_from_colmap
from doap.images import read_grey

# Numbers on each line of a camera file of Strecha.
_STRECHA_LINES = [3, 3, 3, 3, 3, 3, 3, 3, 2]


@dataclass(frozen=True, eq=False)
class PosedImage:
    """An image with its ground-truth camera.

    Attributes:
        path: File of the image.
        camera: Its intrinsics.
        pose: World to camera.
        points: Ids of the 3D points that it sees; None if the dataset does not have them.
    """

    path: Path
    camera: Camera
    pose: Pose
    points: frozenset[int] | None = None


@dataclass(frozen=True, eq=False)
class PosedScene:
    """Images in one coordinate frame.

    Attributes:
        name: Name of the scene.
        folder: Folder of the images.
        images: Images, sorted by path.
        shared_camera: Whether one camera with constant intrinsics took them all.
        overlaps: Overlap of the pairs of image names to use; None for all pairs.
    """

    name: str
    folder: Path
    images: tuple[PosedImage, ...]
    shared_camera: bool
    overlaps: dict[tuple[str, str], float] | None = None


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


def read_posed_scenes(root: str | Path) -> list[PosedScene]:
    """Read all scenes of a dataset of COLMAP models or in Strecha's format."""
    root = Path(root)
    if models := sorted(path for path in root.glob("*/sparse") if any(path.glob("images.*"))):
        return [_read_colmap(model) for model in models]
    if folders := sorted({path.parent for path in root.glob("*/*.camera")}):
        return [_read_strecha(folder) for folder in folders]
    raise DataError(
        f"{root}: no scenes with camera poses found. Expected SCENE/sparse and SCENE/images of COLMAP models, "
        "SCENE/*.camera beside the images (Strecha), or a text file of pairs beside images/ (MegaDepth-1500), which "
        "only the benchmark pose reads."
    )


def read_posed_pairs(root: str | Path) -> list[PosedPair]:
    """Read all pairs of a dataset in any of the formats above; `root` is its folder, or a text file of pairs."""
    root = Path(root)
    pair_lists = [root] if root.is_file() else sorted(root.glob("*pairs*.txt"))
    if pair_lists:
        return list(_read_pair_list(pair_lists[0]))
    return [pair for scene in read_posed_scenes(root) for pair in pairs_of(scene)]


def pairs_of(scene: PosedScene) -> Iterator[PosedPair]:
    """Pair all images that see a common point; the overlap is relative to the image with fewer points.

    Where the dataset has no points, pair all images. A scene with a list of pairs has only these, with their overlaps.
    """
    for first, second in combinations(scene.images, 2):
        overlap = None
        if scene.overlaps is not None:
            overlap = scene.overlaps.get((first.path.name, second.path.name))
            if overlap is None:
                continue
        elif first.points is not None and second.points is not None:
            common = len(first.points & second.points)
            if not common:
                continue
            overlap = common / min(len(first.points), len(second.points))
        paths, cameras = (first.path, second.path), (first.camera, second.camera)
        yield PosedPair(scene.name, paths, cameras, second.pose.relative_to(first.pose), overlap)


def _read_colmap(model: Path) -> PosedScene:
    reconstruction = open_model(model)
    cameras = {identity: camera_from_colmap(camera) for identity, camera in reconstruction.cameras.items()}
    folder = model.parent / "images"
    images = []
    for image in sorted(reconstruction.images.values(), key=lambda image: image.name):
        points = frozenset(point.point3D_id for point in image.points2D if point.has_point3D())
        images.append(
            PosedImage(folder / image.name, cameras[image.camera_id], pose_from_colmap(image.cam_from_world()), points)
        )
    overlaps = _read_overlaps(pairs, images) if (pairs := model.parent / "pairs.txt").is_file() else None
    return PosedScene(model.parent.name, folder, tuple(images), len(cameras) == 1, overlaps)


def _read_overlaps(file: Path, images: Sequence[PosedImage]) -> dict[tuple[str, str], float]:
    """Read a list of pairs; the images of a pair are in the order of the scene."""
    order = {image.path.name: number for number, image in enumerate(images)}
    overlaps = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            first, second, overlap = line.split()
            if order[first] >= order[second]:
                raise ValueError("expected the images of a pair in the order of their names")
            overlaps[first, second] = float(overlap)
        except (KeyError, ValueError) as error:
            raise DataError(f"{file}, line {number}: expected two images of the model and their overlap.") from error
    return overlaps


def _read_strecha(folder: Path) -> PosedScene:
    files = sorted(folder.glob("*.camera"))
    images = [_read_strecha_image(file) for file in files]
    shared = all(np.array_equal(image.camera.matrix, images[0].camera.matrix) for image in images)
    return PosedScene(folder.name, folder, tuple(images), shared_camera=shared)


def _read_strecha_image(file: Path) -> PosedImage:
    """Read one camera file, and scale its intrinsics from the published image size to that of the image."""
    try:
        lines = [np.array(line.split(), np.float64) for line in file.read_text(encoding="utf-8").splitlines()]
    except ValueError as error:
        raise DataError(f"{file}: expected numbers ({error}).") from error
    lines = lines[: len(_STRECHA_LINES)]
    if [len(line) for line in lines] != _STRECHA_LINES or not np.isfinite(np.concatenate(lines)).all():
        raise DataError(f"{file}: expected lines of {_STRECHA_LINES} finite numbers: K, zeros, R, centre, size.")
    path = file.with_suffix("")
    height, width = read_grey(path).shape
    full_width, full_height = lines[8]
    factor = width / full_width
    if abs(height - factor * full_height) > 1:
        expected = f"the shape of {full_width:g}×{full_height:g} pixels, as in {file.name}"
        raise DataError(f"{path}: expected an image with {expected}, got {width}×{height}.")
    intrinsics = np.array(lines[:3])
    intrinsics[:2] *= factor
    # Pixel centres are at integers, so the corner of the image, which scaling keeps, is at (−½, −½).
    intrinsics[:2, 2] += (factor - 1) / 2
    rotation = np.array(lines[4:7]).T
    return PosedImage(path, Camera(intrinsics), Pose(rotation, -rotation @ lines[7]))


def _read_pair_list(file: Path) -> Iterator[PosedPair]:
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
