"""UBC / Brown PhotoTour: Liberty, Notre Dame, Yosemite, and their Harris variants.

liberty/patches0000.bmp …   1024×1024 sheets of 16×16 patches of 64×64; the last sheet is padded
liberty/info.txt            line i: 3-D point of patch i, unused
liberty/interest.txt        line i: reference image of patch i, x, y, orientation, scale
liberty/m50_*.txt           pair per line: patch, its point, unused, patch, its point, unused, unused
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from doap._support.errors import ArgumentError, DataError
from doap.data.readers.files import Unit, read_numbers, sort_by_point
from doap.images import read_grey

INFO = "info.txt"
SIDE = 64
SHEET = 1024
PER_SHEET = (SHEET // SIDE) ** 2
PER_UNIT = 16_384


@dataclass(frozen=True, eq=False)
class PhotoTour:
    """A PhotoTour dataset of N patches. Sheets are loaded on demand.

    Attributes:
        root: Folder of the dataset, whose name is the name of the dataset.
        sheets: BMP files in order.
        points: (N,) 3-D point of each patch. Patches of the same point match.
        reference_images: (N,), or None without interest.txt. The authors recommend generating
            matches and non-matches from patches of one reference image.
    """

    root: Path
    sheets: tuple[Path, ...]
    points: NDArray[np.int64]
    reference_images: NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(self.points)

    def load(self, indices: ArrayLike) -> NDArray[np.uint8]:
        """Return the patches (n, 64, 64) at `indices` (n,). Each sheet is read once."""
        wanted = np.asarray(indices, dtype=np.int64).reshape(-1)
        if ((wanted < 0) | (wanted >= len(self))).any():
            raise ArgumentError(f"indices: expected 0 to {len(self) - 1}, got {wanted.min()} to {wanted.max()}.")
        patches = np.empty((len(wanted), SIDE, SIDE), np.uint8)
        sheet = wanted // PER_SHEET
        for number in np.unique(sheet):
            here = sheet == number
            patches[here] = _read_sheet(self.sheets[number])[wanted[here] % PER_SHEET]
        return patches

    def pairs(self, name: str = "m50_100000_100000_0.txt") -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return indices (P, 2) and labels (P,) of a pair list. The default is the standard test list."""
        table = read_numbers(self.root / name, columns=(0, 3, 1, 4)).astype(np.int64)
        indices, points = table[:, :2], table[:, 2:]
        if indices.min() < 0 or indices.max() >= len(self):
            raise DataError(
                f"{self.root / name}: expected patches 0 to {len(self) - 1}. The file is of another dataset."
            )
        return indices, points[:, 0] == points[:, 1]

    def units(self, skip: int = 0) -> Iterator[Unit]:
        """Yield units of about 64 MB with one group per 3-D point, without reading the first `skip` units.

        Patches are sorted by point. info.txt is usually sorted too, and a unit then reads
        neighbouring sheets only. Any other order needs more reading but not more memory.
        """
        order, counts = sort_by_point(self.points)
        window = (counts.cumsum() - 1) // PER_UNIT
        start = 0
        for number, part in enumerate(np.split(counts, np.flatnonzero(np.diff(window)) + 1)):
            stop = start + int(part.sum())
            if number >= skip:
                yield Unit(f"{self.root.name}-{number:04d}", self.root.name, self.load(order[start:stop]), part)
            start = stop


def read_phototour(root: str | Path) -> PhotoTour:
    """Open a PhotoTour folder: read info.txt and interest.txt, but no pixels.

    patches = read_phototour("liberty").load([0, 1])   # (2, 64, 64) uint8
    """
    root = Path(root).resolve()
    sheets = tuple(sorted(root.glob("*.bmp")))
    if not sheets:
        raise DataError(f"{root}: expected patches0000.bmp and so on, got no *.bmp. Use the folder of one dataset.")
    points = read_numbers(root / INFO, columns=(0,))[:, 0].astype(np.int64)
    numbers = {int(digits) for sheet in sheets if (digits := sheet.stem.removeprefix("patches")).isdecimal()}
    if missing := sorted(set(range(max(numbers, default=-1) + 1)) - numbers):
        raise DataError(
            f"{root}: missing {len(missing)} sheets, such as patches{missing[0]:04d}.bmp. Download it again."
        )
    capacity = len(sheets) * PER_SHEET
    if not capacity - PER_SHEET < len(points) <= capacity:
        rule = (
            f"expected {capacity - PER_SHEET + 1} to {capacity} lines for {len(sheets)} sheets of {PER_SHEET} patches"
        )
        raise DataError(f"{root / INFO}: {rule}, got {len(points)}. A file is missing or of another dataset.")
    return PhotoTour(root, sheets, points, _read_reference_images(root / "interest.txt", len(points)))


def _read_sheet(path: Path) -> NDArray[np.uint8]:
    """Return the patches (256, 64, 64) of one sheet, including padding."""
    image = read_grey(path)
    if image.shape != (SHEET, SHEET):
        raise DataError(f"{path}: expected a sheet {(SHEET, SHEET)}, got {image.shape}. Download it again.")
    across = SHEET // SIDE
    tiles: NDArray[np.uint8] = image.reshape(across, SIDE, across, SIDE).swapaxes(1, 2)
    return tiles.reshape(PER_SHEET, SIDE, SIDE)


def _read_reference_images(path: Path, number: int) -> NDArray[np.int64] | None:
    if not path.is_file():
        return None
    images = read_numbers(path, columns=(0,))[:, 0].astype(np.int64)
    if len(images) != number:
        raise DataError(
            f"{path}: expected {number} lines as in info.txt, got {len(images)}. The file is of another dataset."
        )
    return images
