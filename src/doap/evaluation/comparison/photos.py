"""The photos of a comparison: read once, with keypoints detected once and described once by every descriptor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from doap._support.errors import DataError
from doap.detectors import Detector
from doap.evaluation.candidates import Candidate
from doap.evaluation.image_pair import Photo, detect_photo
from doap.images import read_grey, shrink
from doap.types import Progress

LONGEST_SIDE = 1600
"""Larger photos are reduced to this side, in pixels."""
RUN = 5
"""Consecutive photos that are selected together, because neighbours are likely to overlap."""


@dataclass(frozen=True, eq=False)
class DescribedPhoto:
    """A photo with keypoints and their descriptors; `enlarge` (3, 3) maps its pixels to those of the file."""

    name: str
    path: Path
    photo: Photo
    enlarge: NDArray[np.float64]
    descriptors: dict[str, Tensor]


def select_photos(paths: Sequence[Path], limit: int) -> list[Path]:
    """Select at most `limit` photos: runs of neighbours, spread evenly over all photos.

    >>> [path.name for path in select_photos([Path(f"{number:02}.jpg") for number in range(50)], 10)]
    ['00.jpg', '01.jpg', '02.jpg', '03.jpg', '04.jpg', '45.jpg', '46.jpg', '47.jpg', '48.jpg', '49.jpg']
    """
    if len(paths) <= limit:
        return list(paths)
    starts = np.linspace(0, max(len(paths) - RUN, 0), -(-limit // RUN)).round().astype(int).tolist()
    selected = sorted({start + step for start in starts for step in range(RUN) if start + step < len(paths)})
    return [paths[index] for index in selected[:limit]]


def read_photos(
    paths: Sequence[Path],
    describers: Mapping[str, Candidate],
    detector: Detector,
    max_keypoints: int,
    progress: Progress,
) -> tuple[list[DescribedPhoto], dict[str, str]]:
    """Read and describe photos; return them and, by name, the reason why a photo cannot be used."""
    photos: list[DescribedPhoto] = []
    skipped: dict[str, str] = {}
    namesakes = Counter(path.name for path in paths)
    for number, path in enumerate(paths):
        # Two photos of different folders may have the same name.
        name = path.name if namesakes[path.name] == 1 else path.as_posix()
        progress(number, len(paths), f"photo {name}")
        try:
            image, enlarge = shrink(read_grey(path), LONGEST_SIDE)
        except DataError as error:
            skipped[name] = str(error)
            continue
        photo = detect_photo(image, detector, max_keypoints, number)
        if not len(photo.frames):
            skipped[name] = f"{path}: {detector.name} detects no keypoints. The photo may be flat or too small."
            continue
        # Descriptors take turns on each photo, so that other load on the machine slows them equally.
        descriptors = {one: describer.describe(photo.image, photo.frames) for one, describer in describers.items()}
        photos.append(DescribedPhoto(name, path, photo, enlarge, descriptors))
    progress(len(paths), len(paths), "photos read")
    return photos, skipped
