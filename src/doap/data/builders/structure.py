"""Reconstruct the photos of one scene with COLMAP, reproducibly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from doap._support.errors import import_extra
from doap.images.read import check_pixels

MAX_PHOTOS_EXHAUSTIVE = 100
"""Larger scenes are matched sequentially, in the order of the names, instead of exhaustively."""


def reconstruct_scene(folder: Path, names: Sequence[str], work: Path) -> tuple[Path, list[Path]]:
    """Extract, match and map some photos of a folder.

    COLMAP runs on one thread with fixed seeds. Bundle adjustment adds floats in the order in which
    threads finish, and an interrupted and resumed build must produce the same bytes. Scenes are
    processed in parallel instead.

    Photos that see too few points of the model are not registered. COLMAP's structure-less fallback, which would try
    them again with matches between pairs of photos, is off: it takes about half a minute for each of them.

    Args:
        folder: Folder of the photos.
        names: Paths of the photos relative to `folder`.
        work: Empty folder for the database and the models.

    Returns:
        Path of the database, and folders of the models, largest model first. There is no model if
        no photos overlap.

    Raises:
        DataError: If a photo has more pixels than `read_grey` allows.
    """
    # COLMAP decodes the photos itself, and would allocate any size that a header declares.
    for name in names:
        check_pixels(folder / name)
    pycolmap = import_extra("pycolmap", "colmap")
    pycolmap.logging.minloglevel = pycolmap.logging.FATAL.value
    pycolmap.set_random_seed(0)
    database, sparse = work / "database.db", work / "sparse"
    sparse.mkdir()
    pycolmap.extract_features(
        database,
        folder,
        list(names),
        camera_mode=pycolmap.CameraMode.PER_IMAGE,
        extraction_options=pycolmap.FeatureExtractionOptions(num_threads=1, use_gpu=False),
        device=pycolmap.Device.cpu,
    )
    match = pycolmap.match_exhaustive if len(names) <= MAX_PHOTOS_EXHAUSTIVE else pycolmap.match_sequential
    match(
        database,
        matching_options=pycolmap.FeatureMatchingOptions(num_threads=1, use_gpu=False),
        verification_options=pycolmap.TwoViewGeometryOptions(ransac={"random_seed": 0}),
        device=pycolmap.Device.cpu,
    )
    options = pycolmap.IncrementalPipelineOptions(
        num_threads=1, random_seed=0, extract_colors=False, structure_less_registration_fallback=False
    )
    models = pycolmap.incremental_mapping(database, folder, sparse, options)
    largest_first = sorted(models, key=lambda key: (-models[key].num_reg_images(), key))
    return database, [sparse / str(key) for key in largest_first]
