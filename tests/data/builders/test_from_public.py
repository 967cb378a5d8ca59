"""Patch sets from published datasets."""

import numpy as np
import pytest

from data.readers import formats
from doap._support.errors import DataError
from doap.data.builders import build_from_public
from doap.data.store import check_set, open_set

GROUPS = {"i_dome": formats.random_patches(3, 16, 65, 65), "v_wall": formats.random_patches(5, 16, 65, 65, seed=1)}


@pytest.fixture
def release(tmp_path):
    return formats.write_hpatches(tmp_path / "hpatches-release", GROUPS)


def test_groups_scenes_and_full_size_patches_are_preserved(release, tmp_path):
    out = build_from_public(release, tmp_path / "set", patch_size=65)
    patch_set = open_set(out)
    assert check_set(out).groups_per_scene == {"i_dome": 3, "v_wall": 5}
    assert patch_set.count.tolist() == [16] * 8
    assert np.array_equal(patch_set.patches[:48], GROUPS["i_dome"].reshape(-1, 65, 65))


def test_patches_are_resized_to_32_pixels_by_default(release, tmp_path):
    patch_set = open_set(build_from_public(release, tmp_path / "set"))
    assert patch_set.patch_size == 32
    means = GROUPS["v_wall"].reshape(-1, 65 * 65).mean(axis=1)
    np.testing.assert_allclose(patch_set.patches[48:].reshape(80, -1).mean(axis=1), means, atol=1)


def test_an_interrupted_build_is_resumed(release, tmp_path):
    def stop(done, total, name):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_from_public(release, tmp_path / "set", progress=stop)
    names = []
    build_from_public(release, tmp_path / "set", progress=lambda done, total, name: names.append(name))
    assert names == ["v_wall"]
    assert check_set(tmp_path / "set").groups == 8


@pytest.mark.parametrize("damage", ["v_wall/t3.png", "i_dome/ref.png"])
def test_damaged_and_unknown_folders_are_refused(release, tmp_path, damage):
    with pytest.raises(DataError):
        build_from_public(tmp_path, tmp_path / "set")
    (release / damage).unlink()
    with pytest.raises(DataError):
        build_from_public(release, tmp_path / "set")


def test_phototour_and_romepatches_are_recognised(tmp_path):
    patches = formats.random_patches(4, 64, 64)
    tour = formats.write_phototour(tmp_path / "liberty", patches, [0, 0, 1, 1], [0] * 4, [(0, 1)])
    rome = formats.write_romepatches(tmp_path / "rome", "train", patches, [0, 0, 1, 1], queries=2)
    for root, scene in ((tour, "liberty"), (rome, "train")):
        assert check_set(build_from_public(root, tmp_path / f"{scene}.patches")).groups_per_scene == {scene: 2}
