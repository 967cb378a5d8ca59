"""HPatches: strips, groups, and the task files of its benchmark."""

import numpy as np
import pytest

from data.readers import formats
from doap._support.errors import DataError
from doap.data.readers import hpatches, read_hpatches
from doap.data.readers.hpatches import read_patch_list, read_patch_pairs, read_splits, task_file

GROUPS = {"i_dome": formats.random_patches(3, 16, 65, 65), "v_wall": formats.random_patches(5, 16, 65, 65, seed=1)}
QUERIES, POSITIVE = "retr_queries_split-a.csv", "verif_pos_split-a.csv"


@pytest.fixture
def root(tmp_path):
    return formats.write_hpatches(tmp_path / "hpatches-release", GROUPS)


@pytest.fixture
def tasks(tmp_path):
    return formats.write_tasks(tmp_path / "tasks")


def rows(patches):
    names = [patches.names[code] for code in patches.sequence]
    return list(zip(names, patches.image.tolist(), patches.index.tolist(), strict=True))


def test_units_are_the_sequences_in_groups_of_16(root):
    units = list(read_hpatches(root).units())
    assert [(unit.scene, unit.counts.tolist()) for unit in units] == [("i_dome", [16] * 3), ("v_wall", [16] * 5)]
    for unit in units:
        np.testing.assert_array_equal(unit.patches, GROUPS[unit.scene].reshape(-1, 65, 65))
    assert [unit.name for unit in read_hpatches(root).units(skip=1)] == ["v_wall"]


def test_a_folder_without_sequences_and_an_unknown_sequence_are_refused(root, tmp_path):
    (tmp_path / "v_photos").mkdir()
    formats.write_image(tmp_path / "v_photos" / "1.png", formats.random_patches(8, 8))
    with pytest.raises(DataError):
        read_hpatches(tmp_path)
    with pytest.raises(DataError):
        read_hpatches(root).load("v_boat")


@pytest.mark.parametrize("shape", [None, (66, 65), (65, 64), (4 * 65, 65)])
def test_a_missing_strip_or_one_of_another_size_is_refused(root, shape):
    strip = root / "v_wall" / "e2.png"
    strip.unlink()
    if shape:
        formats.write_image(strip, formats.random_patches(*shape))
    with pytest.raises(DataError):
        read_hpatches(root).load("v_wall")


def test_test_sequences_and_tasks_are_read_back(tasks):
    assert read_splits(tasks) == {"a": ("i_dome", "v_wall"), "full": ("i_dome", "v_wall")}
    assert rows(read_patch_list(tasks / QUERIES)) == [("v_wall", 0, 3), ("i_dome", 0, 0), ("v_wall", 0, 1)]
    first, second = read_patch_pairs(task_file(tasks, "verif_neg_inter", "a"))
    assert rows(first) == [("v_wall", 4, 251), ("i_dome", 0, 5)]
    assert rows(second) == [("i_dome", 3, 204), ("v_wall", 3, 9)]


@pytest.mark.parametrize("text", ["[1, 2]", "{", '{"a": {"train": []}}', '{"a": 3}'])
def test_damaged_splits_are_refused(tasks, text):
    (tasks / "splits" / "splits.json").write_text(text)
    with pytest.raises(DataError):
        read_splits(tasks)


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        ("s,index", [("v_wall", 1)]),
        ("idx,s", [(1, "v_wall")]),
        ("s,idx", [("v_wall", "one")]),
        ("s,idx", [("v_wall", -1)]),
        ("s,idx", []),
    ],
)
def test_a_list_with_other_columns_or_values_is_refused(tasks, header, rows):
    formats.write_csv(tasks / QUERIES, header, rows)
    with pytest.raises(DataError):
        read_patch_list(tasks / QUERIES)


@pytest.mark.parametrize("row", [("v_wall", 6, 0, "v_wall", 0, 0), ("v_wall", 0, -1, "v_wall", 0, 0)])
def test_images_and_patches_out_of_range_are_refused(tasks, row):
    formats.write_csv(tasks / POSITIVE, "s1,t1,idx1,s2,t2,idx2", [row])
    with pytest.raises(DataError):
        read_patch_pairs(tasks / POSITIVE)


@pytest.mark.data("hpatches_tasks")
@pytest.mark.parametrize(("split", "sequences"), [("a", 40), ("illum", 57), ("full", 116)])
def test_published_retrieval_has_10000_queries_and_20000_other_distractors(data_folder, split, sequences):
    folder = data_folder / "hpatches_tasks"
    queries, distractors = (read_patch_list(task_file(folder, kind, split)) for kind in hpatches.RETRIEVAL)
    assert (len(queries.index), len(distractors.index)) == (10_000, 20_000)
    assert {*queries.names, *distractors.names} <= set(read_splits(folder)[split])
    assert len(read_splits(folder)[split]) == sequences
    assert not set(rows(queries)) & set(rows(distractors))
    if split == "a":
        assert rows(queries)[:3] == [("v_birdwoman", 0, 3), ("v_strand", 0, 2), ("i_salon", 0, 324)]
