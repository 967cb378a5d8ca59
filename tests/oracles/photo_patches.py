"""A patch set of one photo."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from doap.data.writer import SetWriter, UnitGroups
from doap.detectors import sift
from doap.images import extract_patches, read_grey


def write_set(path: Path, photo: Path, max_keypoints: int = 200, size: int = 32) -> Path:
    """Write a set of the patches of a photo's strongest keypoints, each a group of its own."""
    grey = read_grey(photo)
    patches = extract_patches(grey, sift().detect(grey, max_keypoints)[0], size)
    count = len(patches)
    groups = UnitGroups(np.ones(count, np.int64), "scene", photo.name, np.zeros((0, 2), np.int64))
    writer = SetWriter(path, size, {"kind": "test"}, [{"scene": "scene", "licence": "CC0"}])
    writer.add(photo.name, patches, groups)
    return writer.finish()
