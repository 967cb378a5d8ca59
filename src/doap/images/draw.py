"""Pictures of what was found: the matches of two photos, and a photo with those that are like it."""

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

# Blue, green, red.
BACKGROUND, TEXT = (28, 24, 22), (235, 235, 235)
KEYPOINT, INLIER, REJECT = (255, 215, 130), (80, 240, 60), (60, 50, 245)
# How much light the photos keep: green on a white wall would hardly be seen.
DIMMED = 0.88
MARGIN, STRIP, NARROWEST = 12, 56, 480
CELL, CAPTION, ACROSS = 240, 44, 6
_LINE = 18
# OpenCV draws in fixed point: four bits are sixteenths of a pixel.
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
    """Two photos side by side, inliers joined in green, the other matches faintly in red beneath them.

    Lines are transparent, the more of them the more, so that the photos stay visible under a
    thousand.

    Args:
        image0, image1: (height, width) each, of any sizes.
        points0: (N0, 2) all keypoints of image 0, as (x, y).
        points1: (N1, 2) those of image 1.
        matches: (M, 2) indices into both.
        inliers: (M,) which of them agree with the geometry.
        title: for the strip above; parts may be joined with " · ".
        longest_side: of both photos in the picture, unless both are smaller; the other sides
            follow.

    Returns:
        (height, width, 3) blue, green, red.
    """
    count = check_shape(matches, "M 2", name="matches")["M"]
    check_shape(inliers, str(count), name="inliers")
    if longest_side < 1:
        raise ArgumentError(f"longest_side: expected 1 or more, got {longest_side}")
    # A thumbnail is enlarged beside a photo, or its matches could not be told from each other.
    longest = min(longest_side, max(*image0.shape, *image1.shape))
    photos, shares = zip(*(_resized(image, longest) for image in (image0, image1)), strict=True)
    height = max(photo.shape[0] for photo in photos)
    width = max(NARROWEST, sum(photo.shape[1] for photo in photos) + 3 * MARGIN)
    canvas = np.full((STRIP + height + MARGIN, width, 3), BACKGROUND, np.uint8)
    placed = []
    left = MARGIN
    for photo, share, points in zip(photos, shares, (points0, points1), strict=True):
        check_shape(points, "N 2", name="points")
        top = STRIP + (height - photo.shape[0]) // 2
        canvas[top : top + photo.shape[0], left : left + photo.shape[1]] = DIMMED * photo[..., None]
        # The corner of the first pixel stays in place, and lies half a pixel before its centre.
        placed.append((points + 0.5) * share - 0.5 + (left, top))
        left += photo.shape[1] + MARGIN
    starts, ends = placed[0][matches[:, 0]], placed[1][matches[:, 1]]
    _dots(canvas, np.concatenate(placed), KEYPOINT, radius=1.5, opacity=0.6)
    _lines(canvas, starts[~inliers], ends[~inliers], REJECT, strength=0.5)
    _lines(canvas, starts[inliers], ends[inliers], INLIER, strength=1)
    _dots(canvas, np.concatenate([starts[inliers], ends[inliers]]), INLIER, radius=2.6, opacity=0.9)
    _write(canvas, title)
    return canvas


def draw_strip(photos: Sequence[Grey], captions: Sequence[tuple[str, str]]) -> NDArray[np.uint8]:
    """Photos from left to right, six to a row, each with two lines beneath it; the first, the query, in a green frame.

    Args:
        photos: (height, width) each, of any sizes.
        captions: what to write beneath each; what is too long loses its beginning, for names differ
            at their ends.

    Returns:
        (height, width, 3) blue, green, red.
    """
    import cv2

    rows, columns = -(-len(photos) // ACROSS), min(ACROSS, len(photos))
    step = (CELL + CAPTION + MARGIN, CELL + MARGIN)
    canvas = np.full((rows * step[0] + MARGIN, columns * step[1] + MARGIN, 3), BACKGROUND, np.uint8)
    for place, (photo, caption) in enumerate(zip(photos, captions, strict=True)):
        small, _ = _resized(photo, CELL)
        size = small.shape[::-1]
        top, left = (MARGIN + number * length for number, length in zip(divmod(place, ACROSS), step, strict=True))
        corner = (left + (CELL - size[0]) // 2, top + (CELL - size[1]) // 2)
        canvas[corner[1] : corner[1] + size[1], corner[0] : corner[0] + size[0]] = DIMMED * small[..., None]
        if place == 0:
            cv2.rectangle(canvas, corner, (corner[0] + size[0] - 1, corner[1] + size[1] - 1), INLIER, 2)
        for number, line in enumerate(caption, start=1):
            _caption(canvas, line, (left, top + CELL + number * _LINE))
    return canvas


def _resized(image: Grey, longest: int) -> tuple[Grey, NDArray[np.float64]]:
    """The image with this longest side, and its new size over its old one, as (x, y)."""
    import cv2

    height, width = check_shape(image, "height width", name="image").values()
    share = longest / max(height, width)
    size = (max(1, round(width * share)), max(1, round(height * share)))
    resized = cv2.resize(image, size, interpolation=cv2.INTER_AREA if share < 1 else cv2.INTER_LINEAR)
    return np.asarray(resized, np.uint8), np.array(size) / (width, height)


def _lines(canvas: NDArray[np.uint8], starts: Points, ends: Points, colour: tuple[int, ...], strength: float) -> None:
    import cv2

    drawn = canvas.copy()
    for start, end in zip(_fixed(starts), _fixed(ends), strict=True):
        cv2.line(drawn, start, end, colour, 1, cv2.LINE_AA, _BITS)
    # 0.9 for a few lines, 0.5 for 250 and 0.28 for 800.
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
    """The title in the strip, as large as there is room for."""
    import cv2

    words = _ascii(title.replace(" · ", "  |  "))
    font: dict[str, Any] = {"fontFace": cv2.FONT_HERSHEY_SIMPLEX, "thickness": 1}
    room = canvas.shape[1] - 2 * MARGIN
    wide = cv2.getTextSize(words, fontScale=1.0, **font)[0][0]
    scale = min(0.8, room / max(1, wide))
    cv2.putText(canvas, words, (MARGIN, STRIP - 20), fontScale=scale, color=TEXT, lineType=cv2.LINE_AA, **font)


def _caption(canvas: NDArray[np.uint8], line: str, corner: tuple[int, int]) -> None:
    """A line of a strip; one that is too long loses its beginning."""
    import cv2

    words = _ascii(line)
    while cv2.getTextSize(words, cv2.FONT_HERSHEY_SIMPLEX, 0.45, 1)[0][0] > CELL:
        words = words[1:]
    cv2.putText(canvas, words, corner, cv2.FONT_HERSHEY_SIMPLEX, 0.45, TEXT, 1, cv2.LINE_AA)


def _ascii(text: str) -> str:
    """What the fonts of OpenCV 4 know: the accents go, the letters under them stay."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
