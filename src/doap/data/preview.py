"""Draw groups of a patch set for inspection. The patches of a row should show the same point."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import ArgumentError
from doap.data.store import PatchSet, open_set

BACKGROUND, LINE, TEXT, FAINT = 250, 205, 25, 120
LABEL, GAP, SCALE = 132, 4, 2
LEGEND = 26
"""Height of the line of text above the groups."""
TEXTS = (
    "One group per box: patches of the same point. Left: number, scene, patches. Contrast stretched per patch.",
    "Boxes: patches of one point. Contrast stretched per patch.",
    "Patches of one point",
)
"""Legend, from long to short: the first one that fits is written."""
# A patch is stretched by at most this factor, so that the noise of a flat one stays invisible.
MAX_GAIN = 8


def draw_preview(patch_set: str | Path | PatchSet, out: str | Path, *, groups: int = 48, seed: int = 0) -> Path:
    """Draw random groups of a set as a PNG, one per row.

        draw_preview("my.patches", "preview.png")

    Args:
        patch_set: A set, or its folder.
        out: PNG file to write.
        groups: Number of groups to draw.
        seed: Random seed.
    """
    opened = patch_set if isinstance(patch_set, PatchSet) else open_set(patch_set)
    drawn = np.random.default_rng(seed).choice(len(opened), min(groups, len(opened)), replace=False)
    return contact_sheet(opened, sorted(drawn.tolist()), out)


def contact_sheet(
    patch_set: PatchSet, groups: Sequence[int], out: str | Path, columns: int | None = None, patches: int = 8
) -> Path:
    """Draw some groups, one per row, labelled with their index, scene and number of patches.

    The contrast of each patch is stretched, because the patches of a faint structure would look alike.

    Args:
        patch_set: An open set.
        groups: Indices of the groups, drawn from top to bottom and then from left to right.
        out: PNG file to write.
        columns: Number of columns of groups; None makes the picture approximately square.
        patches: Maximum number of patches drawn per group.
    """
    import cv2

    if not groups or min(groups) < 0 or max(groups) >= len(patch_set):
        raise ArgumentError(f"groups: expected some from 0 to {len(patch_set) - 1}, got {list(groups)[:5]}.")
    side = SCALE * patch_set.patch_size
    shown = [min(patches, int(patch_set.count[group])) for group in groups]
    height, width = side + 2 * GAP + 1, LABEL + max(shown) * (side + GAP) + 3 * GAP
    if columns is None:
        columns = max(1, round(math.sqrt(len(groups) * height / width)))
    rows = math.ceil(len(groups) / columns)
    sheet = np.full((LEGEND + rows * height + 1, columns * width + 1), BACKGROUND, np.uint8)
    _write_legend(sheet)
    for position, (group, number) in enumerate(zip(groups, shown, strict=True)):
        column, row = divmod(position, rows)
        left, top = column * width, LEGEND + row * height
        cell = sheet[top : top + height + 1, left : left + width + 1]
        cell[[0, -1]], cell[:, [0, -1]] = LINE, LINE
        _write_label(cell, patch_set, group, number)
        start = int(patch_set.start[group])
        for index, patch in enumerate(patch_set.patches[start : start + number]):
            x = LABEL + index * (side + GAP)
            # Without interpolation, to show the pixels that the network gets. It normalises their contrast, too.
            enlarged = cv2.resize(_stretch(patch), (side, side), interpolation=cv2.INTER_NEAREST)
            # A border separates bright patches from the background.
            cell[GAP : GAP + side + 2, x - 1 : x + side + 1] = LINE
            cell[GAP + 1 : GAP + side + 1, x : x + side] = enlarged
    done, png = cv2.imencode(".png", sheet)
    assert done, "encoding a uint8 image cannot fail"
    out = Path(out)
    out.write_bytes(png.tobytes())
    return out


def _stretch(patch: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Stretch the contrast of a patch (S, S): the 1 and 99 percentiles become black and white."""
    low, high = np.percentile(patch, [1, 99])
    gain = min(MAX_GAIN, 255 / max(high - low, 1))
    # A patch with the maximum gain stays around its mean.
    middle = 127.5 + (patch - (low + high) / 2) * gain
    return np.asarray(np.rint(middle).clip(0, 255), np.uint8)


def _write_legend(sheet: NDArray[np.uint8]) -> None:
    """Write what the picture shows above the groups, as long as it fits."""
    import cv2

    font: dict[str, Any] = {"fontFace": cv2.FONT_HERSHEY_SIMPLEX, "fontScale": 0.45, "thickness": 1}
    for text in TEXTS:
        if cv2.getTextSize(text, **font)[0][0] <= sheet.shape[1] - 12:
            cv2.putText(sheet, text, (6, 17), color=TEXT, lineType=cv2.LINE_AA, **font)
            return


def _write_label(cell: NDArray[np.uint8], patch_set: PatchSet, group: int, shown: int) -> None:
    """Write the index of the group, its scene and its number of patches."""
    count = int(patch_set.count[group])
    _write(cell, str(group), 16, 0.45, TEXT)
    _write(cell, patch_set.scene_names[patch_set.scene_ids[group]], 34, 0.4, FAINT)
    _write(cell, f"{count}" if shown == count else f"{shown} of {count}", 51, 0.36, FAINT)


def _write(cell: NDArray[np.uint8], text: str, baseline: int, size: float, grey: int) -> None:
    import cv2

    font: dict[str, Any] = {"fontFace": cv2.FONT_HERSHEY_SIMPLEX, "fontScale": size, "thickness": 1}
    # OpenCV's fonts contain ASCII only: drop accents and keep their letters.
    text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    while len(text) > 1 and cv2.getTextSize(text, **font)[0][0] > LABEL - 10:
        text = text.rstrip(".")[:-1] + ".."
    cv2.putText(cell, text, (6, baseline), color=grey, lineType=cv2.LINE_AA, **font)
