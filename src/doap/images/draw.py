"""Draw the matches of two photos, and a query photo with its search results."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap._support.checks import check_shape
from doap._support.errors import ArgumentError

Pixels = NDArray[np.uint8]
Points = NDArray[np.floating[Any]]
Colour = tuple[int, int, int]

MAX_LINES = 200
"""Maximum number of matches drawn as lines; the others are points."""
# Colours are (blue, green, red).
BACKGROUND, TEXT = (28, 24, 22), (235, 235, 235)
KEYPOINT, INLIER, REJECT = (205, 205, 205), (80, 240, 60), (60, 50, 245)
COMMON, UNVERIFIED = (255, 165, 50), (40, 170, 255)
# Photos are darkened, because green lines are hard to see on bright surfaces.
DIMMED = 0.88
MARGIN, STRIP, NARROWEST = 12, 72, 480
CELL, CAPTION, ACROSS, LEGEND = 240, 44, 6, 32
_LINE = 18
# OpenCV draws with fixed-point coordinates: four bits are sixteenths of a pixel.
_BITS = 4


def draw_matches(
    image0: Pixels,
    image1: Pixels,
    points0: Points,
    points1: Points,
    matches: NDArray[np.integer[Any]],
    inliers: NDArray[np.bool_],
    title: str | None,
    *,
    common: NDArray[np.bool_] | None = None,
    longest_side: int = 1200,
) -> Pixels:
    """Draw two photos side by side: inliers as green lines, all other matches in faint red.

    At most `MAX_LINES` matches are lines, inliers and others in proportion. The ends of all of them are points.

    Args:
        image0: (H0, W0) grey or (H0, W0, 3) blue, green, red; uint8.
        image1: (H1, W1) or (H1, W1, 3).
        points0: (N0, 2) all keypoints of image 0, as (x, y).
        points1: (N1, 2) all keypoints of image 1.
        matches: (M, 2) indices into `points0` and `points1`.
        inliers: (M,) matches that agree with the geometry.
        title: Text above the photos, with a legend below it; None for neither. Parts may be joined with " · ".
        common: (M,) inliers that another descriptor finds too; they are drawn in blue.
        longest_side: Longest side of both photos in the picture, unless both are smaller.

    Returns:
        (H, W, 3) uint8 in the channel order blue, green, red.
    """
    count = check_shape(matches, "M 2", name="matches")["M"]
    check_shape(inliers, str(count), name="inliers")
    shared = np.zeros(count, np.bool_) if common is None else common & inliers
    check_shape(shared, str(count), name="common")
    if longest_side < 1:
        raise ArgumentError(f"longest_side: expected at least 1, got {longest_side}.")
    canvas, placed = _arrange((image0, image1), (points0, points1), longest_side, MARGIN if title is None else STRIP)
    starts, ends = placed[0][matches[:, 0]], placed[1][matches[:, 1]]
    _dots(canvas, np.concatenate(placed), KEYPOINT, radius=1.5, opacity=0.6)
    line = _select_lines(inliers)
    styles = [(~inliers, REJECT, 0.4), (shared, COMMON, 0.9), (inliers & ~shared, INLIER, 1.0)]
    for chosen, colour, strength in styles:
        _lines(canvas, starts[chosen & line], ends[chosen & line], colour, strength)
        _dots(canvas, np.concatenate([starts[chosen], ends[chosen]]), colour, radius=2.6, opacity=0.9 * strength)
    if title is not None:
        _write(canvas, title)
        entries = [("inlier", INLIER), ("rejected match", REJECT), ("keypoint without a match", KEYPOINT)]
        drawn = f"lines: {int(line.sum())} of {count:,} matches" if line.sum() < count else ""
        _legend(canvas, entries, drawn, STRIP - 18)
    return canvas


def draw_strip(
    photos: Sequence[Pixels], captions: Sequence[tuple[str, str]], verified: Sequence[bool | None] = ()
) -> Pixels:
    """Draw captioned photos in rows of six. The first one, the query, has a white border.

    Args:
        photos: (H, W) grey or (H, W, 3) blue, green, red each; uint8 of any size.
        captions: Two lines for each photo. Long lines lose their beginning, because file names
            differ at the end.
        verified: For each photo after the query: True draws a green border, False an orange one, None none.

    Returns:
        (H, W, 3) uint8 in the channel order blue, green, red.
    """
    import cv2

    rows, columns = -(-len(photos) // ACROSS), min(ACROSS, len(photos))
    step = (CELL + CAPTION + MARGIN, CELL + MARGIN)
    canvas = np.full((LEGEND + rows * step[0], columns * step[1] + MARGIN, 3), BACKGROUND, np.uint8)
    borders: list[Colour | None] = [TEXT]
    borders += [None if one is None else INLIER if one else UNVERIFIED for one in verified]
    borders += [None] * (len(photos) - len(borders))
    for position, (photo, caption, border) in enumerate(zip(photos, captions, borders, strict=True)):
        small, _ = _resized(photo, CELL)
        size = small.shape[1::-1]
        row, column = divmod(position, ACROSS)
        top, left = LEGEND + row * step[0], MARGIN + column * step[1]
        corner = (left + (CELL - size[0]) // 2, top + (CELL - size[1]) // 2)
        canvas[corner[1] : corner[1] + size[1], corner[0] : corner[0] + size[0]] = DIMMED * small
        if border:
            cv2.rectangle(canvas, corner, (corner[0] + size[0] - 1, corner[1] + size[1] - 1), border, 3)
        for number, line in enumerate(caption, start=1):
            _caption(canvas, line, (left, top + CELL + number * _LINE))
    entries = [("query", TEXT)]
    if any(one is not None for one in verified):
        entries += [("verified", INLIER), ("not verified", UNVERIFIED)]
    _legend(canvas, entries, "", LEGEND - 12)
    return canvas


def _arrange(
    images: tuple[Pixels, Pixels], points: tuple[Points, Points], longest_side: int, top: int
) -> tuple[Pixels, list[Points]]:
    """Return a canvas with both photos side by side, and their points on it."""
    # A thumbnail next to a photo is enlarged, to separate its keypoints.
    longest = min(longest_side, max(side for image in images for side in image.shape[:2]))
    photos, factors = zip(*(_resized(image, longest) for image in images), strict=True)
    height = max(photo.shape[0] for photo in photos)
    width = max(NARROWEST, sum(photo.shape[1] for photo in photos) + 3 * MARGIN)
    canvas = np.full((top + height + MARGIN, width, 3), BACKGROUND, np.uint8)
    placed = []
    left = MARGIN
    for photo, factor, some in zip(photos, factors, points, strict=True):
        check_shape(some, "N 2", name="points")
        first = top + (height - photo.shape[0]) // 2
        canvas[first : first + photo.shape[0], left : left + photo.shape[1]] = DIMMED * photo
        # The outer corner of the first pixel is fixed, half a pixel from its centre.
        placed.append((some + 0.5) * factor - 0.5 + (left, first))
        left += photo.shape[1] + MARGIN
    return canvas, placed


def _select_lines(inliers: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return (M,) evenly spaced matches to draw as lines, with the same share of inliers and of others."""
    selected = np.zeros(len(inliers), np.bool_)
    share = min(1.0, MAX_LINES / max(1, len(inliers)))
    for kind in (np.flatnonzero(inliers), np.flatnonzero(~inliers)):
        number = math.floor(share * len(kind))
        selected[kind[np.linspace(0, len(kind) - 1, number).astype(np.intp)]] = True
    return selected


def _resized(image: Pixels, longest: int) -> tuple[Pixels, NDArray[np.float64]]:
    """Return the image in three channels with this longest side, and the scale factors (x, y)."""
    import cv2

    if image.ndim == 2:
        image = np.repeat(image[:, :, None], 3, axis=2)
    height, width = check_shape(image, "height width 3", name="image").values()
    factor = longest / max(height, width)
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    resized = cv2.resize(image, size, interpolation=cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR)
    return np.asarray(resized, np.uint8), np.array(size) / (width, height)


def _lines(canvas: Pixels, starts: Points, ends: Points, colour: Colour, strength: float) -> None:
    import cv2

    drawn = canvas.copy()
    for start, end in zip(_fixed(starts), _fixed(ends), strict=True):
        cv2.line(drawn, start, end, colour, 1, cv2.LINE_AA, _BITS)
    # 0.9 for few lines, 0.57 for 200.
    opacity = strength * min(0.9, 8 / math.sqrt(max(1, len(starts))))
    canvas[:] = cv2.addWeighted(drawn, opacity, canvas, 1 - opacity, 0)


def _dots(canvas: Pixels, points: Points, colour: Colour, radius: float, opacity: float) -> None:
    import cv2

    drawn = canvas.copy()
    for point in _fixed(points):
        cv2.circle(drawn, point, round(radius * (1 << _BITS)), colour, cv2.FILLED, cv2.LINE_AA, _BITS)
    canvas[:] = cv2.addWeighted(drawn, opacity, canvas, 1 - opacity, 0)


def _fixed(points: Points) -> list[list[int]]:
    return [[int(value) for value in point] for point in np.rint(points * (1 << _BITS))]


def _write(canvas: Pixels, title: str) -> None:
    """Write the title above the photos, as large as it fits."""
    import cv2

    words = _ascii(title.replace(" · ", "  |  "))
    font: dict[str, Any] = {"fontFace": cv2.FONT_HERSHEY_SIMPLEX, "thickness": 1}
    available = canvas.shape[1] - 2 * MARGIN
    width = cv2.getTextSize(words, fontScale=1.0, **font)[0][0]
    scale = min(0.8, available / max(1, width))
    cv2.putText(canvas, words, (MARGIN, STRIP - 42), fontScale=scale, color=TEXT, lineType=cv2.LINE_AA, **font)


def _legend(canvas: Pixels, entries: Sequence[tuple[str, Colour]], note: str, baseline: int) -> None:
    """Write what the colours mean, each after a sample of its colour, as large as it fits."""
    import cv2

    font: dict[str, Any] = {"fontFace": cv2.FONT_HERSHEY_SIMPLEX, "thickness": 1}
    sample, gap = 30, 26
    texts = [text for text, _ in entries] + ([note] if note else [])
    widths = [cv2.getTextSize(text, fontScale=1.0, **font)[0][0] for text in texts]
    fixed = len(entries) * sample + len(texts) * gap
    scale = min(0.5, (canvas.shape[1] - 2 * MARGIN - fixed) / max(1, sum(widths)))
    x = MARGIN
    for number, (text, width) in enumerate(zip(texts, widths, strict=True)):
        if number < len(entries):
            colour = entries[number][1]
            cv2.line(canvas, (x, baseline - 4), (x + sample - 8, baseline - 4), colour, 2, cv2.LINE_AA)
            cv2.circle(canvas, (x + (sample - 8) // 2, baseline - 4), 4, colour, cv2.FILLED, cv2.LINE_AA)
            x += sample
        cv2.putText(canvas, text, (x, baseline), fontScale=scale, color=TEXT, lineType=cv2.LINE_AA, **font)
        x += round(scale * width) + gap


def _caption(canvas: Pixels, line: str, corner: tuple[int, int]) -> None:
    """Write a line of a caption, without its beginning if it is too long."""
    import cv2

    words = _ascii(line)
    while cv2.getTextSize(words, cv2.FONT_HERSHEY_SIMPLEX, 0.45, 1)[0][0] > CELL:
        words = words[1:]
    cv2.putText(canvas, words, corner, cv2.FONT_HERSHEY_SIMPLEX, 0.45, TEXT, 1, cv2.LINE_AA)


def _ascii(text: str) -> str:
    """Return the text in ASCII, the characters of OpenCV 4's fonts: accents are dropped."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
