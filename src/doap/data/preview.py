"""Pictures of a set, to look at before training: each row is a group, and its patches should show one point."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.data.store import PatchSet
from doap.errors import ArgumentError

BACKGROUND, LINE, TEXT, FAINT = 250, 205, 25, 120
LABEL, GAP, SCALE = 132, 4, 2


def overview(patch_set: PatchSet, out: str | Path, seed: int = 0, number: int = 48) -> Path:
    """A contact sheet of groups drawn at random, all different, in the order of the set."""
    number = min(number, len(patch_set))
    drawn = np.random.default_rng(seed).choice(len(patch_set), number, replace=False)
    return contact_sheet(patch_set, sorted(drawn.tolist()), out)


def contact_sheet(
    patch_set: PatchSet, groups: Sequence[int], out: str | Path, columns: int | None = None, patches: int = 8
) -> Path:
    """Draw groups, one to a row, with their number and the place they are from.

    Args:
        patch_set: an open set.
        groups: which ones, in the order of the picture: down the first column, then down the next.
        out: the PNG to write.
        columns: blocks of rows side by side; as many as make the picture about square if None.
        patches: most of a group that are drawn; the label tells how many it has.
    """
    import cv2

    if not groups or min(groups) < 0 or max(groups) >= len(patch_set):
        raise ArgumentError(f"groups: expected some from 0 to {len(patch_set) - 1}, got {list(groups)[:5]}")
    side = SCALE * patch_set.patch_size
    shown = [min(patches, int(patch_set.count[group])) for group in groups]
    height, width = side + 2 * GAP + 1, LABEL + max(shown) * (side + GAP) + 3 * GAP
    if columns is None:
        columns = max(1, round(math.sqrt(len(groups) * height / width)))
    rows = math.ceil(len(groups) / columns)
    sheet = np.full((rows * height + 1, columns * width + 1), BACKGROUND, np.uint8)
    for place, (group, number) in enumerate(zip(groups, shown, strict=True)):
        column, row = divmod(place, rows)
        left, top = column * width, row * height
        cell = sheet[top : top + height + 1, left : left + width + 1]
        cell[[0, -1]], cell[:, [0, -1]] = LINE, LINE
        _write_label(cell, patch_set, group, number)
        start = int(patch_set.start[group])
        for index, patch in enumerate(patch_set.patches[start : start + number]):
            x = LABEL + index * (side + GAP)
            # Whole pixels, not smoothed ones: what the network gets is what is to be judged.
            enlarged = cv2.resize(np.asarray(patch), (side, side), interpolation=cv2.INTER_NEAREST)
            # A frame, or a bright patch melts into the paper.
            cell[GAP : GAP + side + 2, x - 1 : x + side + 1] = LINE
            cell[GAP + 1 : GAP + side + 1, x : x + side] = enlarged
    done, png = cv2.imencode(".png", sheet)
    assert done, "a uint8 picture can be encoded"
    out = Path(out)
    out.write_bytes(png.tobytes())
    return out


def _write_label(cell: NDArray[np.uint8], patch_set: PatchSet, group: int, shown: int) -> None:
    """The group's number; under it its place and its size, where there is room for them."""
    count = int(patch_set.count[group])
    _write(cell, str(group), 16, 0.45, TEXT)
    _write(cell, patch_set.scene_names[patch_set.scene_ids[group]], 34, 0.4, FAINT)
    _write(cell, f"{count}" if shown == count else f"{shown} of {count}", 51, 0.36, FAINT)


def _write(cell: NDArray[np.uint8], text: str, baseline: int, size: float, grey: int) -> None:
    import cv2

    font: dict[str, Any] = {"fontFace": cv2.FONT_HERSHEY_SIMPLEX, "fontScale": size, "thickness": 1}
    # OpenCV's fonts know ASCII alone; the accents go, the letters under them stay.
    text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    while len(text) > 1 and cv2.getTextSize(text, **font)[0][0] > LABEL - 10:
        text = text.rstrip(".")[:-1] + ".."
    cv2.putText(cell, text, (6, baseline), color=grey, lineType=cv2.LINE_AA, **font)
