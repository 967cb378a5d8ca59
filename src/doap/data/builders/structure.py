"""Photos of one place → COLMAP models, by pycolmap from end to end, the same each time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from doap.errors import import_extra

EXHAUSTIVE_UP_TO = 100
"""Photos of a place that are all matched with all; of more, in the order of their names, each with the next ten."""


def reconstruct(folder: Path, names: Sequence[str], work: Path) -> tuple[Path, list[Path]]:
    """Find keypoints, match and map some photos of a folder.

    One thread and fixed seeds throughout: bundle adjustment adds up floats in the order its threads finish, and a build
    that is killed and resumed must give the same bytes. Places are worked on side by side instead.

    Args:
        folder: where the photos are.
        names: their paths inside it.
        work: an empty folder for the database and the models.

    Returns:
        The database and the models' folders, largest model first; no model where photos do not overlap.
    """
    pycolmap = import_extra("pycolmap", "colmap")
    pycolmap.logging.minloglevel = pycolmap.logging.FATAL.value
    pycolmap.set_random_seed(0)
    database, sparse = work / "database.db", work / "sparse"
    sparse.mkdir()
    features = pycolmap.FeatureExtractionOptions(num_threads=1, use_gpu=False)
    pycolmap.extract_features(
        database,
        folder,
        list(names),
        camera_mode=pycolmap.CameraMode.PER_IMAGE,
        extraction_options=features,
        device=pycolmap.Device.cpu,
    )
    match = pycolmap.match_exhaustive if len(names) <= EXHAUSTIVE_UP_TO else pycolmap.match_sequential
    match(
        database,
        matching_options=pycolmap.FeatureMatchingOptions(num_threads=1, use_gpu=False),
        verification_options=pycolmap.TwoViewGeometryOptions(ransac={"random_seed": 0}),
        device=pycolmap.Device.cpu,
    )
    options = pycolmap.IncrementalPipelineOptions(num_threads=1, random_seed=0, extract_colors=False)
    models = pycolmap.incremental_mapping(database, folder, sparse, options)
    largest = sorted(models, key=lambda key: (-models[key].num_reg_images(), key))
    return database, [sparse / str(key) for key in largest]
