"""Stage 3: what COLMAP reconstructs from the matches of each descriptor."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from doap.detectors import Detector
from doap.errors import DoapError
from doap.evaluation.compare.shots import Shot
from doap.export.colmap import write_database
from doap.peers import Describer
from doap.types import Report

FEWEST_PHOTOS = 3


@dataclass(frozen=True)
class Model:
    """The largest model of a reconstruction.

    Attributes:
        registered: photos in it.
        points: of the scene.
        track_length: photos that see a point, on average.
        reprojection_error: in pixels, on average.
    """

    registered: int = 0
    points: int = 0
    track_length: float = 0.0
    reprojection_error: float | None = None


def reconstruct(
    shots: Sequence[Shot],
    describers: Mapping[str, Describer],
    detector: Detector,
    most: int,
    seed: int,
    report: Report,
) -> tuple[dict[str, Model], str]:
    """Models by descriptor, of photos that hang together, each matched with each; or none, and why."""
    if len(shots) < FEWEST_PHOTOS:
        return {}, f"a reconstruction needs {FEWEST_PHOTOS} photos that overlap, and {len(shots)} do"
    models: dict[str, Model] = {}
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder) / "photos"
        photos.mkdir()
        for number, shot in enumerate(shots):
            # Photos of several folders may have one name.
            shutil.copyfile(shot.path, photos / f"{number:03}-{shot.path.name}")
        for number, (name, describer) in enumerate(describers.items()):
            report(number, len(describers), f"reconstruction with {name}")
            database = Path(folder) / f"{number}.db"
            try:
                write_database(photos, database, describer, detector=detector, most=most)
            except DoapError as error:
                return {}, str(error)
            models[name] = _largest(database, photos, Path(folder) / f"{number}", seed)
    report(len(describers), len(describers), "reconstructed")
    return models, f"{len(shots)} photos that overlap, each matched with each"


def _largest(database: Path, photos: Path, out: Path, seed: int) -> Model:
    import pycolmap

    out.mkdir()
    options = pycolmap.IncrementalPipelineOptions(num_threads=1, random_seed=seed, extract_colors=False)
    found = pycolmap.incremental_mapping(database, photos, out, options)
    if not found:
        return Model()
    largest = max(found.values(), key=lambda model: model.num_reg_images())
    return Model(
        largest.num_reg_images(),
        largest.num_points3D(),
        float(largest.compute_mean_track_length()),
        float(largest.compute_mean_reprojection_error()),
    )
