"""HPatches: strips, groups and their problems."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data.readers import formats
from doap._support.errors import DataError
from doap.data.readers import check_folder, hpatches, read_hpatches

GROUPS = {"i_dome": formats.random_patches(3, 16, 65, 65), "v_wall": formats.random_patches(5, 16, 65, 65, seed=1)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return formats.write_hpatches(tmp_path / "hpatches-release", GROUPS)


def test_strips_are_in_the_order_of_the_benchmark() -> None:
    assert list(hpatches.STRIPS) == formats.STRIPS


@pytest.mark.parametrize("name", GROUPS)
def test_groups_are_read_back(root: Path, name: str) -> None:
    np.testing.assert_array_equal(read_hpatches(root).load(name), GROUPS[name])


def test_units_are_the_sequences_in_groups_of_16(root: Path) -> None:
    units = list(read_hpatches(root).units())
    assert [unit.scene for unit in units] == ["i_dome", "v_wall"]
    assert [unit.counts.tolist() for unit in units] == [[16] * 3, [16] * 5]
    for unit in units:
        np.testing.assert_array_equal(unit.patches, GROUPS[unit.scene].reshape(-1, 65, 65))
        assert np.isnan(unit.position).all()


def test_units_continue_after_skipped_ones(root: Path) -> None:
    assert [unit.name for unit in read_hpatches(root).units(skip=1)] == ["v_wall"]


def test_a_complete_dataset_has_no_problems(root: Path) -> None:
    found = check_folder(root)
    assert (found.kind, found.problems) == ("hpatches", ())
    assert found.summary == "HPatches patches: 2 sequences, 8 groups of 16"


def test_folder_without_sequences_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected folders i_… or v_… with strips such as ref\.png, got none"):
        read_hpatches(tmp_path)


def test_unknown_sequence_is_refused(root: Path) -> None:
    with pytest.raises(DataError, match="no sequence 'v_boat' among 2 sequences"):
        read_hpatches(root).load("v_boat")


def test_missing_strip_is_refused(root: Path) -> None:
    (root / "v_wall" / "h3.png").unlink()
    with pytest.raises(DataError, match=r"h3\.png"):
        read_hpatches(root).load("v_wall")


def test_a_strip_that_is_not_a_multiple_of_65_is_refused(root: Path) -> None:
    formats.write_image(root / "v_wall" / "e2.png", formats.random_patches(66, 65))
    with pytest.raises(DataError, match=r"e2\.png: expected a strip \(65·n, 65\), got \(66, 65\)"):
        read_hpatches(root).load("v_wall")


def test_strips_of_different_lengths_are_refused(root: Path) -> None:
    formats.write_image(root / "v_wall" / "e2.png", formats.random_patches(4 * 65, 65))
    with pytest.raises(DataError, match="expected strips of one length, got 4 to 5 patches"):
        read_hpatches(root).load("v_wall")


def test_all_problems_are_listed_one_line_each(root: Path) -> None:
    (root / "i_dome" / "ref.png").unlink()
    (root / "i_dome" / "t5.png").unlink()
    formats.write_image(root / "i_dome" / "e1.png", formats.random_patches(65, 64))
    formats.write_image(root / "v_wall" / "e2.png", formats.random_patches(4 * 65, 65))
    (root / "v_wall" / "e3.png").write_bytes(b"")
    parts = ["missing strips ref.png, t5.png", "got (65, 64)", "got 4 to 5", "e3.png: not a PNG"]
    problems = check_folder(root).problems
    assert [sum(part in problem for problem in problems) for part in parts] == [1] * len(problems)
    assert not any("\n" in problem for problem in problems)
