"""Photos of one scene and their database, written once."""

import cv2
import pytest

from oracles.colmap_database import write
from oracles.plane_scene import VIEWS, pose, render


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Four views of one plane."""
    folder = tmp_path_factory.mktemp("photos")
    for number, view in enumerate(VIEWS):
        cv2.imwrite(str(folder / f"{number}.png"), render(pose(*view)))
    return folder


@pytest.fixture(scope="module")
def database(photos, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "database.db"
    return write(photos, out)
