"""Draw groups of a patch set for inspection. The patches of a row should show the same point."""

from __future__ import annotations

import math
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.data.store import PatchSet, open_set

PATCHES_SHOWN = 8
BACKGROUND, LINE, TEXT, FAINT = 250, 205, 25, 120
LABEL, GAP, SCALE = 132, 4, 2
LEGEND = 26
"""Height of the line of text above the groups."""
# A patch is stretched by at most this factor, so that the noise of a flat one stays invisible.
MAX_GAIN = 8


def draw_preview(path: str | Path, out: str | Path, *, groups: int = 48, seed: int = 0) -> Path:
    """Draw random groups of a set as a PNG, one per row, labelled with their index, scene and number of patches.

    The contrast of each patch is stretched, because the patches of a faint structure would look alike.

        draw_preview("my.patches", "preview.png")

    Args:
        path: Folder of the set.
        out: PNG file to write.
        groups: Number of groups to draw.
        seed: Random seed.
    """
    import cv2

    patch_set = open_set(path)
    drawn = np.sort(np.random.default_rng(seed).choice(len(patch_set), min(groups, len(patch_set)), replace=False))
    side = SCALE * patch_set.patch_size
    most = min(PATCHES_SHOWN, int(patch_set.count[drawn].max()))
    height, width = side + 2 * GAP + 1, LABEL + most * (side + GAP) + 3 * GAP
    # The picture is approximately square.
    columns = max(1, round(math.sqrt(len(drawn) * height / width)))
    rows = math.ceil(len(drawn) / columns)
    sheet = np.full((LEGEND + rows * height + 1, columns * width + 1), BACKGROUND, np.uint8)
    _write(sheet, "Boxes: patches of one point. Contrast stretched per patch.", 17, 0.45, TEXT, sheet.shape[1])
    for position, group in enumerate(drawn.tolist()):
        column, row = divmod(position, rows)
        left, top = column * width, LEGEND + row * height
        _draw_group(sheet[top : top + height + 1, left : left + width + 1], patch_set, group)
    done, png = cv2.imencode(".png", sheet)
    assert done, "encoding a uint8 image cannot fail"
    Path(out).write_bytes(png.tobytes())
    return Path(out)


def _draw_group(cell: NDArray[np.uint8], patch_set: PatchSet, group: int) -> None:
    import cv2

    side, start, count = SCALE * patch_set.patch_size, int(patch_set.start[group]), int(patch_set.count[group])
    shown = min(PATCHES_SHOWN, count)
    cell[[0, -1]], cell[:, [0, -1]] = LINE, LINE
    _write(cell, str(group), 16, 0.45, TEXT, LABEL)
    _write(cell, patch_set.scene_names[patch_set.scene_ids[group]], 34, 0.4, FAINT, LABEL)
    _write(cell, f"{count}" if shown == count else f"{shown} of {count}", 51, 0.36, FAINT, LABEL)
    for index, patch in enumerate(patch_set.patches[start : start + shown]):
        x = LABEL + index * (side + GAP)
        # Without interpolation, to show the pixels that the network gets. It normalises their contrast, too.
        enlarged = cv2.resize(stretch(patch), (side, side), interpolation=cv2.INTER_NEAREST)
        # A border separates bright patches from the background.
        cell[GAP : GAP + side + 2, x - 1 : x + side + 1] = LINE
        cell[GAP + 1 : GAP + side + 1, x : x + side] = enlarged


def stretch(patch: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Stretch the contrast of a patch (S, S): the 1 and 99 percentiles become black and white."""
    low, high = np.percentile(patch, [1, 99])
    gain = min(MAX_GAIN, 255 / max(high - low, 1))
    # A patch with the maximum gain stays around its mean.
    middle = 127.5 + (patch - (low + high) / 2) * gain
    return np.asarray(np.rint(middle).clip(0, 255), np.uint8)


def _write(picture: NDArray[np.uint8], text: str, baseline: int, size: float, grey: int, width: int) -> None:
    import cv2

    font: dict[str, Any] = {"fontFace": cv2.FONT_HERSHEY_SIMPLEX, "fontScale": size, "thickness": 1}
    # OpenCV's fonts contain ASCII only: drop accents and keep their letters.
    text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    while len(text) > 1 and cv2.getTextSize(text, **font)[0][0] > width - 10:
        text = text.rstrip(".")[:-1] + ".."
    cv2.putText(picture, text, (6, baseline), color=grey, lineType=cv2.LINE_AA, **font)
