"""Label mining: which patches of one sequence may serve as distractors for each other.

Two different points of one scene may look the same (windows of a house), and to tell them apart teaches a network
nothing good. So a sequence is clustered by appearance, and only groups of distant clusters become distractors; the
others ignore each other (the paper's appendix C).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from doap.checks import check_choice, check_shape
from doap.data.hog import hog
from doap.data.sampler import GroupSource, Integers
from doap.errors import ArgumentError, MissingExtra, import_extra
from doap.images import resize_patches
from doap.random_streams import stream

Use = Literal["first", "all"]
HOG_FEATURES = 8 * 8 * 31
FEATURES = HOG_FEATURES + 16 * 16
RED, GREY = "tab:red", "0.6"


@dataclass(frozen=True)
class Mined:
    """Clusters of the groups of a whole source, and which clusters of a sequence look too much alike.

    Attributes:
        clusters: (G,) sequence·K + cluster of each group.
        tables: (sequences, K, K) bool, symmetric: groups of these two clusters ignore each other. A cluster ignores
            itself.
    """

    clusters: Integers
    tables: NDArray[np.bool_]

    def ignored(self, groups: Integers) -> NDArray[np.bool_]:
        """(g,) groups → (g, g) bool: these two ignore each other. Groups of different sequences never do."""
        sequence, cluster = np.divmod(self.clusters[groups], self.tables.shape[1])
        alike: NDArray[np.bool_] = self.tables[sequence[:, None], cluster[:, None], cluster]
        alike[sequence[:, None] != sequence] = False
        return alike


def mine(
    source: GroupSource, *, clusters: int = 100, percentile: float = 20.0, seed: int = 0, use: Use = "first"
) -> Mined:
    """Cluster each sequence by appearance; clusters no further apart than the percentile ignore each other.

    A group has one cluster, though the paper clusters patches: were the patches of a group in several, two groups
    would be distractors and ignore each other at once.

    Args:
        source: the groups.
        clusters: K; a sequence of fewer groups has fewer.
        percentile: of all distances between the cluster centres of a sequence, 0 to 100; higher ignores more.
        seed: the seed of the run.
        use: a group looks like its `first` patch, or like the mean of `all` of them.
    """
    check_choice(use, get_args(Use), name="use")
    if clusters < 1 or not 0 <= percentile <= 100:
        raise ArgumentError(
            f"clusters and percentile: expected 1 or more and 0 to 100, got {clusters} and {percentile}"
        )
    found = np.empty(len(source.count), dtype=np.int64)
    tables = np.zeros((len(source.scene_names), clusters, clusters), dtype=bool)
    for sequence in np.unique(source.scene_ids).tolist():
        groups = np.flatnonzero(source.scene_ids == sequence)
        features = _group_features(source, groups, use)
        number = min(clusters, len(groups))
        own, centres = _k_means(features, number, int(stream(seed, "mine", sequence).integers(2**31)))
        found[groups] = sequence * clusters + own
        tables[sequence, :number, :number] = _too_near(centres, percentile)
    return Mined(found, tables)


def mining_features(patches: NDArray[np.uint8]) -> NDArray[np.float32]:
    """What a patch looks like: HOG of its 64×64 version (1984 numbers), then its 16×16 pixels in 0…1 (256).

    The paper puts the two side by side. The range 0…1 sets their weights: over the patches of photographs the variance
    of the pixels is then about half that of the HOG, so structure and light both count. With 0…255 the clusters would
    be those of the pixels alone.

    Args:
        patches: (N, S, S).

    Returns:
        (N, 2240).
    """
    check_shape(patches, "N S S", name="patches")
    features = np.empty((len(patches), FEATURES), dtype=np.float32)
    # A part at a time, since the 64×64 floats of a large sequence take more memory than its features.
    for first in range(0, len(patches), 1024):
        rows = slice(first, first + 1024)
        bright = patches[rows] / np.float32(255)
        features[rows, :HOG_FEATURES] = hog(torch.from_numpy(resize_patches(bright, 64))).flatten(1)
        features[rows, HOG_FEATURES:] = resize_patches(bright, 16).reshape(len(bright), -1)
    return features


def _group_features(source: GroupSource, groups: Integers, use: Use) -> NDArray[np.float32]:
    if use == "first":
        return mining_features(source.gather(source.start[groups]))
    ranges = zip(source.start[groups], source.count[groups], strict=True)
    means = [mining_features(source.gather(np.arange(first, first + count))).mean(0) for first, count in ranges]
    return np.stack(means)


def _k_means(features: NDArray[np.float32], number: int, seed: int) -> tuple[Integers, NDArray[np.float32]]:
    """(n, D) → (n,) clusters and (number, D) centres."""
    faiss = import_extra("faiss", "index")
    # By default FAISS warns about clusters of few points, and leaves out points of large ones.
    k_means = faiss.Kmeans(
        features.shape[1], number, seed=seed, min_points_per_centroid=1, max_points_per_centroid=len(features)
    )
    k_means.train(features)
    return k_means.index.search(features, 1)[1][:, 0], np.asarray(k_means.centroids)


def _too_near(centres: NDArray[np.float32], percentile: float) -> NDArray[np.bool_]:
    """(k, D) → (k, k) bool: not further apart than the percentile of all distances between two centres."""
    distances = torch.pdist(torch.from_numpy(centres)).numpy()
    table = np.eye(len(centres), dtype=np.bool_)
    if len(distances):
        one, other = np.triu_indices(len(centres), 1)
        table[one, other] = table[other, one] = distances <= np.percentile(distances, percentile)
    return table


def draw_clusters(
    source: GroupSource,
    mined: Mined,
    sequence: int,
    out: Path,
    image: Path | None = None,
    *,
    number: int = 5,
    columns: int = 10,
    seed: int = 0,
) -> Path:
    """Draw random clusters of a sequence, one in a row, as the paper's appendix does.

    A red arrow joins two clusters whose patches are distractors for each other, a grey one clusters too much alike.

    Args:
        source: the groups.
        mined: their clusters.
        sequence: which sequence, a position in `source.scene_names`.
        out: the picture to write; its suffix says the format.
        image: a photograph of the sequence, drawn on the left.
        number: clusters drawn.
        columns: most patches of a cluster.
        seed: which clusters and patches.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.image import imread
    except ImportError as error:
        raise MissingExtra("matplotlib", "plot") from error
    if not 0 <= sequence < len(mined.tables):
        raise ArgumentError(f"sequence: expected 0 to {len(mined.tables) - 1}, got {sequence}")
    generator = stream(seed, "draw", sequence)
    groups = generator.permutation(np.flatnonzero(source.scene_ids == sequence))
    present = np.unique(mined.clusters[groups])
    chosen = generator.choice(present, min(number, len(present)), replace=False)
    rows = [groups[mined.clusters[groups] == cluster][:columns] for cluster in chosen]
    alike = mined.ignored(np.array([members[0] for members in rows], dtype=np.int64))

    # One unit is one patch, so that rows, arrows and the photograph share one system of coordinates.
    height = len(rows)
    photo = None if image is None else imread(image)
    left = 0.0 if photo is None else -0.4 - height * photo.shape[1] / photo.shape[0]
    right = columns + 0.2 + 0.3 * height
    figure = Figure(figsize=(0.8 * (right - left + 0.2), 0.8 * (height + 0.7)), dpi=150)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    if photo is not None:
        axes.imshow(photo, cmap="gray", extent=(left, -0.4, height - 0.04, 0.04))
    for row, members in enumerate(rows):
        for column, patch in enumerate(source.gather(source.start[members])):
            extent = (column + 0.04, column + 0.96, row + 0.96, row + 0.04)
            axes.imshow(patch, cmap="gray", vmin=0, vmax=255, extent=extent)
    for one, other in combinations(range(height), 2):
        colour = GREY if alike[one, other] else RED
        style = {"arrowstyle": "<|-|>", "connectionstyle": "arc3,rad=0.6", "color": colour, "linewidth": 1.5}
        axes.annotate("", (columns + 0.05, one + 0.6), (columns + 0.05, other + 0.4), arrowprops=style)
    title = f"{source.scene_names[sequence]}: {height} of {len(present)} clusters"
    for place, text, colour in (
        (0.04, title, "black"),
        (columns - 3, "distractors", RED),
        (columns - 1, "ignored", GREY),
    ):
        axes.text(place, height + 0.3, text, color=colour, va="center", fontsize=12)
    axes.set(xlim=(left - 0.1, right + 0.1), ylim=(height + 0.6, -0.1), aspect="equal")
    figure.savefig(out)
    return out
