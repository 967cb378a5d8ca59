"""COLMAP's incremental mapper, and a summary of what it reconstructs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from doap._support.errors import import_pycolmap
from doap.geometry.pose import Pose, pose_from_colmap

MIN_IMAGES = 3
"""Minimum number of images of a model. COLMAP discards models of fewer than ten images by default, but twenty images
may form several small ones."""


@dataclass(frozen=True)
class Reconstruction:
    """The largest model of a reconstruction.

    Attributes:
        registered: Number of registered photos.
        points: Number of 3-D points.
        track_length: Mean number of photos that observe a point.
        reprojection_error: Mean reprojection error in pixels; None without a model.
    """

    registered: int = 0
    points: int = 0
    track_length: float = 0.0
    reprojection_error: float | None = None


def map_database(database: Path, images: Path, out: Path, seed: int) -> list[Any]:
    """Run COLMAP's incremental mapper on the verified matches of a database; `out` is a new folder for the models.

    The mapper runs in one thread, so that a seed determines the result.

    Returns:
        The models as `pycolmap.Reconstruction`, the one with most images first.
    """
    pycolmap = import_pycolmap()
    out.mkdir()
    options = pycolmap.IncrementalPipelineOptions(
        num_threads=1,
        random_seed=seed,
        extract_colors=False,
        min_model_size=MIN_IMAGES,
        # The fallback takes half a minute for each photo that cannot be registered.
        structure_less_registration_fallback=False,
    )
    models = pycolmap.incremental_mapping(database, images, out, options)
    return sorted(models.values(), key=lambda model: -model.num_reg_images())


def summarise_models(models: Sequence[Any]) -> Reconstruction:
    """Summarise the first of the models of `map_database`."""
    if not models:
        return Reconstruction()
    largest = models[0]
    return Reconstruction(
        largest.num_reg_images(),
        largest.num_points3D(),
        float(largest.compute_mean_track_length()),
        float(largest.compute_mean_reprojection_error()),
    )


def registered_poses(model: Any) -> dict[str, Pose]:
    """Return the poses of the registered images of a model, world to camera, by name."""
    return {image.name: pose_from_colmap(image.cam_from_world()) for image in model.images.values() if image.has_pose}
