"""The patches of HPatches.

hpatches-release/v_wall/ref.png          n patches of 65×65, stacked vertically: a strip (65·n, 65)
hpatches-release/v_wall/e1.png … t5.png  the same patches in the other five images: easy, hard, tough
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import DataError
from doap.data.readers.files import attempt, image_size
from doap.data.readers.unit import Unit, unknown_positions
from doap.images import read_grey

SIDE = 65
STRIPS = ("ref", *(difficulty + str(image) for difficulty in "eht" for image in range(1, 6)))


@dataclass(frozen=True)
class HPatches:
    """The patches of HPatches. Sequences are loaded on demand.

    Attributes:
        root: Folder of the dataset.
        sequences: Sorted names: `i_…` with changes of illumination, `v_…` with changes of
            viewpoint.
    """

    root: Path
    sequences: tuple[str, ...]

    def load(self, sequence: str) -> NDArray[np.uint8]:
        """Return (n, 16, 65, 65): n groups with patches in the order ref, e1…e5, h1…h5, t1…t5."""
        if sequence not in self.sequences:
            raise DataError(f"{self.root}: no sequence {sequence!r} among {len(self.sequences)} sequences.")
        strips = [_read_strip(self.root / sequence / f"{strip}.png") for strip in STRIPS]
        uneven = _uneven(self.root / sequence, [len(strip) for strip in strips])
        if uneven:
            raise DataError(uneven)
        return np.stack(strips, axis=1)

    def units(self, skip: int = 0) -> Iterator[Unit]:
        """Yield one unit per sequence, with groups of 16, without reading the first `skip` sequences."""
        for name in self.sequences[skip:]:
            groups = self.load(name)
            counts = np.full(len(groups), len(STRIPS), np.int64)
            yield Unit(name, name, groups.reshape(-1, SIDE, SIDE), counts, unknown_positions(len(groups)))


def read_hpatches(root: str | Path) -> HPatches:
    """Open the folder of the HPatches patches without reading pixels.

    groups = read_hpatches("hpatches-release").load("v_wall")   # (n, 16, 65, 65) uint8
    """
    root = Path(root)
    sequences = tuple(folder.name for folder in _folders(root))
    if not sequences:
        raise DataError(f"{root}: expected folders i_… or v_… with strips such as ref.png, got none. Check the path.")
    return HPatches(root, sequences)


def recognise(root: Path) -> bool:
    """Return whether a folder contains HPatches patches, complete or not."""
    return bool(_folders(root))


def examine(root: Path) -> tuple[str, list[str]]:
    """Return a summary and all problems of the strips. Only image headers are read."""
    problems: list[str] = []
    folders = _folders(root)
    total = 0
    for folder in folders:
        missing = [f"{strip}.png" for strip in STRIPS if not (folder / f"{strip}.png").is_file()]
        if missing:
            problems.append(f"{folder}: missing strips {', '.join(missing)}. Download it again.")
        present = [folder / f"{strip}.png" for strip in STRIPS if f"{strip}.png" not in missing]
        counts = [attempt(problems, _count_patches, path, attempt(problems, image_size, path)) for path in present]
        uneven = _uneven(folder, [count for count in counts if count is not None])
        problems.extend([uneven] if uneven else [])
        total += max((count for count in counts if count is not None), default=0)
    return f"HPatches patches: {len(folders)} sequences, {total:,} groups of {len(STRIPS)}", problems


def _folders(root: Path) -> list[Path]:
    """Return the folders with strips. The full images of HPatches use the same folder names."""
    named = (folder for prefix in "iv" for folder in root.glob(f"{prefix}_*") if folder.is_dir())
    return sorted(folder for folder in named if any((folder / f"{strip}.png").is_file() for strip in STRIPS))


def _read_strip(path: Path) -> NDArray[np.uint8]:
    image = read_grey(path)
    _count_patches(path, (image.shape[0], image.shape[1]))
    return image.reshape(-1, SIDE, SIDE)


def _count_patches(path: Path, size: tuple[int, int] | None) -> int | None:
    if size is None:
        return None
    height, width = size
    if width != SIDE or height % SIDE or not height:
        raise DataError(f"{path}: expected a strip ({SIDE}·n, {SIDE}), got {size}. Download it again.")
    return height // SIDE


def _uneven(folder: Path, counts: list[int]) -> str | None:
    if len(set(counts)) <= 1:
        return None
    return f"{folder}: expected strips of one length, got {min(counts)} to {max(counts)} patches. Download it again."
