import math
import sys

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from doap._support.errors import ArgumentError, MissingExtra
from doap.data import mining
from doap.data.mining import hog, mine, mining_features
from oracles.memory_source import memory_source


def striped(kinds, scenes, per_group=2):
    """A group of kind k shows bright stripes of k + 1 pixels, with a little noise."""
    source = memory_source([per_group] * len(kinds), scenes, side=32)
    stripes = np.stack([np.tile(np.arange(32) // (kind + 1) % 2, (32, 1)) for kind in np.repeat(kinds, per_group)])
    source.patches = (200 * stripes + source.patches // 16).astype(np.uint8)
    return source


@pytest.fixture(scope="module")
def two_scenes():
    """Scene 0 shows stripes of widths 1, 2 and 6, ten groups of each; scene 1 has three groups."""
    return striped([0, 1, 5] * 10 + [0, 1, 5], [0] * 30 + [1] * 3)


@pytest.fixture(scope="module")
def mined(two_scenes):
    return mine(two_scenes, clusters=5, seed=0)


def test_features_are_hog_at_64_pixels_and_then_pixels_at_16():
    patch = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    features = mining_features(patch[None])
    small = cv2.resize(patch.astype(np.float32), (16, 16), interpolation=cv2.INTER_AREA) / 255
    assert features.shape == (1, 2240)
    assert features.dtype == np.float32
    assert np.allclose(features[0, 1984:], small.ravel(), atol=1e-6)
    assert np.allclose(features[0, :1984], hog(torch.from_numpy(patch[None])).flatten(), atol=1e-4)


@pytest.mark.parametrize(("number", "side"), [(2, 32), (2, 51), (2, 65), (0, 32)])
def test_features_accept_patches_of_any_side_and_number(number, side):
    assert mining_features(np.zeros((number, side, side), dtype=np.uint8)).shape == (number, 2240)


def test_a_cluster_has_only_similar_patches():
    clusters = mine(striped([0, 1, 5] * 10, [0] * 30, per_group=1), clusters=8).clusters
    kinds = [set(clusters[kind::3].tolist()) for kind in range(3)]
    assert len(set.union(*kinds)) == sum(len(kind) for kind in kinds)


def test_mining_is_deterministic_and_numbers_clusters_across_scenes(two_scenes, mined):
    again = mine(two_scenes, clusters=5, seed=0)
    assert np.array_equal(again.clusters, mined.clusters)
    assert np.array_equal(again.tables, mined.tables)
    assert np.array_equal(mined.clusters // 5, two_scenes.scene_ids.repeat(2))


def test_a_scene_with_fewer_patches_than_clusters_has_one_cluster_per_patch():
    mined = mine(memory_source([9, 2, 1], [0, 1, 1], side=16), clusters=5)
    assert sorted(mined.clusters[9:]) == [5, 6, 7]
    assert not mined.tables[1, 3:].any()


def test_patches_that_k_means_has_not_seen_are_in_the_cluster_of_the_nearest_centre(monkeypatch):
    monkeypatch.setattr(mining, "PATCHES_PER_CLUSTER", 4)
    monkeypatch.setattr(mining, "PATCHES_TO_ASSIGN", 7)
    clusters = mine(striped([0, 1, 5] * 10, [0] * 30, per_group=1), clusters=3).clusters
    assert [len(set(clusters[kind::3].tolist())) for kind in range(3)] == [1, 1, 1]
    assert len(set(clusters.tolist())) == 3


@pytest.mark.parametrize(("percentile", "ignored"), [(0, 1), (20, 190 // 5), (100, 190)])
def test_the_nearest_cluster_pairs_up_to_the_percentile_and_equal_clusters_ignore_each_other(percentile, ignored):
    table = mine(memory_source([1] * 40, [0] * 40, side=16), clusters=20, percentile=percentile).tables[0]
    assert np.array_equal(table, table.T)
    assert table.diagonal().all()
    assert table[np.triu_indices(20, 1)].sum() == ignored


def test_the_nearest_clusters_ignore_each_other():
    source = striped([0, 1, 5] * 4, [0] * 12)
    mined = mine(source, clusters=3, percentile=10)
    centres = np.stack([mining_features(source.patches[2 * kind :: 6]).mean(0) for kind in range(3)])
    pairs = [(0, 1), (0, 2), (1, 2)]
    nearest = min(pairs, key=lambda pair: float(np.linalg.norm(centres[pair[0]] - centres[pair[1]])))
    table = mined.ignored(np.arange(3))
    assert [pair for pair in pairs if table[pair]] == [nearest]


def test_values_out_of_range_and_a_missing_faiss_are_refused(two_scenes, monkeypatch):
    for wrong in ({"clusters": 0}, {"percentile": 101}):
        with pytest.raises(ArgumentError):
            mine(two_scenes, **wrong)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtra):
        mine(two_scenes)


def noise(number=2, side=64, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).random((number, side, side), dtype=np.float32))


def slow_hog(patch, cell=8):
    """One pixel, one cell, one block at a time: (31, cells, cells)."""
    side = len(patch)
    cells = side // cell
    energy = np.zeros((18, cells, cells))
    for y in range(1, side - 1):
        for x in range(1, side - 1):
            dx, dy = patch[y][x + 1] - patch[y][x - 1], patch[y + 1][x] - patch[y - 1][x]
            along = [dx * math.cos(o * math.pi / 9) + dy * math.sin(o * math.pi / 9) for o in range(18)]
            nearest = max(range(18), key=lambda o: along[o])
            for row in range(cells):
                for column in range(cells):
                    away_y = abs((y + 0.5) / cell - (row + 0.5))
                    away_x = abs((x + 0.5) / cell - (column + 0.5))
                    if away_x < 1 and away_y < 1:
                        energy[nearest, row, column] += math.hypot(dx, dy) * (1 - away_x) * (1 - away_y)
    features = np.zeros((31, cells, cells))
    for row in range(cells):
        for column in range(cells):
            for block, (up, left) in enumerate([(-1, -1), (-1, 0), (0, -1), (0, 0)]):
                square = 0.0
                for y in (row + up, row + up + 1):
                    for x in (column + left, column + left + 1):
                        here = energy[:, min(max(y, 0), cells - 1), min(max(x, 0), cells - 1)]
                        square += sum((here[o] + here[o + 9]) ** 2 for o in range(9))
                norm = math.sqrt(square + 1e-10)
                own = energy[:, row, column]
                for o in range(18):
                    features[o, row, column] += min(own[o] / norm, 0.2) / 2
                    features[27 + block, row, column] += min(own[o] / norm, 0.2) / math.sqrt(18)
                for o in range(9):
                    features[18 + o, row, column] += min((own[o] + own[o + 9]) / norm, 0.2) / 2
    return features


@pytest.mark.parametrize(("side", "cell"), [(64, 8), (24, 8), (12, 4)])
def test_equals_the_slow_loop(side, cell):
    patches = noise(1, side)
    assert np.allclose(hog(patches, cell)[0], slow_hog(patches[0].tolist(), cell), atol=1e-5)


@given(st.floats(0.1, 255), st.floats(-1, 1))
def test_gain_and_offset_do_not_change_the_result(gain, offset):
    assert torch.allclose(hog(noise() * gain + offset), hog(noise()), atol=1e-3)
