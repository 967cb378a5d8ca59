"""Localise a photo in an existing COLMAP model: its pose from matches with the images of the model.

An index finds the images that resemble the photo most. Matches of their triangulated keypoints are matches of pixels
with 3D points, from which COLMAP estimates the absolute pose. The model is only read, and may come from any features:
a keypoint belongs to a 3D point if the model observes the point within 3 pixels of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from doap._support.errors import ArgumentError, DataError, import_pycolmap
from doap._support.files import make_folder
from doap.collection.extraction import use_features
from doap.collection.extractor import open_extractor
from doap.collection.features import FeatureSet
from doap.collection.image_folder import ImageFolder
from doap.collection.index import Index, build_index
from doap.collection.search import search_images
from doap.data.colmap_model import open_model
from doap.detectors import Detector
from doap.extractor import DescriptorSource
from doap.geometry.pose import Camera, Pose, camera_from_colmap, pose_from_colmap
from doap.images.frames import COLMAP_PIXEL_CENTRE
from doap.pipeline import match
from doap.types import Features, Progress, no_progress

# Maximum distance in pixels between a keypoint and an observation of the 3D point that it belongs to.
_NEAR = 3.0
# RANSAC finds a few matches that agree by chance.
_MIN_INLIERS = 12
# On validation scenes, correct poses have at least 89 inliers, and half of the matches.
_RELIABLE_INLIERS, _RELIABLE_SHARE = 30, 0.25
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Localization:
    """The pose of a photo in a COLMAP model.

    Attributes:
        pose: Rotation (3, 3) and translation (3,), from the world of the model to the camera.
        camera: Intrinsics of the photo; the focal length is estimated if it was unknown.
        matches: Number of matches with 3D points.
        inliers: Number of matches that agree with the pose.
        images: Images of the model with inliers, and how many; most inliers first.
    """

    pose: Pose
    camera: Camera
    matches: int
    inliers: int
    images: dict[str, int]

    @property
    def reliable(self) -> bool:
        """Whether enough matches agree. A building with repeated parts can mislead even many matches."""
        return self.inliers >= max(_RELIABLE_INLIERS, _RELIABLE_SHARE * self.matches)

    @property
    def centre(self) -> Floats:
        """(3,) position of the camera in the world of the model."""
        return np.asarray(-self.pose.rotation.T @ self.pose.translation)


class Localizer:
    """Estimates poses of photos in a COLMAP model.

    The features of the model's images are extracted once and stored in `cache`, with an index of them. Images that
    cannot be read are not used. Images of another size than their camera's are refused.

    >>> import doap
    >>> localizer = doap.Localizer("sparse/0", "images", "localization")  # doctest: +SKIP
    >>> localizer.localize("photo.jpg").centre  # doctest: +SKIP
    array([ 0.31, -0.02,  1.76])

    Args:
        model: Folder with cameras, images and points3D (.bin or .txt).
        images: Folder that the model's image names are relative to.
        cache: Folder for the features and the index, separately for each descriptor and detector.
        descriptor, detector, max_keypoints, device: As for `doap.extract_folder`.
        progress: Progress callback of the extraction.

    Attributes:
        total: Number of images of the model.
        skipped: Images of the model that are not used, and the reasons.
    """

    def __init__(
        self,
        model: str | Path,
        images: str | Path,
        cache: str | Path,
        *,
        descriptor: DescriptorSource = "doap-128",
        detector: str | Detector | None = None,
        max_keypoints: int = 2048,
        device: str | torch.device = "auto",
        progress: Progress = no_progress,
    ) -> None:
        self._model = open_model(Path(model))
        self._images = {image.name: image for image in self._model.images.values()}
        folder = Path(images).absolute()
        source = ImageFolder.open(folder)
        listing = {file.name: file.stamp for file in sorted(source.images.list()) if file.name in self._images}
        if not listing:
            expected = f"the images of the model {model}" + (f", such as {min(self._images)}" if self._images else "")
            raise DataError(f"{images}: expected {expected}, got none of them.")
        self._extractor = open_extractor(descriptor, detector=detector, max_keypoints=max_keypoints, device=device)
        self._cache, total = make_folder(Path(cache) / self._extractor.info.fingerprint[:16]), len(listing)
        self._features: FeatureSet = use_features(
            source, listing, self._cache / "features", self._extractor, None, total, progress, lambda found, _: found
        )
        for name, (height, width) in self._features.sizes.items():
            camera = self._camera(name)
            if (height, width) != (camera.height, camera.width):
                raise DataError(
                    f"{name}: expected the size of its camera in the model, {camera.width} × {camera.height}, got "
                    f"{width} × {height}. Use the images from which the model was reconstructed."
                )
        self.total = len(self._images)
        missing = {name: f"{folder / name}: no such image." for name in sorted(self._images) if name not in listing}
        self.skipped: dict[str, str] = missing | self._features.failed

    def localize(
        self, photo: str | Path, *, camera: str | None = None, top: int = 20, threshold: float = 8.0
    ) -> Localization | None:
        """Return the pose of a photo, or None if none was found.

        Args:
            photo: Image file.
            camera: Name of an image of the model that was taken with the same camera, whose intrinsics are used, scaled
                to the size of the photo. None reads the focal length from EXIF data, or estimates it.
            top: Maximum number of images to match the photo with.
            threshold: Inlier threshold in pixels.
        """
        if camera is not None and camera not in self._images:
            raise ArgumentError(f"camera: expected an image of the model, such as {min(self._images)}, got {camera}.")
        if not 0 < threshold < math.inf:
            raise ArgumentError(f"threshold: expected more than 0 pixels, got {threshold}.")
        if not Path(photo).is_file():
            raise DataError(f"{photo}: no such image.")
        query = self._extractor.extract(photo)
        scaled = None if camera is None else _scale(self._camera(camera), query.image_size, photo, camera)
        matches = self._match(query, self._shortlist(query, top))
        intrinsics = scaled or import_pycolmap().infer_camera_from_image(photo)
        refine = scaled is None and not intrinsics.has_prior_focal_length
        return _estimate_pose(*matches, intrinsics, refine, threshold)

    def _camera(self, name: str) -> Any:
        """Return the camera of an image of the model, as an object of pycolmap."""
        return self._model.cameras[self._images[name].camera_id]

    def _shortlist(self, query: Features, top: int) -> list[str]:
        """Return the names of the images that resemble a photo most; all of them if there are at most `top`."""
        if len(self._features) <= top:
            return self._features.names
        # The index may also have images of an earlier version of the model.
        names = set(self._features.names)
        ranked = search_images(self._index, query, top=len(self._index.images))
        return [found.name for found in ranked if found.name in names][:top]

    @cached_property
    def _index(self) -> Index:
        """Index of the features."""
        folder = self._cache / "index"
        index = Index(folder if folder.exists() else build_index(self._features, folder))
        index.add(self._features)
        return index

    def _match(self, query: Features, names: Sequence[str]) -> tuple[Floats, Floats, list[str]]:
        """Match a photo with images of the model; a keypoint and a 3D point are paired once, by the first image.

        Returns:
            Pixels (M, 2) in COLMAP's coordinates, 3D points (M, 3), and the images through which they were found.
        """
        found: dict[tuple[int, int], str] = {}
        ratio = self._extractor.extractor.ratio
        for name in names:
            stored = self._features.read(name).features
            point_of_keypoint = _triangulated(stored.keypoints, self._images[name])
            for keypoint, other in match(query, stored, ratio=ratio).indices.tolist():
                if (point := int(point_of_keypoint[other])) >= 0:
                    found.setdefault((keypoint, point), name)
        keypoints = query.keypoints.astype(np.float64)[[keypoint for keypoint, _ in found]]
        points = np.array([self._model.points3D[point].xyz for _, point in found])
        return keypoints.reshape(-1, 2) + COLMAP_PIXEL_CENTRE, points.reshape(-1, 3), list(found.values())


def _scale(camera: Any, size: tuple[int, int], photo: str | Path, name: str) -> Any:
    """Return a camera of pycolmap, that of an image with this name, scaled to the size (height, width) of a photo."""
    height, width = size
    # Both sides of a scaled photo are rounded to whole pixels.
    if abs(width * camera.height - height * camera.width) >= camera.width + camera.height:
        raise DataError(
            f"{photo}: expected the aspect ratio of the camera of {name}, {camera.width} × {camera.height}, got "
            f"{width} × {height}. Name an image of the same camera, or none to estimate the focal length."
        )
    scaled = deepcopy(camera)
    scaled.rescale(width, height)
    return scaled


def _triangulated(keypoints: NDArray[np.float32], image: Any) -> NDArray[np.int64]:
    """Return the id (N,) of the 3D point that an image observes next to each keypoint (N, 2), −1 for none."""
    observed = [point for point in image.points2D if point.has_point3D()]
    if not observed or not len(keypoints):
        return np.full(len(keypoints), -1)
    xy = torch.tensor(np.array([point.xy for point in observed]) - COLMAP_PIXEL_CENTRE)
    distance, nearest = torch.cdist(torch.from_numpy(keypoints).double(), xy).min(dim=1)
    ids = np.array([point.point3D_id for point in observed], np.int64)
    return np.where(distance.numpy() <= _NEAR, ids[nearest.numpy()], -1)


def _estimate_pose(
    pixels: Floats, points: Floats, images: Sequence[str], camera: Any, refine: bool, threshold: float
) -> Localization | None:
    """Estimate the pose; `refine` also estimates focal length and distortion of the camera, an object of pycolmap."""
    found = import_pycolmap().estimate_and_refine_absolute_pose(
        pixels,
        points,
        camera,
        {"estimate_focal_length": refine, "ransac": {"max_error": threshold, "random_seed": 0}},
        {"refine_focal_length": refine, "refine_extra_params": refine},
    )
    if found is None or found["num_inliers"] < _MIN_INLIERS:
        return None
    agrees = np.asarray(found["inlier_mask"], np.bool_)
    inliers = Counter(name for name, inlier in zip(images, agrees, strict=True) if inlier)
    pose = pose_from_colmap(found["cam_from_world"])
    return Localization(pose, camera_from_colmap(camera), len(agrees), int(agrees.sum()), dict(inliers.most_common()))
