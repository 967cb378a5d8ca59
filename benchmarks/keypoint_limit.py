"""How accurate would poses be if descriptors made no mistakes?

    python benchmarks/keypoint_limit.py SCENES TEST rootsift=0.85 doap-128=0.9 --out results/keypoint-limit.json

All descriptors are compared on the same keypoints. A point that is detected in only one of two images limits every
descriptor. To measure this limit, keypoints are matched by geometry: the matches of ALIKED + LightGlue give an affine
map around each keypoint, and two keypoints match if the maps in both directions agree with their positions, scales
and orientations. Poses are estimated from these matches and from those of descriptors, for the same pairs and with the
same settings as in the benchmark `pose`.

SCENES is the dataset of the benchmark, TEST the comma-separated scenes to use. Each descriptor has its ratio threshold.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import record
from numpy.typing import NDArray
from scipy.spatial import cKDTree

import doap
from doap.evaluation.candidates import open_candidate
from doap.evaluation.homography import area_under_recall
from doap.evaluation.pair_matcher import PairMatcher, SharedKeypoints
from doap.evaluation.pose import PoseBenchmark, band_of, pose_errors
from doap.evaluation.posed_scenes import PosedPair
from doap.images import angles, centres, frames_from_affine, scales
from doap.types import Matches

Floats = NDArray[np.float64]

PIPELINE = "aliked-lightglue"
NEIGHBOURS = 8
"""Number of the pipeline's matches that determine an affine map."""
REACH = 15.0
"""Distance in pixels at which the weight of a match is halved."""
MAX_DISTANCE = 50.0
"""Maximum distance in pixels to the fifth-nearest match."""
MAX_RESIDUAL = 2.0
"""Maximum residual of an affine map in pixels, root mean square."""
MAX_STRETCH = 4.0
"""Maximum ratio of the singular values of an affine map."""
CANDIDATES = 8
"""Number of keypoints to compare with a moved one."""
TOLERANCES = {"position": 3.0, "scale": 0.45, "orientation": 23.0}
"""Maximum differences of matching keypoints, in pixels, octaves and degrees."""


class GeometricMatcher(PairMatcher):
    """Match shared keypoints through the matches of a pipeline, without descriptors."""

    # One matcher exists until the end of the program. Geometry has no ratio test.
    @functools.cache  # noqa: B019
    def match(self, path0: Path, path1: Path, ratio: float | None = None) -> Matches:  # noqa: ARG002
        """Return matches of the shared keypoints."""
        frames0, frames1 = self.shared.keypoints(path0)[0], self.shared.keypoints(path1)[0]
        features0, features1 = self.features(path0), self.features(path1)
        matches = super().match(path0, path1)
        if len(matches) < NEIGHBOURS:
            return Matches(np.empty((0, 2), np.int64), np.empty(0, np.float32))
        xy0, xy1 = (xy.astype(np.float64) for xy in matches.points(features0, features1))
        forward, backward = nearest_moved(frames0, frames1, xy0, xy1), nearest_moved(frames1, frames0, xy1, xy0)
        matched = np.flatnonzero((forward >= 0) & (backward[forward] == np.arange(len(forward))))
        return Matches(np.stack([matched, forward[matched]], axis=1), np.ones(len(matched), np.float32))

    def matched_points(self, path0: Path, path1: Path, ratio: float | None = None) -> tuple[Floats, Floats]:
        """Return the positions (M, 2) of the matches in both images, in pixels."""
        matches = self.match(path0, path1, ratio).indices
        xy0, xy1 = (centres(self.shared.keypoints(path)[0]).astype(np.float64) for path in (path0, path1))
        return xy0[matches[:, 0]], xy1[matches[:, 1]]


def nearest_moved(
    frames0: NDArray[np.float32], frames1: NDArray[np.float32], xy0: Floats, xy1: Floats
) -> NDArray[np.int64]:
    """Move each frame (N, 2, 3) of image 0 to image 1 and return the most similar frame there (N,), or −1.

    Args:
        frames0, frames1: Frames of both images.
        xy0, xy1: (M, 2) matching points of both images, which determine the maps.
    """
    maps, reliable = local_maps(xy0, xy1, centres(frames0).astype(np.float64))
    usable = np.flatnonzero(reliable)
    moved = frames_from_affine(maps[usable, :, 2], maps[usable, :, :2] @ frames0[usable, :, :2])
    _, near = cKDTree(centres(frames1)).query(centres(moved), k=CANDIDATES, distance_upper_bound=TOLERANCES["position"])
    found, column = np.nonzero(near < len(frames1))
    candidate = near[found, column]
    turned = angles(frames1)[candidate] - angles(moved)[found]
    differences = {
        "position": np.linalg.norm(centres(frames1)[candidate] - centres(moved)[found], axis=1),
        "scale": np.abs(np.log2(scales(frames1)[candidate] / scales(moved)[found])),
        "orientation": np.abs((turned + 180) % 360 - 180),
    }
    relative = np.stack([differences[name] / limit for name, limit in TOLERANCES.items()])
    cost = np.full(near.shape, np.inf)
    cost[found, column] = np.where((relative < 1).all(0), np.square(relative).sum(0), np.inf)
    best = cost.argmin(axis=1)
    row = np.arange(len(usable))
    nearest = np.full(len(frames0), -1)
    nearest[usable] = np.where(np.isfinite(cost[row, best]), near[row, best], -1)
    return nearest


def local_maps(xy0: Floats, xy1: Floats, positions: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Fit an affine map to the matches around each position of image 0.

    Returns:
        Maps (N, 2, 3) from the offset to a position in image 0 to image 1, and whether each is reliable (N,).
    """
    distance, index = cKDTree(xy0).query(positions, k=NEIGHBOURS)
    weight = 1 / (1 + np.square(distance / REACH))
    offset = xy0[index] - positions[:, None]
    terms = np.concatenate([offset, np.ones((*offset.shape[:2], 1))], axis=2)
    weighted = terms * weight[:, :, None]
    # The small numbers on the diagonal make matches on a line solvable; such maps are not reliable.
    normal = weighted.transpose(0, 2, 1) @ terms + np.diag([1e-3, 1e-3, 0])
    solution = np.linalg.solve(normal, weighted.transpose(0, 2, 1) @ xy1[index])
    squared = np.square(terms @ solution - xy1[index]).sum(2)
    residual = np.sqrt((weight * squared).sum(1) / weight.sum(1))
    maps = solution.transpose(0, 2, 1)
    stretch = np.linalg.cond(maps[:, :, :2])
    orients = np.linalg.det(maps[:, :, :2]) > 0
    near = distance[:, NEIGHBOURS // 2] < MAX_DISTANCE
    return maps, near & orients & (stretch < MAX_STRETCH) & (residual < MAX_RESIDUAL)


def score(matcher: PairMatcher, ratio: float | None, pairs: Sequence[PosedPair]) -> dict[str, Any]:
    """Return the AUC@10 of a matcher, as the mean of the scenes and by scene, in per cent."""
    scenes = np.array([pair.scene for pair in pairs])
    errors = pose_errors(matcher, pairs, ratio)
    by_scene = {scene: 100 * area_under_recall(errors[scenes == scene], 10) for scene in np.unique(scenes).tolist()}
    return {"AUC@10": statistics.mean(by_scene.values()), "by scene": by_scene}


def found(
    matcher: PairMatcher, ratio: float, geometric: GeometricMatcher, pairs: Sequence[PosedPair]
) -> dict[str, float]:
    """Return the share of the geometric matches that a descriptor finds, by band of co-visibility."""
    bands: dict[str, list[tuple[int, int]]] = {}
    for pair in pairs:
        expected = set(map(tuple, geometric.match(*pair.paths, None).indices.tolist()))
        correct = expected.intersection(map(tuple, matcher.match(*pair.paths, ratio).indices.tolist()))
        bands.setdefault(band_of(pair) or "", []).append((len(correct), len(expected)))
    return {name: sum(c for c, _ in counts) / max(1, sum(e for _, e in counts)) for name, counts in bands.items()}


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("scenes", type=Path, help="dataset of the benchmark `pose`")
    parser.add_argument("test", help="comma-separated scenes")
    parser.add_argument("descriptors", nargs="+", help="descriptors with their ratio thresholds, such as doap-128=0.9")
    options = parser.parse_args()
    benchmark = PoseBenchmark(options.scenes, test=options.test, detector="colmap", max_keypoints=2048)
    settings, pairs = benchmark.settings, benchmark.test
    shared = SharedKeypoints(settings.detector, settings.max_keypoints)
    geometric = GeometricMatcher(open_candidate(doap.load(PIPELINE)), shared)
    counts = [len(geometric.match(*pair.paths, None)) for pair in pairs]
    rows = [{"matches of": "geometry", **score(geometric, None, pairs), "per pair": statistics.median(counts)}]
    for argument in options.descriptors:
        name, ratio = argument.split("=")
        matcher = PairMatcher(open_candidate(doap.load(name)), shared)
        scores = score(matcher, float(ratio), pairs)
        rows.append({"matches of": Path(name).stem, **scores, "found": found(matcher, float(ratio), geometric, pairs)})
        print(rows[-1], flush=True)
    record.write(options.out, options.seed, {"protocol": benchmark.protocol, "rows": rows})


if __name__ == "__main__":
    main()
