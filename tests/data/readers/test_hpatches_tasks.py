"""The task files of HPatches: small ones and the published ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data.readers import formats
from doap._support.errors import DataError
from doap.data.readers import PatchList, check_folder, read_retrieval, read_splits, read_verification


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return formats.write_tasks(tmp_path / "tasks")


def rows(patches: PatchList) -> list[tuple[str, int, int]]:
    names = [patches.names[code] for code in patches.sequence]
    return list(zip(names, patches.image.tolist(), patches.index.tolist(), strict=True))


def test_splits_are_read_back(root: Path) -> None:
    splits = read_splits(root)
    assert (splits["a"].train, splits["a"].test) == (("v_boat",), ("i_dome", "v_wall"))
    assert splits["full"].train == ()


def test_splits_are_read_from_the_file_itself(root: Path) -> None:
    assert read_splits(root / "splits" / "splits.json") == read_splits(root)


def test_retrieval_is_read_back_with_patches_of_the_reference(root: Path) -> None:
    task = read_retrieval(root, "a")
    assert rows(task.queries) == [("v_wall", 0, 3), ("i_dome", 0, 0), ("v_wall", 0, 1)]
    assert rows(task.distractors) == [("i_dome", 0, 7), ("v_wall", 0, 2)]


def test_verification_is_read_back(root: Path) -> None:
    task = read_verification(root, "a")
    first, second = task.negative_inter
    assert rows(first) == [("v_wall", 4, 251), ("i_dome", 0, 5)]
    assert rows(second) == [("i_dome", 3, 204), ("v_wall", 3, 9)]
    assert rows(task.positive[1]) == [("v_wall", 3, 251), ("i_dome", 3, 5)]
    assert rows(task.negative_intra[1]) == [("v_wall", 3, 12), ("i_dome", 3, 6)]


def test_complete_tasks_have_no_problems(root: Path) -> None:
    found = check_folder(root)
    assert (found.kind, found.problems) == ("hpatches-tasks", ())
    assert found.summary == "HPatches tasks: 2 splits, 5 lists of patches"


@pytest.mark.parametrize("text", ["[1, 2]", "{", '{"a": {"train": []}}', '{"a": 3}'])
def test_damaged_splits_are_refused(root: Path, text: str) -> None:
    (root / "splits" / "splits.json").write_text(text)
    with pytest.raises(DataError, match=r"splits\.json: expected splits with a list `test`"):
        read_splits(root)


def test_split_without_files_is_refused(root: Path) -> None:
    with pytest.raises(DataError, match=r"retr_queries_split-b\.csv: no such file"):
        read_retrieval(root, "b")


@pytest.mark.parametrize(
    ("header", "row"),
    [("s,index", ("v_wall", 1)), ("idx,s", (1, "v_wall")), ("s,idx", ("v_wall", "one")), ("s,idx", ())],
)
def test_other_columns_are_refused(root: Path, header: str, row: tuple[object, ...]) -> None:
    formats.write_csv(root / "retr_queries_split-a.csv", header, [row] if row else [])
    with pytest.raises(DataError, match=r"retr_queries_split-a\.csv: expected .*s,idx"):
        read_retrieval(root, "a")


@pytest.mark.parametrize("row", [("v_wall", 6, 0, "v_wall", 0, 0), ("v_wall", 0, -1, "v_wall", 0, 0)])
def test_images_and_patches_out_of_range_are_refused(root: Path, row: tuple[object, ...]) -> None:
    formats.write_csv(root / "verif_pos_split-a.csv", "s1,t1,idx1,s2,t2,idx2", [row])
    with pytest.raises(DataError, match="expected images 0 to 5 and non-negative patch indices"):
        read_verification(root, "a")


def test_all_problems_are_listed_one_line_each(root: Path) -> None:
    (root / "retr_distractors_split-a.csv").unlink()
    formats.write_csv(root / "retr_queries_split-a.csv", "s,idx", [("v_boat", 1), ("v_wall", 2)])
    (root / "verif_pos_split-a.csv").write_bytes(b"")
    parts = [
        "distractors_split-a.csv: no such file",
        "test sequences of split a, got v_boat",
        "verif_pos_split-a.csv",
    ]
    problems = check_folder(root).problems
    assert [sum(part in problem for problem in problems) for part in parts] == [1] * len(problems)
    assert not any("\n" in problem for problem in problems)


@pytest.mark.data("hpatches_tasks")
def test_published_splits_have_76_and_40_sequences(data_folder: Path) -> None:
    splits = read_splits(data_folder / "hpatches_tasks")
    sizes = {name: (len(split.train), len(split.test)) for name, split in splits.items()}
    abc = dict.fromkeys("abc", (76, 40))
    assert sizes == {**abc, "illum": (0, 57), "view": (0, 59), "full": (0, 116)}
    assert all(set(splits[name].train).isdisjoint(splits[name].test) for name in "abc")


@pytest.mark.data("hpatches_tasks")
@pytest.mark.parametrize("split", ["a", "b", "c", "illum", "view", "full"])
def test_published_retrieval_has_10000_queries_and_20000_distractors(data_folder: Path, split: str) -> None:
    task = read_retrieval(data_folder / "hpatches_tasks", split)
    assert (len(task.queries), len(task.distractors)) == (10_000, 20_000)
    test = set(read_splits(data_folder / "hpatches_tasks")[split].test)
    assert set(task.queries.names) | set(task.distractors.names) <= test
    assert not set(rows(task.queries)) & set(rows(task.distractors))


@pytest.mark.data("hpatches_tasks")
def test_published_tasks_have_no_problems(data_folder: Path) -> None:
    found = check_folder(data_folder / "hpatches_tasks")
    assert (found.kind, found.problems) == ("hpatches-tasks", ())


@pytest.mark.data("hpatches_tasks")
def test_the_first_published_queries_are_read_correctly(data_folder: Path) -> None:
    task = read_retrieval(data_folder / "hpatches_tasks", "a")
    assert rows(task.queries)[:3] == [("v_birdwoman", 0, 3), ("v_strand", 0, 2), ("i_salon", 0, 324)]
    assert task.queries.sequence.dtype == np.int64
