"""Vocabulary trees in the text format of DBoW2, as ORB-SLAM2 and ORB-SLAM3 read it.

A vocabulary assigns each binary descriptor to a word: from the root of a tree, descend to the child at the smallest
Hamming distance until a leaf is reached. Words that occur in few images weigh more. The first line of the file has the
branching factor, the number of levels, and the codes of the score (0: L1) and of the weights (0: tf-idf). Each other
line is a node, in the order of their numbers from 1:

    PARENT LEAF BYTE1 … BYTE32 WEIGHT
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from doap._support.errors import ArgumentError, DataError
from doap._support.files import OutputLock, atomic_write, make_folder
from doap._support.random_streams import stream
from doap.collection.features import FeatureSet, as_feature_set
from doap.collection.index.folder import faiss_library
from doap.metrics import hamming
from doap.types import Progress, no_progress

BITS = 256
"""DBoW2's class for ORB descriptors has 32 bytes."""
MAX_BRANCHING, MAX_LEVELS = 20, 10
"""Limits of DBoW2's reader."""
_ITERATIONS, _RESTARTS = 10, 5


@dataclass(frozen=True)
class VocabularySummary:
    """Contents of a vocabulary.

    Attributes:
        out: The file.
        words: Number of words, the leaves of the tree.
        images: Number of images that it was trained on.
        descriptors: Number of descriptors that it was trained on.
    """

    out: Path
    words: int
    images: int
    descriptors: int


class _Node(NamedTuple):
    """A node of the tree: its parent, its packed centre (32,), and its descriptors if it is a word."""

    parent: int
    centre: NDArray[np.uint8]
    members: NDArray[np.int64] | None


def build_vocabulary(
    features: str | Path | FeatureSet,
    out: str | Path,
    *,
    branching: int = 10,
    levels: int = 5,
    per_image: int = 500,
    progress: Progress = no_progress,
) -> VocabularySummary:
    """Build a vocabulary of binary descriptors for DBoW2, in the text format that ORB-SLAM2 and ORB-SLAM3 read.

    Args:
        features: Features of the images with a descriptor of 256 bits, from `doap.extract_folder`.
        out: Text file to write.
        branching: Children per node, from 2 to 20.
        levels: Levels below the root, from 1 to 10. A full tree has branching ** levels words.
        per_image: Maximum number of descriptors per image, selected at random. Each takes about 1 kB of memory.
        progress: Called for every image that is read.
    """
    features, out = as_feature_set(features), Path(out)
    if not 2 <= branching <= MAX_BRANCHING or not 1 <= levels <= MAX_LEVELS or per_image < 1:
        raise ArgumentError(
            f"branching, levels, per_image: expected 2 to {MAX_BRANCHING}, 1 to {MAX_LEVELS} and at least 1, "
            f"got {branching}, {levels} and {per_image}."
        )
    if features.kind != "binary" or features.dim != BITS:
        found = f"{features.kind} descriptors with {features.dim} dimensions"
        raise DataError(f"{features.folder}: expected binary descriptors of {BITS} bits for DBoW2, got {found}.")
    descriptors, images = _sample(features, per_image, progress)
    if not len(descriptors):
        raise DataError(f"{features.folder}: none of the images has a keypoint.")
    # From node 1, in the order of the file; node 0 is the root.
    nodes: list[_Node] = []
    _split(nodes, 0, descriptors, np.arange(len(descriptors)), branching, levels)
    lines, words = [f"{branching} {levels} 0 0"], 0
    for node in nodes:
        word = node.members is not None
        weight = np.log(len(features) / len(np.unique(images[node.members]))) if word else 0.0
        lines.append(f"{node.parent} {int(word)} {' '.join(map(str, node.centre))} {weight:.9g}")
        words += word
    with OutputLock(make_folder(out.parent) / out.name), atomic_write(out) as unfinished:
        # Without a newline at the end: ORB-SLAM2's reader would take an empty line for a node.
        unfinished.write_text("\n".join(lines), encoding="ascii")
    return VocabularySummary(out, words, len(features), len(descriptors))


def _sample(features: FeatureSet, per_image: int, progress: Progress) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return random descriptors (N, 32) and the numbers of their images (N,)."""
    random = stream(0, "vocabulary")
    rows, images = [np.empty((0, BITS // 8), np.uint8)], [np.empty(0, np.int64)]
    for number, image in enumerate(features.stream()):
        descriptors = image.features.descriptors.numpy()
        chosen = np.sort(random.permutation(len(descriptors))[:per_image])
        rows.append(descriptors[chosen])
        images.append(np.full(len(chosen), number))
        progress(number + 1, len(features), image.name)
    return np.concatenate(rows), np.concatenate(images)


def _split(
    nodes: list[_Node],
    parent: int,
    descriptors: NDArray[np.uint8],
    chosen: NDArray[np.int64],
    branching: int,
    levels: int,
) -> None:
    """Cluster some descriptors, add the clusters below a node, and split them in turn."""
    centres = _cluster(descriptors[chosen], branching)
    nearest = _nearest(descriptors[chosen], centres)
    for number in np.unique(nearest):
        members = chosen[nearest == number]
        # Equal descriptors, and clusters that k-means cannot split, are words above the last level.
        splits = levels > 1 and len(members) < len(chosen) and (descriptors[members] != centres[number]).any()
        nodes.append(_Node(parent, centres[number], None if splits else members))
        if splits:
            _split(nodes, len(nodes), descriptors, members, branching, levels - 1)


def _cluster(descriptors: NDArray[np.uint8], number: int) -> NDArray[np.uint8]:
    """Return at most `number` different centres (K, 32): majority votes of the bits of k-means clusters."""
    unique = np.unique(descriptors, axis=0)
    if len(unique) <= number:
        return unique
    signs = np.unpackbits(descriptors, axis=1).astype(np.float32) * 2 - 1
    sizes = {"min_points_per_centroid": 1, "max_points_per_centroid": len(signs)}
    means = faiss_library().Kmeans(BITS, number, niter=_ITERATIONS, seed=0, nredo=_RESTARTS, **sizes)
    means.train(signs)
    return np.unique(np.packbits(means.centroids >= 0, axis=1), axis=0)


def _nearest(descriptors: NDArray[np.uint8], centres: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the number of the nearest centre of each descriptor; DBoW2 also takes the first of equally near ones."""
    distances = hamming(torch.from_numpy(descriptors), torch.from_numpy(centres))
    nearest: NDArray[np.int64] = distances.numpy().argmin(axis=1)
    return nearest
