"""Pictures of image pairs with their matches, stored beside a result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from doap._support.checks import check_shape
from doap._support.errors import DataError
from doap._support.files import atomic_write, make_folder
from doap.images import draw_matches

MAX_MATCHES = 150
"""Maximum number of matches in a picture."""
LONGEST_SIDE = 400
"""Longest side of each image in a picture, in pixels."""
JPEG_QUALITY = 85


@dataclass(frozen=True)
class Picture:
    """A picture of a report.

    Attributes:
        title: What it shows, for example the scene and the pair. Pictures of one title are shown side by side.
        caption: What this descriptor achieved.
        jpeg: The encoded picture.
    """

    title: str
    caption: str
    jpeg: bytes


def draw_pair(
    title: str,
    caption: str,
    images: tuple[NDArray[np.uint8], NDArray[np.uint8]],
    xy0: NDArray[np.floating],
    xy1: NDArray[np.floating],
    correct: NDArray[np.bool_],
) -> Picture:
    """Draw the matches of an image pair: correct ones in green, wrong ones in red.

    Args:
        title, caption: Texts of the picture.
        images: Images (H0, W0) and (H1, W1), or in colour.
        xy0: (M, 2) points of image 0. Of more than `MAX_MATCHES` matches, evenly spaced ones are drawn.
        xy1: (M, 2) matched points of image 1.
        correct: (M,) bool, the matches that agree with the ground truth.
    """
    import cv2

    count = check_shape(xy0, "M 2", name="xy0")["M"]
    check_shape(xy1, f"{count} 2", name="xy1")
    check_shape(correct, str(count), name="correct")
    drawn = np.unique(np.linspace(0, count - 1, min(count, MAX_MATCHES)).astype(np.intp)) if count else np.zeros(0, int)
    itself = np.stack([np.arange(len(drawn))] * 2, axis=1)
    pixels = draw_matches(*images, xy0[drawn], xy1[drawn], itself, correct[drawn], None, longest_side=LONGEST_SIDE)
    done, encoded = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    assert done, "OpenCV can encode any uint8 picture"
    return Picture(title, caption, encoded.tobytes())


def write_pictures(pictures: Sequence[Picture], path: Path, name: str) -> Path:
    """Write the pictures of the descriptor `name` beside its results at `path`, atomically.

    They are a separate file because they show the benchmark's photos, whose licence may differ from that of the
    figures.
    """
    arrays: dict[str, Any] = {f"jpeg{number}": np.frombuffer(one.jpeg, np.uint8) for number, one in enumerate(pictures)}
    arrays["titles"] = np.array([one.title for one in pictures], np.str_)
    arrays["captions"] = np.array([one.caption for one in pictures], np.str_)
    file = beside_results(path, name, ".pictures.npz")
    make_folder(file.parent)
    with atomic_write(file) as unfinished, unfinished.open("wb") as stream:
        np.savez(stream, **arrays)
    return file


def read_pictures(path: Path, name: str) -> tuple[Picture, ...]:
    """Read the pictures of the descriptor `name` beside its results at `path`; empty if there are none."""
    file = beside_results(path, name, ".pictures.npz")
    if not file.exists():
        return ()
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            texts = zip(stored["titles"].tolist(), stored["captions"].tolist(), strict=True)
            return tuple(
                Picture(str(title), str(caption), stored[f"jpeg{number}"].tobytes())
                for number, (title, caption) in enumerate(texts)
            )
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise DataError(f"{file}: not the pictures of a result ({error}). Delete the file.") from error


def beside_results(path: Path, name: str, suffix: str) -> Path:
    """Return a file of one descriptor beside results: FOLDER/NAME.npz belongs to FOLDER.json.

    Names come from files of others, so only the last part of a name that is a path counts.
    """
    return path.with_suffix("") / f"{Path(name).name}{suffix}"
