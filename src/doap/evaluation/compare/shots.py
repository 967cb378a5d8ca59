"""The photos of a comparison: read once, keypoints found once, described by everyone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from doap.detectors import Detector
from doap.errors import DataError
from doap.evaluation.cached_describer import CachedDescriber
from doap.evaluation.image_pair import Photo, look_at
from doap.images import read_grey, shrink
from doap.types import Progress

LONGEST_SIDE = 1600
"""Pixels: a larger photo is made smaller to this first."""
VIEWS = 2
"""Made-up views of each photo."""
RUN = 5
"""Photos in a row that are taken together when not all are: neighbours are those that overlap."""


@dataclass(frozen=True, eq=False)
class Shot:
    """A photo that can be judged on, and its descriptors by the name of what made them."""

    name: str
    path: Path
    photo: Photo
    described: dict[str, Tensor]


def spread(paths: Sequence[Path], limit: int) -> list[Path]:
    """Up to so many of the photos: runs of neighbours, spread over all.

    >>> [path.name for path in spread([Path(f"{number:02}.jpg") for number in range(50)], 10)]
    ['00.jpg', '01.jpg', '02.jpg', '03.jpg', '04.jpg', '45.jpg', '46.jpg', '47.jpg', '48.jpg', '49.jpg']
    """
    if len(paths) <= limit:
        return list(paths)
    starts = np.linspace(0, max(len(paths) - RUN, 0), -(-limit // RUN)).round().astype(int).tolist()
    places = sorted({start + step for start in starts for step in range(RUN) if start + step < len(paths)})
    return [paths[place] for place in places[:limit]]


def take(
    paths: Sequence[Path],
    describing: Mapping[str, CachedDescriber],
    detector: Detector,
    max_keypoints: int,
    progress: Progress,
) -> tuple[list[Shot], dict[str, str]]:
    """The photos that can be judged on; and why the others cannot, by name."""
    shots: list[Shot] = []
    left_out: dict[str, str] = {}
    for number, (name, path) in enumerate(zip(_names(paths), paths, strict=True)):
        progress(number, len(paths), f"photo {name}")
        try:
            image, _ = shrink(read_grey(path), LONGEST_SIDE)
        except DataError as error:
            left_out[name] = str(error)
            continue
        # Each photo and each of its views has its keypoints in an order of its own.
        photo = look_at(image, detector, max_keypoints, (1 + VIEWS) * number)
        if not len(photo.frames):
            left_out[name] = f"{path}: expected keypoints of {detector.name}, got none; it may be flat or too small"
            continue
        # In turn, so that a machine that is busy for a while is so for all.
        described = {name: describe.frames(photo.image, photo.frames) for name, describe in describing.items()}
        shots.append(Shot(name, path, photo, described))
    progress(len(paths), len(paths), "photos read")
    return shots, left_out


def _names(paths: Sequence[Path]) -> list[str]:
    """The file's name, or the whole path where two files have the same."""
    namesakes = Counter(path.name for path in paths)
    return [path.name if namesakes[path.name] == 1 else path.as_posix() for path in paths]
