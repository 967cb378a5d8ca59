"""Stage 3: what COLMAP reconstructs from the matches of each descriptor."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from doap.describer import Describer
from doap.detectors import Detector
from doap.errors import DoapError
from doap.evaluation.compare.shots import Shot
from doap.export.colmap import write_colmap
from doap.types import Progress

FEWEST_PHOTOS = 3


@dataclass(frozen=True)
class Reconstruction:
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
    pairs: Sequence[tuple[int, ...]],
    describers: Mapping[str, Describer],
    detector: Detector,
    max_keypoints: int,
    seed: int,
    progress: Progress,
) -> tuple[dict[str, Reconstruction], str]:
    """Models by descriptor, of photos that hang together by pairs that overlap; or none, and why.

    No other pairs are matched. In a field, in which all looks alike, any two photos have dozens of matches that agree
    by chance; COLMAP takes them for overlap, and spends its time on models that fall apart.
    """
    together = hanging_together(pairs)
    if len(together) < FEWEST_PHOTOS:
        return {}, f"a reconstruction needs {FEWEST_PHOTOS} photos that overlap, and {len(together)} do"
    # Photos of several folders may have one name.
    names = {photo: f"{photo:06}-{shots[photo].path.name}" for photo in together}
    joined = [(names[first], names[second]) for first, second in pairs if first in names and second in names]
    models: dict[str, Reconstruction] = {}
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder) / "photos"
        photos.mkdir()
        for photo, name in names.items():
            shutil.copyfile(shots[photo].path, photos / name)
        for number, (name, describer) in enumerate(describers.items()):
            progress(number, len(describers), f"reconstruction with {name}")
            database = Path(folder) / f"{number}.db"
            try:
                write_colmap(photos, database, describer, detector=detector, max_keypoints=max_keypoints, pairs=joined)
            except DoapError as error:
                return {}, str(error)
            models[name] = _largest(database, photos, Path(folder) / f"{number}", seed)
    progress(len(describers), len(describers), "reconstructed")
    return models, f"{len(together)} photos that hang together by {len(joined)} pairs that overlap"


def hanging_together(pairs: Sequence[tuple[int, ...]]) -> list[int]:
    """The photo with most partners, their partners, and so on; in order.

    >>> hanging_together([(0, 1), (2, 3), (3, 4), (3, 5), (5, 6)])
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


def _largest(database: Path, photos: Path, out: Path, seed: int) -> Reconstruction:
    import pycolmap

    out.mkdir()
    options = pycolmap.IncrementalPipelineOptions(
        num_threads=1,
        random_seed=seed,
        extract_colors=False,
        # Twenty photos may hang together in parts, and COLMAP throws those of fewer than ten away.
        min_model_size=FEWEST_PHOTOS,
        # Half a minute for each photo that does not fit, where they are many.
        structure_less_registration_fallback=False,
    )
    found = pycolmap.incremental_mapping(database, photos, out, options)
    if not found:
        return Reconstruction()
    largest = max(found.values(), key=lambda model: model.num_reg_images())
    return Reconstruction(
        largest.num_reg_images(),
        largest.num_points3D(),
        float(largest.compute_mean_track_length()),
        float(largest.compute_mean_reprojection_error()),
    )
