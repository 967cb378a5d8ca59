from __future__ import annotations

import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from doap._support.errors import ArgumentError, MissingExtra
from doap.data.hog import hog
from doap.data.mining import Mined, draw_clusters, mine, mining_features
from oracles.memory_source import MemorySource, memory_source


def striped(kinds: list[int], scenes: list[int], per_group: int = 2) -> MemorySource:
    """A group of kind k shows bright stripes of k + 1 pixels, with a little noise."""
    source = memory_source([per_group] * len(kinds), scenes, side=32)
    stripes = np.stack([np.tile(np.arange(32) // (kind + 1) % 2, (32, 1)) for kind in np.repeat(kinds, per_group)])
    source.patches = (200 * stripes + source.patches // 16).astype(np.uint8)
    return source


@pytest.fixture(scope="module")
def two_scenes() -> MemorySource:
    """Scene 0 shows stripes of widths 1, 2 and 6, ten groups of each; scene 1 has three groups."""
    return striped([0, 1, 5] * 10 + [0, 1, 5], [0] * 30 + [1] * 3)


@pytest.fixture(scope="module")
def mined(two_scenes: MemorySource) -> Mined:
    return mine(two_scenes, clusters=5, seed=0)


def test_features_are_hog_at_64_pixels_and_then_pixels_at_16() -> None:
    patch = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    features = mining_features(patch[None])
    small = cv2.resize(patch.astype(np.float32), (16, 16), interpolation=cv2.INTER_AREA) / 255
    assert features.shape == (1, 2240)
    assert features.dtype == np.float32
    assert np.allclose(features[0, 1984:], small.ravel(), atol=1e-6)
    assert np.allclose(features[0, :1984], hog(torch.from_numpy(patch[None])).flatten(), atol=1e-4)


@pytest.mark.slow
def test_features_of_many_patches_equal_those_of_each() -> None:
    patches = memory_source([1100], [0], side=8).patches
    some = [0, 1023, 1024, 1099]
    assert np.allclose(mining_features(patches)[some], mining_features(patches[some]), atol=1e-5)


@pytest.mark.parametrize("side", [32, 51, 65])
def test_features_accept_patches_of_any_side(side: int) -> None:
    assert mining_features(np.zeros((2, side, side), dtype=np.uint8)).shape == (2, 2240)


def test_no_patches_have_no_features() -> None:
    assert mining_features(np.zeros((0, 32, 32), dtype=np.uint8)).shape == (0, 2240)


@pytest.mark.parametrize("use", ["first", "all"])
def test_a_cluster_has_only_similar_groups(use: str) -> None:
    clusters = mine(striped([0, 1, 5] * 10, [0] * 30), clusters=8, use=use).clusters  # type: ignore[arg-type]
    kinds = [set(clusters[kind::3].tolist()) for kind in range(3)]
    assert len(set.union(*kinds)) == sum(len(kind) for kind in kinds)


def test_the_appearance_of_a_group_may_be_the_mean_of_its_patches() -> None:
    source = striped([0, 5] * 4, [0] * 8, per_group=3)
    source.patches[::3] = source.patches[0]  # all groups begin with the same patch
    first, every = (mine(source, clusters=2, percentile=0, use=use).clusters for use in ("first", "all"))
    assert len(set(every[::2].tolist())) == len(set(every[1::2].tolist())) == 1
    assert every[0] != every[1]
    assert len(set(first.tolist())) == 1


def test_mining_is_deterministic(two_scenes: MemorySource, mined: Mined) -> None:
    again = mine(two_scenes, clusters=5, seed=0)
    assert np.array_equal(again.clusters, mined.clusters)
    assert np.array_equal(again.tables, mined.tables)


def test_cluster_ids_are_numbered_across_scenes(two_scenes: MemorySource, mined: Mined) -> None:
    assert np.array_equal(mined.clusters // 5, two_scenes.scene_ids)


def test_a_scene_with_fewer_groups_than_clusters_has_one_cluster_per_group(mined: Mined) -> None:
    assert sorted(mined.clusters[30:]) == [5, 6, 7]
    assert not mined.tables[1, 3:].any()


def test_the_nearest_fifth_of_cluster_pairs_and_equal_clusters_ignore_each_other() -> None:
    source = memory_source([2] * 40, [0] * 40, side=16)
    table = mine(source, clusters=20, percentile=20).tables[0]
    assert np.array_equal(table, table.T)
    assert table.diagonal().all()
    assert table[np.triu_indices(20, 1)].sum() == 190 // 5


@pytest.mark.parametrize(("percentile", "ignored"), [(0, 1), (100, 190)])
def test_percentiles_range_from_the_nearest_pair_to_all_pairs(percentile: float, ignored: int) -> None:
    source = memory_source([2] * 40, [0] * 40, side=16)
    table = mine(source, clusters=20, percentile=percentile).tables[0]
    assert table[np.triu_indices(20, 1)].sum() == ignored


def test_the_nearest_clusters_ignore_each_other() -> None:
    source = striped([0, 1, 5] * 4, [0] * 12)
    mined = mine(source, clusters=3, percentile=10)
    centres = np.stack([mining_features(source.patches[2 * kind :: 6]).mean(0) for kind in range(3)])
    pairs = [(0, 1), (0, 2), (1, 2)]
    nearest = min(pairs, key=lambda pair: float(np.linalg.norm(centres[pair[0]] - centres[pair[1]])))
    table = mined.ignored(np.arange(3))
    assert [pair for pair in pairs if table[pair]] == [nearest]


def test_a_scene_with_one_group_works() -> None:
    assert mine(memory_source([2], [0], side=16)).tables[0].sum() == 1


def test_groups_of_different_scenes_never_ignore_each_other(two_scenes: MemorySource, mined: Mined) -> None:
    ignored = Mined(mined.clusters, np.ones_like(mined.tables)).ignored(np.arange(33))
    scene = two_scenes.scene_ids
    assert np.array_equal(ignored, scene[:, None] == scene)


def test_the_table_of_a_batch_follows_its_groups(mined: Mined) -> None:
    groups = np.array([31, 4, 17, 32, 0])
    table = mined.ignored(groups)
    for row, one in enumerate(mined.clusters[groups]):
        for column, other in enumerate(mined.clusters[groups]):
            assert table[row, column] == (one // 5 == other // 5 and mined.tables[one // 5, one % 5, other % 5])


@pytest.mark.parametrize("wrong", [{"clusters": 0}, {"percentile": 101}, {"use": "some"}])
def test_values_out_of_range_are_rejected(two_scenes: MemorySource, wrong: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        mine(two_scenes, **wrong)  # type: ignore[arg-type]


def test_without_faiss_the_extra_is_named(two_scenes: MemorySource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtra, match=r"doap\[index\]"):
        mine(two_scenes)


@pytest.mark.slow
@pytest.mark.parametrize("with_photo", [False, True])
def test_clusters_are_drawn(two_scenes: MemorySource, mined: Mined, tmp_path: Path, with_photo: bool) -> None:
    photo = tmp_path / "photo.png"
    cv2.imwrite(str(photo), np.zeros((30, 40), dtype=np.uint8))
    out = draw_clusters(two_scenes, mined, 0, tmp_path / "clusters.png", photo if with_photo else None)
    assert out == tmp_path / "clusters.png"
    assert cv2.imread(str(out)).shape[1] > 1000


def test_an_unknown_scene_is_rejected(two_scenes: MemorySource, mined: Mined, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="scene: expected 0 to 1, got 2"):
        draw_clusters(two_scenes, mined, 2, tmp_path / "clusters.png")


def test_without_matplotlib_the_extra_is_named(
    two_scenes: MemorySource, mined: Mined, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"doap\[plot\]"):
        draw_clusters(two_scenes, mined, 0, tmp_path / "clusters.png")
