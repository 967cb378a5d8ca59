"""Image sequences with known homographies: Oxford (Mikolajczyk et al.) and HPatches sequences.

graf/img1.ppm … img6.ppm   (.pgm, .png)   with   H1to2p … H1to6p, text 3×3   or   H1to2p.xml …, OpenCV's XML
v_wall/1.ppm … 6.ppm       (.png)         with   H_1_2 … H_1_6, text 3×3
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import DataError
from doap.data.readers.files import read_numbers

IMAGES = 6
EXTENSIONS = ("ppm", "pgm", "png")


@dataclass(frozen=True, eq=False)
class ImageSequence:
    """Six images of a plane, or of a scene from one viewpoint.

    Attributes:
        name: Name of its folder.
        images: Six image files.
        homographies: (6, 3, 3) float64 from image 1 to each image; the first is the identity.
    """

    name: str
    images: tuple[Path, ...]
    homographies: NDArray[np.float64]


def read_oxford(root: str | Path) -> list[ImageSequence]:
    """Open a folder of sequences, or one sequence, without reading pixels; sorted by name.

    homographies = read_oxford("oxford")[0].homographies   # (6, 3, 3)
    """
    root = Path(root)
    folders = _folders(root)
    if not folders:
        raise DataError(
            f"{root}: expected sequences with img1… and H1to2p…, or 1… and H_1_2…, got none. Check the path."
        )
    return [_read_sequence(folder) for folder in folders]


def _folders(root: Path) -> list[Path]:
    """Return `root` if it is a sequence, or else its subfolders that are sequences."""
    candidates = [root, *sorted(path for path in root.iterdir() if path.is_dir())] if root.is_dir() else []
    found = [
        path
        for path in candidates
        if any(file.is_file() for number in range(1, IMAGES + 1) for file in _image_names(path, number))
        and any(file.is_file() for number in range(2, IMAGES + 1) for file in _homography_names(path, number))
    ]
    return [root] if root in found else found


def _image_names(folder: Path, number: int) -> list[Path]:
    return [folder / f"{stem}{number}.{extension}" for stem in ("img", "") for extension in EXTENSIONS]


def _homography_names(folder: Path, number: int) -> list[Path]:
    return [folder / name for name in (f"H1to{number}p", f"H1to{number}p.xml", f"H_1_{number}")]


def _read_sequence(folder: Path) -> ImageSequence:
    numbers = range(1, IMAGES + 1)
    images = tuple(_find_image(folder, number) for number in numbers)
    homographies = np.stack([_read_homography(folder, number) for number in numbers])
    return ImageSequence(folder.resolve().name, images, homographies)


def _find_image(folder: Path, number: int) -> Path:
    for path in _image_names(folder, number):
        if path.is_file():
            return path
    raise DataError(f"{folder}: expected image {number} as img{number} or {number} (.ppm .pgm .png), got none.")


def _read_homography(folder: Path, number: int) -> NDArray[np.float64]:
    """Return the homography (3, 3) from image 1 to this one."""
    if number == 1:
        return np.eye(3)
    for path in _homography_names(folder, number):
        if path.is_file():
            matrix = _read_xml(path) if path.suffix == ".xml" else read_numbers(path)
            if matrix.shape != (3, 3) or not np.isfinite(matrix).all() or np.linalg.det(matrix) == 0:
                raise DataError(f"{path}: expected an invertible 3×3 matrix, got {matrix.tolist()}. Download it again.")
            return matrix
    raise DataError(f"{folder}: expected a homography H1to{number}p, H1to{number}p.xml or H_1_{number}, got none.")


def _read_xml(path: Path) -> NDArray[np.float64]:
    """Return the first matrix of a file written by OpenCV's FileStorage."""
    try:
        tree = ElementTree.parse(path)
        rows, columns = (int(tree.findtext(f".//{name}", "0")) for name in ("rows", "cols"))
        return np.array(tree.findtext(".//data", "").split(), np.float64).reshape(rows, columns)
    except (ElementTree.ParseError, ValueError) as error:
        raise DataError(f"{path}: expected OpenCV's XML of a 3×3 matrix ({error}).") from error
