"""A vocabulary in the text of DBoW2 assigns each descriptor to the word that a plain reading of the file gives."""

import math
from collections import defaultdict

import numpy as np
import pytest

from doap._support.errors import ArgumentError, DataError
from doap.collection import build_vocabulary
from oracles.feature_sets import random_features, write_features

IMAGES = {f"{number}.jpg": random_features(number, 40, binary=True, dim=256) for number in range(12)}


def read(file):
    """Read a vocabulary line by line: header, children, bytes and weights of the nodes, and the words."""
    first, *lines = file.read_text(encoding="ascii").split("\n")
    children, centres, weights, words = defaultdict(list), {}, {}, set()
    for node, line in enumerate(lines, start=1):
        parent, leaf, *values, weight = line.split(" ")
        assert int(parent) < node
        children[int(parent)].append(node)
        centres[node] = np.array(values, np.uint8)
        assert len(values) == 32
        weights[node] = float(weight)
        if leaf == "1":
            words.add(node)
    return [int(value) for value in first.split()], children, centres, weights, words


def find_word(descriptor, children, centres):
    """Descend from the root to the nearest child, the first of equal ones; return the word and its depth."""
    node = depth = 0
    while children[node]:
        distances = [np.bitwise_count(descriptor ^ centres[child]).sum() for child in children[node]]
        node, depth = children[node][int(np.argmin(distances))], depth + 1
    return node, depth


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary")
    features = write_features(folder / "features", IMAGES)
    return features, build_vocabulary(features, folder / "vocabulary.txt", branching=4, levels=3)


def test_words_are_the_leaves_of_a_tree_within_the_limits(built):
    _, summary = built
    header, children, _, weights, words = read(summary.out)
    assert header == [4, 3, 0, 0]
    assert words == {node for node in weights if not children[node]}
    assert len(words) == summary.words > 40
    assert all(len(nodes) <= 4 for nodes in children.values())
    assert (summary.images, summary.descriptors) == (12, 480)


def test_weights_are_inverse_document_frequencies(built):
    features, summary = built
    _, children, centres, weights, words = read(summary.out)
    images = defaultdict(set)
    for image in features.stream():
        for descriptor in image.features.descriptors.numpy():
            word, depth = find_word(descriptor, children, centres)
            assert word in words
            assert depth <= 3
            images[word].add(image.name)
    assert images.keys() == words
    for word in words:
        assert weights[word] == pytest.approx(math.log(12 / len(images[word])), abs=1e-6)


def test_clusters_of_similar_descriptors_share_a_word(tmp_path):
    """Six random centres with eight noisy copies each: the six children of the root are the clusters."""
    random = np.random.default_rng(0)
    centres = random.integers(0, 256, (6, 32), dtype=np.uint8)
    noisy = np.repeat(centres, 8, axis=0)
    noisy[np.arange(48), random.integers(0, 32, 48)] ^= 1 << random.integers(0, 8, 48).astype(np.uint8)
    some = random_features(0, 48, binary=True, dim=256)
    some.descriptors.numpy()[:] = noisy
    features = write_features(tmp_path / "features", {"a.jpg": some})
    _, children, found, _, _ = read(build_vocabulary(features, tmp_path / "v.txt", branching=6, levels=1).out)
    words = [find_word(descriptor, children, found)[0] for descriptor in noisy]
    assert all(len(set(words[start : start + 8])) == 1 for start in range(0, 48, 8))
    assert len(set(words)) == 6


def test_equal_descriptors_end_in_one_word(tmp_path):
    some = random_features(0, 30, binary=True, dim=256)
    some.descriptors[:] = some.descriptors[0]
    features = write_features(tmp_path / "features", {"a.jpg": some, "b.jpg": some})
    summary = build_vocabulary(features, tmp_path / "v.txt")
    assert summary.words == 1
    assert read(summary.out)[3] == {1: 0.0}


def test_other_descriptors_and_sizes_are_refused(tmp_path):
    real = write_features(tmp_path / "real", {"a.jpg": random_features(0, 5)})
    with pytest.raises(DataError):
        build_vocabulary(real, tmp_path / "v.txt")
    bits = write_features(tmp_path / "bits", {"a.jpg": random_features(0, 0, binary=True, dim=256)})
    with pytest.raises(DataError):
        build_vocabulary(bits, tmp_path / "v.txt")
    with pytest.raises(ArgumentError):
        build_vocabulary(bits, tmp_path / "v.txt", branching=21)
    assert not (tmp_path / "v.txt").exists()
