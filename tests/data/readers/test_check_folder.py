"""Kinds of folders that are not covered by the tests of a reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data.readers import formats
from doap._support.errors import DataError, ShapeError
from doap.data.readers import Unit, check_folder
from doap.data.writer import SetWriter, UnitGroups


def write_set(out: Path) -> Path:
    writer = SetWriter(out, 8, {"test": True}, [])
    groups = UnitGroups(np.array([2, 3]), "rome", np.zeros((2, 3), np.float32), "tracks", np.zeros((0, 2), np.int64))
    writer.add("one", formats.random_patches(5, 8, 8), groups)
    return writer.finish()


def test_a_patch_set_is_recognised_and_summarised(tmp_path: Path) -> None:
    found = check_folder(write_set(tmp_path / "set"))
    assert (found.kind, found.problems) == ("patch-set", ())
    assert found.summary == "patch set: 5 patches in 2 groups of 1 scene"


def test_a_damaged_patch_set_is_a_problem(tmp_path: Path) -> None:
    path = write_set(tmp_path / "set") / "patches.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    (problem,) = check_folder(tmp_path / "set").problems
    assert "SHA-256" in problem


def test_an_incomplete_patch_set_is_a_problem(tmp_path: Path) -> None:
    (write_set(tmp_path / "set") / "groups.parquet").unlink()
    found = check_folder(tmp_path / "set")
    assert found.kind == "patch-set"
    assert found.problems == (f"{tmp_path}/set/groups.parquet: no such file.",)


def test_an_unfinished_set_explains_how_to_continue(tmp_path: Path) -> None:
    SetWriter(tmp_path / "set", 8, {"test": True}, [])
    found = check_folder(tmp_path / "set.unfinished")
    assert found.kind == "unfinished"
    assert "Run the same command again to continue" in found.problems[0]


@pytest.mark.parametrize("where", ["", "sparse", "sparse/0"])
@pytest.mark.parametrize("ending", ["bin", "txt"])
def test_a_colmap_model_is_recognised_in_all_its_usual_folders(tmp_path: Path, where: str, ending: str) -> None:
    folder = tmp_path / where
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("cameras", "images", "points3D"):
        (folder / f"{name}.{ending}").touch()
    found = check_folder(tmp_path)
    assert (found.kind, found.problems) == ("colmap", ())


def test_colmap_model_without_points_is_a_problem(tmp_path: Path) -> None:
    for name in ("cameras.bin", "images.bin"):
        (tmp_path / name).touch()
    (problem,) = check_folder(tmp_path).problems
    assert "points3D.bin: no such file" in problem


def test_a_folder_of_images_is_recognised_and_empty_files_are_reported(tmp_path: Path) -> None:
    formats.write_image(tmp_path / "a" / "one.jpg", formats.random_patches(8, 8))
    (tmp_path / "two.png").touch()
    found = check_folder(tmp_path)
    assert (found.kind, found.summary) == ("images", "folder of 2 images")
    assert found.problems == (f"{tmp_path}/two.png: the image file is empty.",)


def test_links_without_a_target_are_reported(tmp_path: Path) -> None:
    (tmp_path / "one.jpg").symlink_to(tmp_path / "none.jpg")
    found = check_folder(tmp_path)
    assert (found.summary, found.problems) == ("folder of 1 images", (f"{tmp_path}/one.jpg: a link without a target.",))


def test_anything_else_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "letter.doc").touch()
    found = check_folder(tmp_path)
    assert found.kind == "unknown"
    assert len(found.problems) == 1


def test_a_path_that_is_not_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="expected a folder, but it is a file"):
        check_folder(tmp_path / "file")
    with pytest.raises(DataError, match="expected a folder, but it does not exist"):
        check_folder(tmp_path / "nowhere")


def test_a_unit_with_inconsistent_counts_is_refused() -> None:
    with pytest.raises(ShapeError, match="counts: expected a sum of 4, the number of patches, got 3"):
        Unit("one", "one", np.zeros((4, 8, 8), np.uint8), np.array([1, 2]), np.zeros((2, 3), np.float32))


@pytest.mark.data("oxford_affine", "hpatches_sequences", "photos", "strecha")
def test_real_folders_are_recognised(data_folder: Path) -> None:
    kinds = {"oxford_affine": "sequences", "hpatches_sequences": "sequences", "photos": "images", "strecha": "images"}
    assert {name: check_folder(data_folder / name).kind for name in kinds} == kinds
