"""Label mining (paper, appendix C): which patches of one scene are distractors for each other.

Different points of a scene may look the same, such as the windows of a building, and a network should not learn to
distinguish them. The patches of a scene are clustered by appearance. Only patches of distant clusters are distractors
for each other; the others ignore each other unless they show the same point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from doap._support.errors import ArgumentError, import_extra
from doap._support.random_streams import stream
from doap.data.sampler import GroupSource, Integers
from doap.images import resize_patches

HOG_FEATURES = 8 * 8 * 31
FEATURES = HOG_FEATURES + 16 * 16
UNSIGNED = 9
CLAMP = 0.2
PATCHES_AT_ONCE = 64
PATCHES_PER_CLUSTER = 256
"""Patches of a scene that K-means sees, times the number of clusters; it then assigns all patches."""
PATCHES_TO_ASSIGN = 4096


@dataclass(frozen=True)
class Mined:
    """Appearance clusters of all patches of a source, and which clusters of a scene are too similar.

    Attributes:
        clusters: (N,) scene·K + cluster of each patch.
        tables: (scenes, K, K) bool, symmetric: patches of these two clusters ignore each other. Patches of the same
            cluster always do.
    """

    clusters: Integers
    tables: NDArray[np.bool_]

    def ignored(self, clusters: Integers) -> NDArray[np.bool_]:
        """Return (c, c) bool for clusters (c,): True if their patches ignore each other; never for different scenes."""
        scene, cluster = np.divmod(clusters, self.tables.shape[1])
        similar: NDArray[np.bool_] = self.tables[scene[:, None], cluster[:, None], cluster]
        similar[scene[:, None] != scene] = False
        return similar


def mine(source: GroupSource, *, clusters: int = 100, percentile: float = 20.0, seed: int = 0) -> Mined:
    """Cluster the patches of each scene by appearance; clusters closer than a percentile ignore each other.

    Args:
        source: The groups.
        clusters: K, the number of clusters per scene; at most the number of its patches.
        percentile: Percentile of the distances between the cluster centres of a scene, 0 to 100; higher ignores more.
        seed: Seed of the run.
    """
    if clusters < 1 or not 0 <= percentile <= 100:
        raise ArgumentError(
            f"clusters and percentile: expected 1 or more and 0 to 100, got {clusters} and {percentile}"
        )
    scene_of_patch = np.repeat(source.scene_ids, source.count)
    cluster_ids = np.empty(len(scene_of_patch), dtype=np.int64)
    tables = np.zeros((len(source.scene_names), clusters, clusters), dtype=bool)
    for scene in np.unique(source.scene_ids).tolist():
        patches = np.flatnonzero(scene_of_patch == scene)
        number = min(clusters, len(patches))
        generator = stream(seed, "mine", scene)
        sample = np.sort(generator.permutation(patches)[: number * PATCHES_PER_CLUSTER])
        centres = _k_means(mining_features(source.gather(sample)), number, int(generator.integers(2**31)))
        for part in np.split(patches, range(PATCHES_TO_ASSIGN, len(patches), PATCHES_TO_ASSIGN)):
            distances = torch.cdist(torch.from_numpy(mining_features(source.gather(part))), torch.from_numpy(centres))
            cluster_ids[part] = scene * clusters + distances.argmin(1).numpy()
        tables[scene, :number, :number] = _too_near(centres, percentile)
    return Mined(cluster_ids, tables)


def mining_features(patches: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return appearance features: HOG of the patch at 64×64 (1984 values) and its pixels at 16×16 in 0…1 (256 values).

    The paper concatenates the two. The range 0…1 determines their weights: the variance of the pixels is then about
    half that of the HOG, so both structure and brightness count. With 0…255 the pixels would dominate.
    Patches (N, S, S) give features (N, 2240).
    """
    features = np.empty((len(patches), FEATURES), dtype=np.float32)
    # In parts, because the 64×64 floats of a large scene need more memory than its features.
    for first in range(0, len(patches), 1024):
        rows = slice(first, first + 1024)
        bright = patches[rows] / np.float32(255)
        features[rows, :HOG_FEATURES] = hog(torch.from_numpy(resize_patches(bright, 64))).flatten(1).numpy()
        features[rows, HOG_FEATURES:] = resize_patches(bright, 16).reshape(len(bright), -1)
    return features


def _k_means(features: NDArray[np.float32], number: int, seed: int) -> NDArray[np.float32]:
    """Cluster features (n, D); return centres (number, D)."""
    faiss = import_extra("faiss", "index")
    # By default FAISS warns about clusters with few points and subsamples large ones.
    k_means = faiss.Kmeans(
        features.shape[1], number, seed=seed, min_points_per_centroid=1, max_points_per_centroid=len(features)
    )
    k_means.train(features)
    return np.asarray(k_means.centroids)


def _too_near(centres: NDArray[np.float32], percentile: float) -> NDArray[np.bool_]:
    """Return (k, k) bool for centres (k, D): True if their distance is at most the percentile of all distances."""
    distances = torch.pdist(torch.from_numpy(centres)).numpy()
    table = np.eye(len(centres), dtype=np.bool_)
    if len(distances):
        one, other = np.triu_indices(len(centres), 1)
        table[one, other] = table[other, one] = distances <= np.percentile(distances, percentile)
    return table


def hog(patches: Tensor, cell: int = 8) -> Tensor:
    """Return histograms of oriented gradients in the variant of Felzenszwalb et al. (UoCTTI), for each cell of a patch.

    h_o is the gradient energy of the cell in direction o·20°. n_b is the norm of the unsigned energies in block b, one
    of the four blocks of 2×2 cells that contain the cell:

        signed o    ½ Σ_b min(h_o / n_b, 0.2)
        unsigned o  ½ Σ_b min((h_o + h_{o+9}) / n_b, 0.2)
        texture b   1/√18 Σ_o min(h_o / n_b, 0.2)

    Blocks that extend beyond the border repeat the cells at the border. A flat patch has zeros.

    Args:
        patches: (N, S, S), S a multiple of `cell`; any range of values, because gain and offset cancel.
        cell: Side of a cell in pixels.

    Returns:
        (N, 31, S/cell, S/cell) float32: 18 signed and 9 unsigned orientations, and 4 texture energies.
    """
    return torch.cat([_features(_cells(part.float(), cell)) for part in patches.split(PATCHES_AT_ONCE)])


def _cells(patches: Tensor, cell: int) -> Tensor:
    """Gradient magnitudes by direction, shared bilinearly among cells: (N, S, S) → (N, 18, S/cell, S/cell)."""
    side = patches.shape[-1]
    # The outermost pixels have a neighbour on one side only and get no gradient.
    dx = pad(patches[:, 1:-1, 2:] - patches[:, 1:-1, :-2], (1, 1, 1, 1))
    dy = pad(patches[:, 2:, 1:-1] - patches[:, :-2, 1:-1], (1, 1, 1, 1))
    # 90° is midway between two directions. Rounded from float64, their sines are equal, and argmax takes the first.
    angle = torch.arange(UNSIGNED, dtype=torch.float64).view(-1, 1, 1) * (math.pi / UNSIGNED)
    cosine, sine = angle.cos().to(patches), angle.sin().to(patches)
    along = dx[:, None] * cosine + dy[:, None] * sine
    nearest = along.abs().argmax(1, keepdim=True)
    nearest += UNSIGNED * (along.gather(1, nearest) < 0)
    energy = patches.new_zeros(len(patches), 2 * UNSIGNED, side, side)
    energy.scatter_(1, nearest, torch.hypot(dx, dy)[:, None])
    # The centre of cell c is at pixel (c + ½)·cell − ½. The share of a pixel falls to 0 at a distance of one cell.
    position = (torch.arange(side, device=patches.device) + 0.5) / cell - 0.5
    centres = torch.arange(side // cell, device=patches.device)
    share = (1 - (position - centres[:, None]).abs()).clamp(min=0)
    return share @ energy @ share.T


def _features(cells: Tensor) -> Tensor:
    """Features normalised by the four blocks around each cell: (N, 18, H, W) → (N, 31, H, W)."""
    height, width = cells.shape[-2:]
    unsigned = cells[:, :UNSIGNED] + cells[:, UNSIGNED:]
    squares = pad(unsigned.square().sum(1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    blocks = squares[..., :-1, :-1] + squares[..., :-1, 1:] + squares[..., 1:, :-1] + squares[..., 1:, 1:]
    # The constant is far below the energy of one grey level in 255; it only avoids 0/0 in flat blocks.
    scale = (blocks + 1e-10).rsqrt()
    around = [scale[..., y : y + height, x : x + width] for y in (0, 1) for x in (0, 1)]
    signed = torch.stack([(cells * one).clamp(max=CLAMP) for one in around], dim=1)
    merged = torch.stack([(unsigned * one).clamp(max=CLAMP) for one in around], dim=1)
    return torch.cat([signed.sum(1) / 2, merged.sum(1) / 2, signed.sum(2) / math.sqrt(2 * UNSIGNED)], dim=1)
