"""Stage 3: COLMAP reconstructions from the matches of each descriptor."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from doap._support.errors import DoapError
from doap.detectors import Detector
from doap.evaluation.candidates import Candidate
from doap.evaluation.comparison.photos import DescribedPhoto
from doap.evaluation.mapping import MIN_IMAGES, Reconstruction, map_database, summarise_models
from doap.export.colmap import write_colmap
from doap.types import Progress


def evaluate_reconstructions(
    photos: Sequence[DescribedPhoto],
    pairs: Sequence[tuple[int, ...]],
    candidates: Mapping[str, Candidate],
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
    if len(connected) < MIN_IMAGES:
        return {}, f"a reconstruction needs {MIN_IMAGES} overlapping photos, {len(connected)} overlap"
    # Numbered, because photos of several folders may have the same name.
    names = {photo: f"{photo:06}-{photos[photo].path.name}" for photo in connected}
    named_pairs = [(names[first], names[second]) for first, second in pairs if first in names and second in names]
    found: dict[str, Reconstruction] = {}
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "photos"
        images.mkdir()
        for photo, name in names.items():
            shutil.copyfile(photos[photo].path, images / name)
        for number, (name, one) in enumerate(candidates.items()):
            progress(number, len(candidates), f"reconstruction with {name}")
            database = Path(folder) / f"{number}.db"
            try:
                assert one.describer is not None
                write_colmap(
                    images, database, one.describer, detector=detector, max_keypoints=max_keypoints, pairs=named_pairs
                )
            except DoapError as error:
                return {}, str(error)
            found[name] = summarise_models(map_database(database, images, Path(folder) / f"{number}", seed))
    progress(len(candidates), len(candidates), "reconstructed")
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
