"""Draw the matches of two photos, and a query photo with its search results."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.checks import check_shape
from doap.errors import ArgumentError

Grey = NDArray[np.uint8]
Points = NDArray[np.floating[Any]]

# Colours are (blue, green, red).
BACKGROUND, TEXT = (28, 24, 22), (235, 235, 235)
KEYPOINT, INLIER, REJECT = (255, 215, 130), (80, 240, 60), (60, 50, 245)
# Photos are darkened, because green lines are hard to see on bright surfaces.
DIMMED = 0.88
MARGIN, STRIP, NARROWEST = 12, 56, 480
CELL, CAPTION, ACROSS = 240, 44, 6
_LINE = 18
# OpenCV draws with fixed-point coordinates: four bits are sixteenths of a pixel.
_BITS = 4


def draw_matches(
    image0: Grey,
    image1: Grey,
    points0: Points,
    points1: Points,
    matches: NDArray[np.integer[Any]],
    inliers: NDArray[np.bool_],
    title: str,
    *,
    longest_side: int = 1200,
) -> NDArray[np.uint8]:
    """Draw two photos side by side: inliers as green lines, all other matches in faint red.

    The more lines there are, the more transparent they become, so that the photos stay visible.

    Args:
        image0: (H0, W0) uint8, grey.
        image1: (H1, W1) uint8, grey.
        points0: (N0, 2) all keypoints of image 0, as (x, y).
        points1: (N1, 2) all keypoints of image 1.
        matches: (M, 2) indices into `points0` and `points1`.
        inliers: (M,) matches that agree with the geometry.
        title: Text above the photos. Parts may be joined with " · ".
        longest_side: Longest side of both photos in the picture, unless both are smaller.

    Returns:
        (H, W, 3) uint8 in the channel order blue, green, red.
    """
    count = check_shape(matches, "M 2", name="matches")["M"]
    check_shape(inliers, str(count), name="inliers")
    if longest_side < 1:
        raise ArgumentError(f"longest_side: expected at least 1, got {longest_side}.")
    # A thumbnail next to a photo is enlarged, to separate its keypoints.
    longest = min(longest_side, max(*image0.shape, *image1.shape))
    photos, factors = zip(*(_resized(image, longest) for image in (image0, image1)), strict=True)
    height = max(photo.shape[0] for photo in photos)
    width = max(NARROWEST, sum(photo.shape[1] for photo in photos) + 3 * MARGIN)
    canvas = np.full((STRIP + height + MARGIN, width, 3), BACKGROUND, np.uint8)
    placed = []
    left = MARGIN
    for photo, factor, points in zip(photos, factors, (points0, points1), strict=True):
        check_shape(points, "N 2", name="points")
        top = STRIP + (height - photo.shape[0]) // 2
        canvas[top : top + photo.shape[0], left : left + photo.shape[1]] = DIMMED * photo[..., None]
        # The outer corner of the first pixel is fixed, half a pixel from its centre.
        placed.append((points + 0.5) * factor - 0.5 + (left, top))
        left += photo.shape[1] + MARGIN
    starts, ends = placed[0][matches[:, 0]], placed[1][matches[:, 1]]
    _dots(canvas, np.concatenate(placed), KEYPOINT, radius=1.5, opacity=0.6)
    _lines(canvas, starts[~inliers], ends[~inliers], REJECT, strength=0.5)
    _lines(canvas, starts[inliers], ends[inliers], INLIER, strength=1)
    _dots(canvas, np.concatenate([starts[inliers], ends[inliers]]), INLIER, radius=2.6, opacity=0.9)
    _write(canvas, title)
    return canvas


def draw_strip(photos: Sequence[Grey], captions: Sequence[tuple[str, str]]) -> NDArray[np.uint8]:
    """Draw captioned photos in rows of six. The first one, the query, has a green border.

    Args:
        photos: (H, W) uint8 each, of any size.
        captions: Two lines for each photo. Long lines lose their beginning, because file names
            differ at the end.

    Returns:
        (H, W, 3) uint8 in the channel order blue, green, red.
    """
    import cv2

    rows, columns = -(-len(photos) // ACROSS), min(ACROSS, len(photos))
    step = (CELL + CAPTION + MARGIN, CELL + MARGIN)
    canvas = np.full((rows * step[0] + MARGIN, columns * step[1] + MARGIN, 3), BACKGROUND, np.uint8)
    for position, (photo, caption) in enumerate(zip(photos, captions, strict=True)):
        small, _ = _resized(photo, CELL)
        size = small.shape[::-1]
        row, column = divmod(position, ACROSS)
        top, left = MARGIN + row * step[0], MARGIN + column * step[1]
        corner = (left + (CELL - size[0]) // 2, top + (CELL - size[1]) // 2)
        canvas[corner[1] : corner[1] + size[1], corner[0] : corner[0] + size[0]] = DIMMED * small[..., None]
        if position == 0:
            cv2.rectangle(canvas, corner, (corner[0] + size[0] - 1, corner[1] + size[1] - 1), INLIER, 2)
        for number, line in enumerate(caption, start=1):
            _caption(canvas, line, (left, top + CELL + number * _LINE))
    return canvas


def _resized(image: Grey, longest: int) -> tuple[Grey, NDArray[np.float64]]:
    """Return the image with this longest side, and the scale factors (x, y)."""
    import cv2

    height, width = check_shape(image, "height width", name="image").values()
    factor = longest / max(height, width)
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    resized = cv2.resize(image, size, interpolation=cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR)
    return np.asarray(resized, np.uint8), np.array(size) / (width, height)


def _lines(canvas: NDArray[np.uint8], starts: Points, ends: Points, colour: tuple[int, ...], strength: float) -> None:
    import cv2

    drawn = canvas.copy()
    for start, end in zip(_fixed(starts), _fixed(ends), strict=True):
        cv2.line(drawn, start, end, colour, 1, cv2.LINE_AA, _BITS)
    # 0.9 for few lines, 0.5 for 250 and 0.28 for 800.
    opacity = strength * min(0.9, 8 / math.sqrt(max(1, len(starts))))
    canvas[:] = cv2.addWeighted(drawn, opacity, canvas, 1 - opacity, 0)


def _dots(canvas: NDArray[np.uint8], points: Points, colour: tuple[int, ...], radius: float, opacity: float) -> None:
    import cv2

    drawn = canvas.copy()
    for point in _fixed(points):
        cv2.circle(drawn, point, round(radius * (1 << _BITS)), colour, cv2.FILLED, cv2.LINE_AA, _BITS)
    canvas[:] = cv2.addWeighted(drawn, opacity, canvas, 1 - opacity, 0)


def _fixed(points: Points) -> list[list[int]]:
    return [[int(value) for value in point] for point in np.rint(points * (1 << _BITS))]


def _write(canvas: NDArray[np.uint8], title: str) -> None:
    """Write the title above the photos, as large as it fits."""
    import cv2

    words = _ascii(title.replace(" · ", "  |  "))
    font: dict[str, Any] = {"fontFace": cv2.FONT_HERSHEY_SIMPLEX, "thickness": 1}
    available = canvas.shape[1] - 2 * MARGIN
    width = cv2.getTextSize(words, fontScale=1.0, **font)[0][0]
    scale = min(0.8, available / max(1, width))
    cv2.putText(canvas, words, (MARGIN, STRIP - 20), fontScale=scale, color=TEXT, lineType=cv2.LINE_AA, **font)


def _caption(canvas: NDArray[np.uint8], line: str, corner: tuple[int, int]) -> None:
    """Write a line of a caption, without its beginning if it is too long."""
    import cv2

    words = _ascii(line)
    while cv2.getTextSize(words, cv2.FONT_HERSHEY_SIMPLEX, 0.45, 1)[0][0] > CELL:
        words = words[1:]
    cv2.putText(canvas, words, corner, cv2.FONT_HERSHEY_SIMPLEX, 0.45, TEXT, 1, cv2.LINE_AA)


def _ascii(text: str) -> str:
    """Return the text in ASCII, the characters of OpenCV 4's fonts: accents are dropped."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
