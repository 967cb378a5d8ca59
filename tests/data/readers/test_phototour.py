"""PhotoTour: sheets, points, pairs, groups and their problems."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data.readers import formats
from doap._support.errors import ArgumentError, DataError
from doap.data.readers import check_folder, phototour, read_phototour

PATCHES = formats.random_patches(300, 64, 64)
# Unsorted groups of 1 to 4 patches.
POINTS = np.random.default_rng(1).permutation(np.repeat(np.arange(120), np.tile([1, 2, 3, 4], 30))).tolist()
IMAGES = [index % 7 for index in range(300)]
PAIRS = [(0, 299), (5, 6), (256, 255)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return formats.write_phototour(tmp_path / "liberty", PATCHES, POINTS, IMAGES, PAIRS)


def problems_of(root: Path) -> tuple[str, ...]:
    found = check_folder(root)
    assert found.kind == "phototour"
    return found.problems


def test_written_sheet_has_the_size_of_a_published_one(root: Path) -> None:
    assert (root / "patches0000.bmp").stat().st_size == 1_049_654


def test_all_patches_are_read_back_without_the_padding(root: Path) -> None:
    np.testing.assert_array_equal(read_phototour(root).read_all(), PATCHES)


def test_sheets_are_the_patches_in_order(root: Path) -> None:
    sheets = list(read_phototour(root).iter_sheets())
    assert [len(sheet) for sheet in sheets] == [256, 44]
    np.testing.assert_array_equal(np.concatenate(sheets), PATCHES)


def test_patches_are_loaded_in_the_requested_order(root: Path) -> None:
    np.testing.assert_array_equal(read_phototour(root).load([299, 0, 256, 0]), PATCHES[[299, 0, 256, 0]])


def test_points_and_reference_images_are_read_back(root: Path) -> None:
    tour = read_phototour(root)
    assert tour.reference_images is not None
    assert (tour.points.tolist(), tour.reference_images.tolist()) == (POINTS, IMAGES)


def test_reference_images_may_be_absent(root: Path) -> None:
    (root / "interest.txt").unlink()
    assert read_phototour(root).reference_images is None


def test_pairs_match_when_their_points_are_equal(root: Path) -> None:
    tour = read_phototour(root)
    indices, positive = tour.pairs()
    assert tour.pair_files == ("m50_100000_100000_0.txt",)
    assert indices.tolist() == [list(pair) for pair in PAIRS]
    assert positive.tolist() == [POINTS[a] == POINTS[b] for a, b in PAIRS]


@pytest.mark.parametrize("per_unit", [1, 50, 1000])
def test_units_contain_every_point_as_one_group(root: Path, per_unit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phototour, "PER_UNIT", per_unit)
    units = list(read_phototour(root).units())
    groups = [group for unit in units for group in np.split(unit.patches, unit.counts.cumsum()[:-1])]
    assert len({unit.name for unit in units}) == len(units)
    assert max(len(unit.patches) for unit in units) < per_unit + 4
    for point, group in enumerate(groups):
        np.testing.assert_array_equal(group, PATCHES[np.array(POINTS) == point])


def test_units_continue_after_skipped_ones(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phototour, "PER_UNIT", 50)
    tour = read_phototour(root)
    assert [unit.name for unit in tour.units(skip=2)] == [unit.name for unit in tour.units()][2:]


def test_an_index_in_the_padding_of_the_last_sheet_is_refused(root: Path) -> None:
    with pytest.raises(ArgumentError, match="indices: expected 0 to 299, got 300 to 300"):
        read_phototour(root).load([300])


def test_a_complete_dataset_has_no_problems(root: Path) -> None:
    found = check_folder(root)
    assert found.problems == ()
    assert found.summary == "PhotoTour: 300 patches of 120 points, 1 pair lists"


def test_folder_without_sheets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected patches0000\.bmp and so on, got no \*\.bmp"):
        read_phototour(tmp_path)


def test_missing_sheet_is_named(root: Path) -> None:
    (root / "patches0000.bmp").unlink()
    with pytest.raises(DataError, match=r"missing sheets patches0000\.bmp"):
        read_phototour(root)
    assert len(problems_of(root)) == 2


@pytest.mark.parametrize("lines", [256, 513])
def test_info_with_another_count_than_the_sheets_is_refused(root: Path, lines: int) -> None:
    formats.write_lines(root / "info.txt", [(0, 0)] * lines)
    with pytest.raises(DataError, match=rf"expected 257 to 512 lines for 2 sheets of 256 patches, got {lines}"):
        read_phototour(root)


@pytest.mark.parametrize("text", ["", "one 0\n", "\n"])
def test_info_that_is_not_a_table_is_refused(root: Path, text: str) -> None:
    (root / "info.txt").write_text(text)
    with pytest.raises(DataError, match=r"info\.txt: expected rows of numbers"):
        read_phototour(root)


def test_interest_of_another_length_is_refused(root: Path) -> None:
    formats.write_lines(root / "interest.txt", [(0, 1)])
    with pytest.raises(DataError, match=r"interest\.txt: expected 300 lines as in info\.txt, got 1"):
        read_phototour(root)


def test_pairs_out_of_range_are_refused(root: Path) -> None:
    formats.write_lines(root / "m50_1_1_0.txt", [(0, POINTS[0], 0, 300, 1, 0, 0)])
    with pytest.raises(DataError, match="expected patches 0 to 299, got 0 to 300"):
        read_phototour(root).pairs("m50_1_1_0.txt")


def test_a_missing_pair_list_is_refused(root: Path) -> None:
    with pytest.raises(DataError, match=r"m50_7_7_0\.txt: no such file"):
        read_phototour(root).pairs("m50_7_7_0.txt")


def test_sheet_of_another_size_is_refused(root: Path) -> None:
    formats.write_image(root / "patches0001.bmp", formats.random_patches(64, 128))
    with pytest.raises(DataError, match=r"patches0001\.bmp: expected a sheet \(1024, 1024\), got \(64, 128\)"):
        read_phototour(root).read_all()


def test_all_problems_are_listed_one_line_each(root: Path) -> None:
    formats.write_image(root / "patches0001.bmp", formats.random_patches(64, 128))
    formats.write_lines(root / "interest.txt", [(0, 1)])
    formats.write_lines(root / "m50_1_1_0.txt", [(0, POINTS[0], 0, 300, 1, 0, 0)])
    formats.write_lines(root / "m50_2_2_0.txt", [(0, POINTS[0] + 1, 0, 1, POINTS[1], 0, 0)])
    (root / "patches0003.bmp").write_text("no image")
    parts = [
        "missing sheets patches0002.bmp",
        "got (64, 128)",
        "not a PNG or BMP image",
        "for 3 sheets",
        "as in info.txt, got 1",
        "expected patches 0 to 299",
        "the points of 1 pairs differ",
    ]
    problems = problems_of(root)
    assert [sum(part in problem for problem in problems) for part in parts] == [1] * len(problems)
    assert not any("\n" in problem for problem in problems)
