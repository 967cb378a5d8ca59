"""HPatches, the release of patches.

hpatches-release/v_wall/ref.png          n patches 65×65, one above the other: a strip (65·n, 65)
hpatches-release/v_wall/e1.png … t5.png  the same patches in the other five images: easy, hard and tough noise
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.data.readers.files import attempt, image_size
from doap.data.readers.unit import Unit, nowhere
from doap.errors import DataError
from doap.images import read_grey

SIDE = 65
STRIPS = ("ref", *(noise + str(image) for noise in "eht" for image in range(1, 6)))


@dataclass(frozen=True)
class HPatches:
    """The release of patches; a sequence is read when it is asked for.

    Attributes:
        root: its folder.
        sequences: names, sorted; `i_…` change in light, `v_…` in viewpoint.
    """

    root: Path
    sequences: tuple[str, ...]

    def load(self, sequence: str) -> NDArray[np.uint8]:
        """(n, 16, 65, 65): n groups, their patches in the order of `STRIPS`: ref, e1…e5, h1…h5, t1…t5."""
        if sequence not in self.sequences:
            raise DataError(f"{self.root}: expected a sequence {sequence!r}, got {len(self.sequences)} without it")
        strips = [_read_strip(self.root / sequence / f"{strip}.png") for strip in STRIPS]
        uneven = _uneven(self.root / sequence, [len(strip) for strip in strips])
        if uneven:
            raise DataError(uneven)
        return np.stack(strips, axis=1)

    def units(self, skip: int = 0) -> Iterator[Unit]:
        """One unit a sequence, groups of 16; the first `skip` sequences are not read."""
        for name in self.sequences[skip:]:
            groups = self.load(name)
            counts = np.full(len(groups), len(STRIPS), np.int64)
            yield Unit(name, name, groups.reshape(-1, SIDE, SIDE), counts, nowhere(len(groups)))


def read_hpatches(root: str | Path) -> HPatches:
    """Open the folder of the release; reads no pixels."""
    root = Path(root)
    sequences = tuple(folder.name for folder in _folders(root))
    if not sequences:
        raise DataError(f"{root}: expected folders i_… or v_… with strips such as ref.png, got none; check the path")
    return HPatches(root, sequences)


def recognise(root: Path) -> bool:
    """Whether this looks like the release of patches, whole or not."""
    return bool(_folders(root))


def examine(root: Path) -> tuple[str, list[str]]:
    """A summary and all that is wrong with the strips; headers are read, not pixels."""
    problems: list[str] = []
    folders = _folders(root)
    total = 0
    for folder in folders:
        missing = [f"{strip}.png" for strip in STRIPS if not (folder / f"{strip}.png").is_file()]
        if missing:
            problems.append(
                f"{folder}: expected {len(STRIPS)} strips, got {', '.join(missing)} missing; fetch it again"
            )
        present = [folder / f"{strip}.png" for strip in STRIPS if f"{strip}.png" not in missing]
        counts = [attempt(problems, _count_patches, path, attempt(problems, image_size, path)) for path in present]
        uneven = _uneven(folder, [count for count in counts if count is not None])
        problems.extend([uneven] if uneven else [])
        total += max((count for count in counts if count is not None), default=0)
    return f"HPatches patches: {len(folders)} sequences, {total:,} groups of {len(STRIPS)}", problems


def _folders(root: Path) -> list[Path]:
    """Folders of sequences: the full images come in folders of the same names, so a strip must be there."""
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
        raise DataError(f"{path}: expected a strip ({SIDE}·n, {SIDE}), got {size}; fetch it again")
    return height // SIDE


def _uneven(folder: Path, counts: list[int]) -> str | None:
    if len(set(counts)) <= 1:
        return None
    return f"{folder}: expected as many patches in every strip, got {min(counts)} to {max(counts)}; fetch it again"
