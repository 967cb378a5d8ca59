"""Previews: the picture contains the right patches and is reproducible."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from doap._support.errors import ArgumentError
from doap.data.preview import LEGEND, MAX_GAIN, _stretch, contact_sheet, draw_preview
from doap.data.store import PatchSet, open_set
from doap.data.writer import SetWriter, UnitGroups

SIDE = 32


@pytest.fixture(scope="module")
def patch_set(tmp_path_factory: pytest.TempPathFactory) -> PatchSet:
    rng = np.random.default_rng(0)
    count = rng.integers(1, 12, 60)
    patches = rng.integers(0, 256, (int(count.sum()), SIDE, SIDE), dtype=np.uint8)
    writer = SetWriter(tmp_path_factory.mktemp("preview") / "set", SIDE, {}, [])
    name = "a scene with an unusually long name, très long"
    groups = UnitGroups(count, name, np.zeros((60, 3), np.float32), "tracks", np.zeros((0, 2), np.int64))
    writer.add("all", patches, groups)
    return open_set(writer.finish())


def read(path: Path) -> np.ndarray:
    picture = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    assert picture is not None
    return picture


def contains(picture: np.ndarray, patch: np.ndarray) -> bool:
    """Return whether the picture contains this patch, each pixel drawn as 2 × 2."""
    enlarged = np.kron(_stretch(patch), np.ones((2, 2), np.uint8))
    windows = np.lib.stride_tricks.sliding_window_view(picture, enlarged.shape)
    return bool((windows == enlarged).all(axis=(2, 3)).any())


def test_the_sheet_contains_only_the_first_patches_of_its_groups(patch_set: PatchSet, tmp_path: Path) -> None:
    large, other = int(patch_set.count.argmax()), int(patch_set.count.argmin())
    picture = read(contact_sheet(patch_set, [large], tmp_path / "sheet.png", patches=3))
    own = patch_set.gather(patch_set.members(np.array([large])))
    assert [contains(picture, patch) for patch in own[:4]] == [True, True, True, False]
    assert not contains(picture, patch_set.patches[patch_set.start[other]])


def test_faint_patches_are_stretched_and_the_noise_of_flat_ones_is_not() -> None:
    ramp = np.tile(np.arange(SIDE, dtype=np.uint8), (SIDE, 1))
    stretched = _stretch(100 + 2 * ramp)
    assert (stretched.min(), stretched.max()) == (0, 255)
    assert (np.diff(stretched[0].astype(int)) >= 0).all()
    assert np.ptp(_stretch(100 + ramp // 16).astype(int)) <= MAX_GAIN
    assert _stretch(np.full((SIDE, SIDE), 90, np.uint8)).std() == 0


def test_a_legend_is_written_above_the_groups(patch_set: PatchSet, tmp_path: Path) -> None:
    for groups in ([0], range(12)):
        picture = read(contact_sheet(patch_set, groups, tmp_path / "sheet.png"))
        assert (picture[: LEGEND - 1] < 128).any()


def test_two_hundred_groups_fit_one_legible_picture(patch_set: PatchSet, tmp_path: Path) -> None:
    picture = read(contact_sheet(patch_set, [*range(60)] * 3 + [*range(20)], tmp_path / "sheet.png"))
    assert picture.dtype == np.uint8
    assert max(picture.shape) < 4000
    assert 0.6 < picture.shape[0] / picture.shape[1] < 1.7


def test_columns_can_be_chosen(patch_set: PatchSet, tmp_path: Path) -> None:
    one = read(contact_sheet(patch_set, range(12), tmp_path / "one.png", columns=1))
    three = read(contact_sheet(patch_set, range(12), tmp_path / "three.png", columns=3))
    assert one.shape[0] - LEGEND == 3 * (three.shape[0] - LEGEND) - 2
    assert three.shape[1] == 3 * one.shape[1] - 2


def test_a_preview_depends_only_on_its_seed(patch_set: PatchSet, tmp_path: Path) -> None:
    first, again, other = (
        draw_preview(patch_set, tmp_path / f"{i}.png", groups=6, seed=seed) for i, seed in enumerate([0, 0, 1])
    )
    assert first.read_bytes() == again.read_bytes()
    assert first.read_bytes() != other.read_bytes()


def test_a_preview_of_a_small_set_shows_all_groups(patch_set: PatchSet, tmp_path: Path) -> None:
    whole = contact_sheet(patch_set, range(60), tmp_path / "whole.png")
    assert draw_preview(patch_set.path, tmp_path / "preview.png", groups=1000).read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("groups", [[], [60], [-1]])
def test_groups_must_exist(groups: list[int], patch_set: PatchSet, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"groups: expected some from 0 to 59"):
        contact_sheet(patch_set, groups, tmp_path / "sheet.png")
