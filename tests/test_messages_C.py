"""The messages on patch sets that users meet most name the subject, what was expected, and the remedy."""

import numpy as np
import pytest

from doap._support.errors import DataError
from doap.data import SetWriter, UnitGroups, build_from_colmap, build_from_images, check_set, open_set
from oracles.photos import write_photo
from oracles.plane_scene import write_scene


def write_set(folder):
    with SetWriter(folder / "set", 8, {}, []) as writer:
        nothing = np.empty((0, 2), np.int64)
        writer.add("a", np.zeros((2, 8, 8), np.uint8), UnitGroups(np.array([2]), "a", np.zeros((1, 3)), "a", nothing))
        return writer.finish()


def open_without_meta(folder):
    (write_set(folder) / "meta.json").unlink()
    open_set(folder / "set")


def check_changed_patches(folder):
    with (write_set(folder) / "patches.npy").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"a")
    check_set(folder / "set")


def build_without_an_image(folder):
    write_scene(folder, np.column_stack([np.random.default_rng(0).uniform(-1, 1, (20, 2)), np.zeros(20)]))
    (folder / "images" / "3.png").unlink()
    build_from_colmap(folder / "sparse", folder / "images", folder / "set")


def build_with_a_ledger(folder):
    write_photo(folder / "a.png", 0)
    (folder / "ledger.csv").write_text("file,scene,split\na.png,a,train\na.png\n")
    build_from_images(folder, folder / "set", ledger=folder / "ledger.csv")


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda folder: write_set(write_set(folder).parent), ["set: already exists", "choose another --out"]),
        (open_without_meta, ["set: not a patch set", "meta.json", "Build one with `doap data`"]),
        (check_changed_patches, ["patches.npy: expected SHA-256", "Copy or build the set again"]),
        (build_without_an_image, ["missing 1 of the model's 4 images, such as 3.png", "Check the IMAGES folder"]),
        (build_with_a_ledger, ["ledger.csv, line 3: expected 3 values"]),
    ],
)
def test_messages_on_patch_sets(tmp_path, call, parts):
    with pytest.raises(DataError) as caught:
        call(tmp_path)
    assert [part for part in parts if part not in str(caught.value)] == []
