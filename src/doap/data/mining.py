"""Label mining (paper, appendix C): which groups of one scene are distractors for each other.

Different points of a scene may look the same, such as the windows of a building, and a network should not learn to
distinguish them. The groups of a scene are clustered by appearance. Only groups of distant clusters are distractors for
each other; the others ignore each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from doap._support.checks import check_choice, check_shape
from doap._support.errors import ArgumentError, MissingExtra, import_extra
from doap._support.random_streams import stream
from doap.data.hog import hog
from doap.data.sampler import GroupSource, Integers
from doap.images import resize_patches

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Use = Literal["first", "all"]
HOG_FEATURES = 8 * 8 * 31
FEATURES = HOG_FEATURES + 16 * 16
RED, GREY = "tab:red", "0.6"


@dataclass(frozen=True)
class Mined:
    """Appearance clusters of all groups of a source, and which clusters of a scene are too similar.

    Attributes:
        clusters: (G,) scene·K + cluster of each group.
        tables: (scenes, K, K) bool, symmetric: groups of these two clusters ignore each other. Groups of the same
            cluster always do.
    """

    clusters: Integers
    tables: NDArray[np.bool_]

    def ignored(self, groups: Integers) -> NDArray[np.bool_]:
        """Return (g, g) bool for groups (g,): True if two groups ignore each other; never for different scenes."""
        scene, cluster = np.divmod(self.clusters[groups], self.tables.shape[1])
        similar: NDArray[np.bool_] = self.tables[scene[:, None], cluster[:, None], cluster]
        similar[scene[:, None] != scene] = False
        return similar


def mine(
    source: GroupSource, *, clusters: int = 100, percentile: float = 20.0, seed: int = 0, use: Use = "first"
) -> Mined:
    """Cluster the groups of each scene by appearance; clusters closer than a percentile ignore each other.

    The paper clusters patches. Here each group has one cluster, by default that of its first patch, because two groups
    whose patches are in several clusters could be distractors and ignore each other at the same time.

    Args:
        source: The groups.
        clusters: K, the number of clusters per scene; at most the number of its groups.
        percentile: Percentile of the distances between the cluster centres of a scene, 0 to 100; higher ignores more.
        seed: Seed of the run.
        use: Appearance of a group: its `first` patch, or the mean of `all` its patches.
    """
    check_choice(use, get_args(Use), name="use")
    if clusters < 1 or not 0 <= percentile <= 100:
        raise ArgumentError(
            f"clusters and percentile: expected 1 or more and 0 to 100, got {clusters} and {percentile}"
        )
    cluster_ids = np.empty(len(source.count), dtype=np.int64)
    tables = np.zeros((len(source.scene_names), clusters, clusters), dtype=bool)
    for scene in np.unique(source.scene_ids).tolist():
        groups = np.flatnonzero(source.scene_ids == scene)
        features = _group_features(source, groups, use)
        number = min(clusters, len(groups))
        assigned, centres = _k_means(features, number, int(stream(seed, "mine", scene).integers(2**31)))
        cluster_ids[groups] = scene * clusters + assigned
        tables[scene, :number, :number] = _too_near(centres, percentile)
    return Mined(cluster_ids, tables)


def mining_features(patches: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return appearance features: HOG of the patch at 64×64 (1984 values) and its pixels at 16×16 in 0…1 (256 values).

    The paper concatenates the two. The range 0…1 determines their weights: the variance of the pixels is then about
    half that of the HOG, so both structure and brightness count. With 0…255 the pixels would dominate.

    Args:
        patches: (N, S, S) uint8.

    Returns:
        (N, 2240).
    """
    check_shape(patches, "N S S", name="patches")
    features = np.empty((len(patches), FEATURES), dtype=np.float32)
    # In parts, because the 64×64 floats of a large scene need more memory than its features.
    for first in range(0, len(patches), 1024):
        rows = slice(first, first + 1024)
        bright = patches[rows] / np.float32(255)
        features[rows, :HOG_FEATURES] = hog(torch.from_numpy(resize_patches(bright, 64))).flatten(1).numpy()
        features[rows, HOG_FEATURES:] = resize_patches(bright, 16).reshape(len(bright), -1)
    return features


def _group_features(source: GroupSource, groups: Integers, use: Use) -> NDArray[np.float32]:
    if use == "first":
        return mining_features(source.gather(source.start[groups]))
    ranges = zip(source.start[groups], source.count[groups], strict=True)
    means = [mining_features(source.gather(np.arange(first, first + count))).mean(0) for first, count in ranges]
    return np.stack(means)


def _k_means(features: NDArray[np.float32], number: int, seed: int) -> tuple[Integers, NDArray[np.float32]]:
    """Cluster features (n, D); return clusters (n,) and centres (number, D)."""
    faiss = import_extra("faiss", "index")
    # By default FAISS warns about clusters with few points and subsamples large ones.
    k_means = faiss.Kmeans(
        features.shape[1], number, seed=seed, min_points_per_centroid=1, max_points_per_centroid=len(features)
    )
    k_means.train(features)
    return k_means.index.search(features, 1)[1][:, 0], np.asarray(k_means.centroids)


def _too_near(centres: NDArray[np.float32], percentile: float) -> NDArray[np.bool_]:
    """Return (k, k) bool for centres (k, D): True if their distance is at most the percentile of all distances."""
    distances = torch.pdist(torch.from_numpy(centres)).numpy()
    table = np.eye(len(centres), dtype=np.bool_)
    if len(distances):
        one, other = np.triu_indices(len(centres), 1)
        table[one, other] = table[other, one] = distances <= np.percentile(distances, percentile)
    return table


def draw_clusters(
    source: GroupSource,
    mined: Mined,
    scene: int,
    out: Path,
    image: Path | None = None,
    *,
    number: int = 5,
    columns: int = 10,
    seed: int = 0,
) -> Path:
    """Draw random clusters of a scene, one per row, as in the paper's appendix.

    A red arrow connects two clusters whose patches are distractors for each other, a grey one two similar clusters.

    Args:
        source: The groups.
        mined: Their clusters.
        scene: Index of the scene in `source.scene_names`.
        out: Image file to write; its suffix selects the format.
        image: Photograph of the scene, drawn on the left.
        number: Maximum number of clusters.
        columns: Maximum number of patches per cluster.
        seed: Seed of the choice of clusters and patches.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.image import imread
    except ImportError as error:
        raise MissingExtra("matplotlib", "plot") from error
    if not 0 <= scene < len(mined.tables):
        raise ArgumentError(f"scene: expected 0 to {len(mined.tables) - 1}, got {scene}")
    generator = stream(seed, "draw", scene)
    groups = generator.permutation(np.flatnonzero(source.scene_ids == scene))
    present = np.unique(mined.clusters[groups])
    chosen = generator.choice(present, min(number, len(present)), replace=False)
    rows = [groups[mined.clusters[groups] == cluster][:columns] for cluster in chosen]
    similar = mined.ignored(np.array([members[0] for members in rows], dtype=np.int64))

    # One unit is one patch, so rows, arrows and the photograph share one coordinate system.
    height = len(rows)
    photo = None if image is None else imread(image)
    left = 0.0 if photo is None else -0.4 - height * photo.shape[1] / photo.shape[0]
    right = columns + 0.2 + 0.3 * height
    figure = Figure(figsize=(0.8 * (right - left + 0.2), 0.8 * (height + 0.7)), dpi=150)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    if photo is not None:
        axes.imshow(photo, cmap="gray", extent=(left, -0.4, height - 0.04, 0.04))
    _draw_rows(axes, source, rows)
    _draw_arrows(axes, similar, columns)
    title = f"{source.scene_names[scene]}: {height} of {len(present)} clusters"
    axes.text(0.04, height + 0.3, title, color="black", va="center", fontsize=12)
    axes.set(xlim=(left - 0.1, right + 0.1), ylim=(height + 0.6, -0.1), aspect="equal")
    figure.savefig(out)
    return out


def _draw_rows(axes: Axes, source: GroupSource, rows: list[Integers]) -> None:
    for row, members in enumerate(rows):
        for column, patch in enumerate(source.gather(source.start[members])):
            extent = (column + 0.04, column + 0.96, row + 0.96, row + 0.04)
            axes.imshow(patch, cmap="gray", vmin=0, vmax=255, extent=extent)


def _draw_arrows(axes: Axes, similar: NDArray[np.bool_], columns: int) -> None:
    for first, second in combinations(range(len(similar)), 2):
        colour = GREY if similar[first, second] else RED
        style = {"arrowstyle": "<|-|>", "connectionstyle": "arc3,rad=0.6", "color": colour, "linewidth": 1.5}
        axes.annotate("", (columns + 0.05, first + 0.6), (columns + 0.05, second + 0.4), arrowprops=style)
    for x, text, colour in ((columns - 3, "distractors", RED), (columns - 1, "ignored", GREY)):
        axes.text(x, len(similar) + 0.3, text, color=colour, va="center", fontsize=12)
