"""RomePatches: its MATLAB files and their problems."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from data.readers import formats
from doap._support.errors import DataError, MissingExtra
from doap.data.readers import check_folder, read_romepatches

COLOUR = formats.random_patches(12, 3, 51, 51)
LABELS = [4, 9, 2, 9, 9, 9, 2, 2, 2, 4, 4, 4]
# Rec. 601 luma.
LUMA = (COLOUR * np.array([0.299, 0.587, 0.114])[None, :, None, None]).sum(axis=1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for split in ("train", "test"):
        formats.write_romepatches(tmp_path / "rome", split, COLOUR, LABELS, queries=3)
    return tmp_path / "rome"


def test_patches_are_converted_to_grey(root: Path) -> None:
    patches = read_romepatches(root).load("train").patches
    assert patches.dtype == np.uint8
    np.testing.assert_allclose(patches, LUMA, atol=1)


def test_labels_of_queries_precede_those_of_the_database(root: Path) -> None:
    split = read_romepatches(root).load("test")
    assert (split.labels.tolist(), split.queries) == (LABELS, 3)


def test_channels_may_come_last(root: Path) -> None:
    expected = read_romepatches(root).load("train").patches
    formats.write_romepatches(root, "train", np.moveaxis(COLOUR, 1, -1), LABELS, queries=3)
    np.testing.assert_array_equal(read_romepatches(root).load("train").patches, expected)


def test_grey_patches_stored_as_doubles_are_read_back(root: Path) -> None:
    formats.write_romepatches(root, "train", COLOUR[:, 0].astype(np.float64), LABELS, queries=3)
    np.testing.assert_array_equal(read_romepatches(root).load("train").patches, COLOUR[:, 0])


def test_units_are_the_halves_with_every_point_as_one_group(root: Path) -> None:
    rome = read_romepatches(root)
    train, test = rome.units()
    assert (train.name, test.name) == ("train", "test")
    patches = rome.load("train").patches
    groups = np.split(train.patches, train.counts.cumsum()[:-1])
    for label, group in zip([2, 4, 9], groups, strict=True):
        np.testing.assert_array_equal(group, patches[np.array(LABELS) == label])


def test_a_single_half_can_be_read(root: Path) -> None:
    (root / "patch_retrieval_Rome_test.mat").unlink()
    assert read_romepatches(root).splits == ("train",)


def test_a_complete_dataset_has_no_problems(root: Path) -> None:
    found = check_folder(root)
    assert (found.kind, found.problems) == ("romepatches", ())
    assert found.summary == "RomePatches: train 12 patches of 3 points, test 12 patches of 3 points"


def test_folder_without_its_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected patch_retrieval_Rome_train\.mat or …_test\.mat, got neither"):
        read_romepatches(tmp_path)


def test_a_wrong_number_of_labels_is_refused(root: Path) -> None:
    savemat(root / "patch_retrieval_Rome_train_labels.mat", {"labels_gt": np.ones(3), "labels": np.ones(4)})
    with pytest.raises(DataError, match="expected 12 labels, one per patch, got 7"):
        read_romepatches(root).load("train")


def test_grey_levels_out_of_range_are_refused(root: Path) -> None:
    formats.write_romepatches(root, "train", COLOUR[:, 0] / 255, LABELS, queries=3)
    with pytest.raises(DataError, match=r"expected grey levels 0 to 255, got 0\.0 to 1\.0"):
        read_romepatches(root).load("train")


@pytest.mark.parametrize("shape", [(12, 51 * 51), (12, 4, 51, 51), (12, 51, 50)])
def test_patches_of_another_shape_are_refused(root: Path, shape: tuple[int, ...]) -> None:
    formats.write_romepatches(root, "train", formats.random_patches(*shape), LABELS, queries=3)
    with pytest.raises(DataError, match=r"expected patches \(N, 3, S, S\), got \(12, "):
        read_romepatches(root).load("train")


def test_missing_scipy_names_the_extra(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(MissingExtra, match=r"scipy is not installed\. Run `pip install 'doap\[eval\]'`"):
        read_romepatches(root).load("train")


def test_all_problems_are_listed_one_line_each(root: Path) -> None:
    (root / "patch_retrieval_Rome_train.mat").write_bytes(b"no MATLAB file" * 20)
    savemat(root / "patch_retrieval_Rome_test_labels.mat", {"labels": np.ones(12)})
    parts = ["train.mat: not a MATLAB file", "missing variables labels_gt"]
    problems = check_folder(root).problems
    assert [sum(part in problem for problem in problems) for part in parts] == [1] * len(problems)
    assert not any("\n" in problem for problem in problems)
