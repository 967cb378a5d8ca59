"""A photo and what was found for it, as a picture."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from doap.errors import check_shape
from doap.images.draw import BACKGROUND, DIMMED, INLIER, MARGIN, TEXT

CELL, CAPTION, ACROSS = 240, 44, 6
_LINE = 18


def draw_strip(photos: Sequence[NDArray[np.uint8]], captions: Sequence[tuple[str, str]]) -> NDArray[np.uint8]:
    """Photos from left to right, six to a row, each with two lines beneath it; the first, the query, in a green frame.

    Args:
        photos: (height, width) each, of any sizes.
        captions: what to write beneath each; what is too long loses its beginning, for names differ at their ends.

    Returns:
        (height, width, 3) blue, green, red.
    """
    import cv2

    rows, columns = -(-len(photos) // ACROSS), min(ACROSS, len(photos))
    step = (CELL + CAPTION + MARGIN, CELL + MARGIN)
    canvas = np.full((rows * step[0] + MARGIN, columns * step[1] + MARGIN, 3), BACKGROUND, np.uint8)
    for place, (photo, caption) in enumerate(zip(photos, captions, strict=True)):
        height, width = check_shape(photo, "height width", name="photo").values()
        share = CELL / max(height, width)
        size = (max(1, round(width * share)), max(1, round(height * share)))
        small = cv2.resize(photo, size, interpolation=cv2.INTER_AREA if share < 1 else cv2.INTER_LINEAR)
        top, left = (MARGIN + number * length for number, length in zip(divmod(place, ACROSS), step, strict=True))
        corner = (left + (CELL - size[0]) // 2, top + (CELL - size[1]) // 2)
        canvas[corner[1] : corner[1] + size[1], corner[0] : corner[0] + size[0]] = DIMMED * small[..., None]
        if place == 0:
            cv2.rectangle(canvas, corner, (corner[0] + size[0] - 1, corner[1] + size[1] - 1), INLIER, 2)
        for number, line in enumerate(caption, start=1):
            _write(canvas, line, (left, top + CELL + number * _LINE))
    return canvas


def _write(canvas: NDArray[np.uint8], line: str, corner: tuple[int, int]) -> None:
    import cv2

    # The fonts of OpenCV 4 know ASCII alone.
    words = unicodedata.normalize("NFKD", line).encode("ascii", "ignore").decode()
    while cv2.getTextSize(words, cv2.FONT_HERSHEY_SIMPLEX, 0.45, 1)[0][0] > CELL:
        words = words[1:]
    cv2.putText(canvas, words, corner, cv2.FONT_HERSHEY_SIMPLEX, 0.45, TEXT, 1, cv2.LINE_AA)
