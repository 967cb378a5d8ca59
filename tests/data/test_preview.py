"""Previews: the picture contains the right patches and is reproducible."""

import cv2
import numpy as np

from doap.data.preview import LEGEND, MAX_GAIN, PATCHES_SHOWN, draw_preview, stretch
from doap.data.store import open_set
from oracles.coded_patches import write_units

SIDE = 16


def write_set(path, sizes):
    return write_units(path, SIDE, [("un nom très long, trop long", "a", sizes)])


def contains(picture, patch):
    """Return whether the picture contains this patch, each pixel drawn as 2 × 2."""
    enlarged = np.kron(stretch(patch), np.ones((2, 2), np.uint8))
    windows = np.lib.stride_tricks.sliding_window_view(picture, enlarged.shape)
    return bool((windows == enlarged).all(axis=(2, 3)).any())


def test_the_picture_contains_the_first_patches_of_all_groups_of_a_small_set_under_a_legend(tmp_path):
    patch_set = open_set(write_set(tmp_path / "set", [PATCHES_SHOWN + 2, 1, 3]))
    picture = cv2.imread(str(draw_preview(patch_set.path, tmp_path / "a.png")), cv2.IMREAD_UNCHANGED)
    shown = [contains(picture, patch) for patch in patch_set.patches]
    assert shown == [True] * PATCHES_SHOWN + [False] * 2 + [True] * 4
    assert (picture[: LEGEND - 1] < 128).any()


def test_faint_patches_are_stretched_and_the_noise_of_flat_ones_is_not():
    ramp = np.tile(np.arange(32, dtype=np.uint8), (32, 1))
    stretched = stretch(100 + 2 * ramp)
    assert (stretched.min(), stretched.max()) == (0, 255)
    assert (np.diff(stretched[0].astype(int)) >= 0).all()
    assert np.ptp(stretch(100 + ramp // 16).astype(int)) <= MAX_GAIN
    assert stretch(np.full((32, 32), 90, np.uint8)).std() == 0


def test_a_preview_depends_only_on_its_seed(tmp_path):
    path = write_set(tmp_path / "set", [2] * 60)
    first, again, other = (
        draw_preview(path, tmp_path / f"{i}.png", groups=6, seed=seed) for i, seed in enumerate([0, 0, 1])
    )
    assert first.read_bytes() == again.read_bytes()
    assert first.read_bytes() != other.read_bytes()
