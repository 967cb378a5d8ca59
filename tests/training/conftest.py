"""A small set of patch groups that the tests of this folder train on."""

from __future__ import annotations

from pathlib import Path

import pytest

from doap.data.builders import build_from_images
from doap.images.synthetic_views import SyntheticViews
from oracles.photos import write_photo


@pytest.fixture(scope="session")
def patches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Groups of four synthetic views of each keypoint, from six photos of different scenes."""
    folder = tmp_path_factory.mktemp("photos")
    for seed in range(6):
        write_photo(folder / f"scene{seed}" / "1.png", seed)
    return build_from_images(folder, folder / "set.patches", views=SyntheticViews(count=4, keypoints=60))
