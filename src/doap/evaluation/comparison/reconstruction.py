"""Stage 3: COLMAP reconstructions from the matches of each descriptor."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from doap.describer import Describer
from doap.detectors import Detector
from doap.errors import DoapError
from doap.evaluation.comparison.photos import DescribedPhoto
from doap.export.colmap import write_colmap
from doap.types import Progress

MIN_PHOTOS = 3


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


def evaluate_reconstructions(
    photos: Sequence[DescribedPhoto],
    pairs: Sequence[tuple[int, ...]],
    describers: Mapping[str, Describer],
    detector: Detector,
    max_keypoints: int,
    seed: int,
    progress: Progress,
) -> tuple[dict[str, Reconstruction], str]:
    """Reconstruct the largest connected set of overlapping photos with each descriptor.

    Only the overlapping pairs are matched. In repetitive scenes such as fields, any two photos have dozens of matches
    that agree by chance, and COLMAP would spend its time on models that fall apart.

    Returns:
        Reconstructions by descriptor, and a note on what was reconstructed or why nothing was.
    """
    connected = connected_photos(pairs)
    if len(connected) < MIN_PHOTOS:
        return {}, f"a reconstruction needs {MIN_PHOTOS} overlapping photos, {len(connected)} overlap"
    # Numbered, because photos of several folders may have the same name.
    names = {photo: f"{photo:06}-{photos[photo].path.name}" for photo in connected}
    named_pairs = [(names[first], names[second]) for first, second in pairs if first in names and second in names]
    found: dict[str, Reconstruction] = {}
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "photos"
        images.mkdir()
        for photo, name in names.items():
            shutil.copyfile(photos[photo].path, images / name)
        for number, (name, describer) in enumerate(describers.items()):
            progress(number, len(describers), f"reconstruction with {name}")
            database = Path(folder) / f"{number}.db"
            try:
                write_colmap(
                    images, database, describer, detector=detector, max_keypoints=max_keypoints, pairs=named_pairs
                )
            except DoapError as error:
                return {}, str(error)
            found[name] = _reconstruct(database, images, Path(folder) / f"{number}", seed)
    progress(len(describers), len(describers), "reconstructed")
    return found, f"{len(connected)} photos connected by {len(named_pairs)} overlapping pairs"


def connected_photos(pairs: Sequence[tuple[int, ...]]) -> list[int]:
    """Return the photos connected by pairs to the photo with most partners, in order.

    >>> connected_photos([(0, 1), (2, 3), (3, 4), (3, 5), (5, 6)])
    [2, 3, 4, 5, 6]
    """
    partners: dict[int, set[int]] = {}
    for first, second in pairs:
        partners.setdefault(first, set()).add(second)
        partners.setdefault(second, set()).add(first)
    reached: set[int] = set()
    new = {max(partners, key=lambda photo: len(partners[photo]))} if partners else set()
    while new:
        reached |= new
        new = set().union(*(partners[photo] for photo in new)) - reached
    return sorted(reached)


def _reconstruct(database: Path, images: Path, out: Path, seed: int) -> Reconstruction:
    """Run COLMAP's incremental mapper and return its largest model."""
    import pycolmap

    out.mkdir()
    options = pycolmap.IncrementalPipelineOptions(
        num_threads=1,
        random_seed=seed,
        extract_colors=False,
        # COLMAP discards models of fewer than ten photos by default, but twenty photos may form several small ones.
        min_model_size=MIN_PHOTOS,
        # The fallback takes half a minute for each photo that cannot be registered.
        structure_less_registration_fallback=False,
    )
    models = pycolmap.incremental_mapping(database, images, out, options)
    if not models:
        return Reconstruction()
    largest = max(models.values(), key=lambda model: model.num_reg_images())
    return Reconstruction(
        largest.num_reg_images(),
        largest.num_points3D(),
        float(largest.compute_mean_track_length()),
        float(largest.compute_mean_reprojection_error()),
    )
