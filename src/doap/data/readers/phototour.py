"""UBC / Brown PhotoTour: liberty, notredame, yosemite, and their Harris variants.

liberty/patches0000.bmp …   sheets 1024×1024 of 16×16 patches 64×64, row by row; the last sheet is padded
liberty/info.txt            line i: 3-D point of patch i, unused
liberty/interest.txt        line i: reference image of patch i, x, y, orientation, scale
liberty/m50_*.txt           a pair a line: patch, its point, unused, patch, its point, unused, unused
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from doap.data.readers.files import attempt, image_size, read_numbers
from doap.data.readers.unit import Unit, nowhere
from doap.errors import ArgumentError, DataError
from doap.images import read_grey

SIDE = 64
SHEET = 1024
PER_SHEET = (SHEET // SIDE) ** 2
PER_UNIT = 16_384


@dataclass(frozen=True, eq=False)
class PhotoTour:
    """One PhotoTour set of N patches; sheets are read when patches are asked for.

    Attributes:
        root: its folder, whose name is the name of the set.
        sheets: the BMP files, in order.
        points: (N,) the 3-D point of each patch; equal means match.
        reference_images: (N,) or None where there is no interest.txt. The authors ask that matches and non-matches of
            one's own be made among patches of one reference image.
    """

    root: Path
    sheets: tuple[Path, ...]
    points: NDArray[np.int64]
    reference_images: NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(self.points)

    @property
    def pair_files(self) -> tuple[str, ...]:
        """Names of the lists of pairs at hand."""
        return tuple(sorted(path.name for path in self.root.glob("m50_*.txt")))

    def load(self, indices: ArrayLike) -> NDArray[np.uint8]:
        """The patches (n, 64, 64) at `indices` (n,), in that order; each sheet is read once."""
        wanted = np.asarray(indices, dtype=np.int64).reshape(-1)
        if wanted.size and (wanted.min() < 0 or wanted.max() >= len(self)):
            raise ArgumentError(f"indices: expected 0 to {len(self) - 1}, got {wanted.min()} to {wanted.max()}")
        patches = np.empty((len(wanted), SIDE, SIDE), np.uint8)
        sheet = wanted // PER_SHEET
        for number in np.unique(sheet):
            here = sheet == number
            patches[here] = _read_sheet(self.sheets[number])[wanted[here] % PER_SHEET]
        return patches

    def iter_sheets(self) -> Iterator[NDArray[np.uint8]]:
        """All patches in order, a sheet (≤ 256, 64, 64) at a time, without the padding of the last."""
        for start, sheet in zip(range(0, len(self), PER_SHEET), self.sheets, strict=True):
            yield _read_sheet(sheet)[: len(self) - start]

    def read_all(self) -> NDArray[np.uint8]:
        """All patches (N, 64, 64): 1.8 to 2.6 GB for the published sets."""
        return self.load(np.arange(len(self)))

    def pairs(self, name: str = "m50_100000_100000_0.txt") -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """A list of pairs: indices (P, 2) and whether they match (P,). The default is the one everybody reports."""
        indices, points = self._read_pairs(name)
        return indices, points[:, 0] == points[:, 1]

    def units(self, skip: int = 0) -> Iterator[Unit]:
        """The set as patch groups, one group a 3-D point, in units of about 64 MB; the first `skip` are not read.

        A stable sort by point makes groups contiguous whatever the order of info.txt. Where that goes point by point,
        a unit reads neighbouring sheets only; any other order costs more reading, never more memory.
        """
        order = np.argsort(self.points, kind="stable")
        counts = np.unique(self.points, return_counts=True)[1].astype(np.int64)
        window = (counts.cumsum() - 1) // PER_UNIT
        start = 0
        for number, part in enumerate(np.split(counts, np.flatnonzero(np.diff(window)) + 1)):
            stop = start + int(part.sum())
            if number >= skip:
                patches = self.load(order[start:stop])
                yield Unit(f"{self.root.name}-{number:04d}", self.root.name, patches, part, nowhere(len(part)))
            start = stop

    def _read_pairs(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        table = read_numbers(self.root / name, columns=(0, 3, 1, 4)).astype(np.int64)
        indices, points = table[:, :2], table[:, 2:]
        if indices.min() < 0 or indices.max() >= len(self):
            found = f"{indices.min()} to {indices.max()}"
            raise DataError(
                f"{self.root / name}: expected patches 0 to {len(self) - 1}, got {found}; is it of this set?"
            )
        return indices, points


def read_phototour(root: str | Path) -> PhotoTour:
    """Open a PhotoTour folder; reads info.txt and interest.txt, no pixels."""
    root = Path(root).resolve()
    sheets, points = _find_sheets(root), _read_points(root)
    _check_gaps(sheets)
    _check_number(root, len(sheets), len(points))
    return PhotoTour(root, sheets, points, _read_reference_images(root, len(points)))


def recognise(root: Path) -> bool:
    """Whether this looks like a PhotoTour folder, whole or not."""
    return (root / "info.txt").is_file() or any(root.glob("patches*.bmp"))


def examine(root: Path) -> tuple[str, list[str]]:
    """A summary and all that is wrong with a PhotoTour folder; headers of sheets are read, not their pixels."""
    problems: list[str] = []
    sheets, points = attempt(problems, _find_sheets, root) or (), attempt(problems, _read_points, root)
    attempt(problems, _check_gaps, sheets)
    for sheet in sheets:
        size = attempt(problems, image_size, sheet)
        if size is not None:
            attempt(problems, _check_sheet, sheet, size)
    if points is None:
        return f"PhotoTour: {len(sheets)} sheets of unknown patches", problems
    if sheets:
        attempt(problems, _check_number, root, len(sheets), len(points))
    attempt(problems, _read_reference_images, root, len(points))
    tour = PhotoTour(root, sheets, points, None)
    for name in tour.pair_files:
        attempt(problems, _check_pairs, tour, name)
    groups = len(np.unique(points))
    return f"PhotoTour: {len(tour):,} patches of {groups:,} points, {len(tour.pair_files)} lists of pairs", problems


def _find_sheets(root: Path) -> tuple[Path, ...]:
    sheets = tuple(sorted(root.glob("*.bmp")))
    if not sheets:
        raise DataError(f"{root}: expected patches0000.bmp and so on, got no *.bmp; give the folder of one set")
    return sheets


def _check_gaps(sheets: tuple[Path, ...]) -> None:
    numbers = {int(digits) for sheet in sheets if (digits := sheet.stem.removeprefix("patches")).isdecimal()}
    missing = sorted(set(range(max(numbers, default=-1) + 1)) - numbers)
    if missing:
        names = ", ".join(f"patches{number:04d}.bmp" for number in missing[:5]) + (" …" if len(missing) > 5 else "")
        raise DataError(f"{sheets[0].parent}: expected sheets without a gap, got {names} missing; fetch the set again")


def _read_points(root: Path) -> NDArray[np.int64]:
    return read_numbers(root / "info.txt", columns=(0,))[:, 0].astype(np.int64)


def _check_number(root: Path, sheets: int, patches: int) -> None:
    most = sheets * PER_SHEET
    if not most - PER_SHEET < patches <= most:
        rule = f"expected {most - PER_SHEET + 1} to {most} lines for {sheets} sheets of {PER_SHEET} patches"
        raise DataError(f"{root / 'info.txt'}: {rule}, got {patches}; a file is missing or of another set")


def _check_pairs(tour: PhotoTour, name: str) -> None:
    indices, points = tour._read_pairs(name)
    wrong = (tour.points[indices] != points).any(axis=1).sum()
    if wrong:
        raise DataError(f"{tour.root / name}: expected the points of info.txt, got others in {wrong} pairs")


def _read_sheet(path: Path) -> NDArray[np.uint8]:
    """(256, 64, 64) of one sheet, padding included."""
    image = read_grey(path)
    _check_sheet(path, image.shape)
    across = SHEET // SIDE
    tiles: NDArray[np.uint8] = image.reshape(across, SIDE, across, SIDE).swapaxes(1, 2)
    return tiles.reshape(PER_SHEET, SIDE, SIDE)


def _check_sheet(path: Path, size: tuple[int, ...]) -> None:
    if size != (SHEET, SHEET):
        raise DataError(f"{path}: expected a sheet {(SHEET, SHEET)}, got {size}; fetch it again")


def _read_reference_images(root: Path, number: int) -> NDArray[np.int64] | None:
    path = root / "interest.txt"
    if not path.is_file():
        return None
    images = read_numbers(path, columns=(0,))[:, 0].astype(np.int64)
    if len(images) != number:
        raise DataError(f"{path}: expected {number} lines as in info.txt, got {len(images)}; is it of this set?")
    return images
