"""Find out why homographies from wide patches are less exact, on planar sequences of the split `val`.

    python tools/validation_sequences.py PHOTOS SEQUENCES --each 5
    python benchmarks/exactness.py SEQUENCES --out results/exactness.json

One setting is changed at a time: patch width, ratio test, share of the matches with the smallest distances, inlier
threshold of MAGSAC++, and guided matching, which matches again close to where the first homography maps each keypoint.
For each, the matches are counted by their distance from the true position, and the area under the cumulative corner
error gives the exactness of the homography. Differences from RootSIFT are paired, and intervals resample sequences.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import record
import torch
from numpy.typing import NDArray

import doap
from doap.describer import Describer
from doap.detectors import colmap
from doap.evaluation.bootstrap import bootstrap_interval, central_interval
from doap.evaluation.homography import area_under_recall, corner_error, project, reprojection_errors
from doap.evaluation.image_pair import ImagePair
from doap.evaluation.oxford import OxfordBenchmark
from doap.functional import table_distances
from doap.geometry import estimate_geometry
from doap.images import centres, resize_frames
from doap.matching import match_descriptors
from doap.pipeline import describe_frames

MAX_KEYPOINTS = 2000
NEAR = 5.0
"""Guided matching: distance in pixels from the predicted position within which a match is sought."""
BINS = (0, 1, 3, 10, np.inf)


@dataclass(frozen=True)
class Setting:
    """One way to get from descriptors to a homography."""

    descriptor: str
    extent: float = 1.0
    ratio: float = 1.0
    share: float = 1.0
    threshold: float = 3.0
    guided: bool = False


def settings() -> list[Setting]:
    """Return the baseline of each descriptor and one change at a time."""
    rows = []
    for name in ("rootsift", "doap-128"):
        base = Setting(name)
        widths = (1.5,) if name == "rootsift" else (2 / 3,)
        rows += [base, *(replace(base, extent=width) for width in widths)]
        rows += [replace(base, ratio=ratio) for ratio in (0.95, 0.9, 0.85, 0.8)]
        rows += [replace(base, share=share) for share in (0.75, 0.5, 0.25)]
        rows += [replace(base, threshold=threshold) for threshold in (1.5, 1.0, 0.5)]
        rows += [replace(base, guided=True), replace(base, guided=True, threshold=1.0)]
        rows += [replace(base, ratio=0.9, threshold=1.0), replace(base, ratio=0.85, threshold=1.0)]
    return rows


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("sequences", type=Path, help="folder of tools/validation_sequences.py")
    options = parser.parse_args()
    torch.set_num_threads(1)
    benchmark = OxfordBenchmark(options.sequences, detector=colmap(), max_keypoints=MAX_KEYPOINTS)
    names = np.array([pair.sequence for pair in benchmark.pairs])
    described: dict[tuple[str, float, int], torch.Tensor] = {}
    rows, reference = [], None
    for setting in settings():
        measured = [measure(pair, setting, described) for pair in benchmark.pairs]
        corners = np.array([row[0] for row in measured])
        counts = np.mean([row[1] for row in measured], axis=0)
        areas = {limit: area(corners, names, limit, options.seed) for limit in (1, 3)}
        reference = reference or areas
        row = {
            **vars(setting),
            "matches within 1, 3, 10 px and beyond": counts.round(1).tolist(),
            **{f"AUC@{limit}": round(100 * found.value, 2) for limit, found in areas.items()},
            **{f"AUC@{limit} minus RootSIFT": difference(areas[limit], reference[limit]) for limit in areas},
        }
        rows.append(row)
        print(row, flush=True)
        record.write(options.out, options.seed, {"pairs": len(names), "sequences": len(set(names)), "rows": rows})


def measure(
    pair: ImagePair, setting: Setting, described: dict[tuple[str, float, int], torch.Tensor]
) -> tuple[float, NDArray[np.int64]]:
    """Return the corner error of a pair, and the number of matches in each of `BINS`."""
    first, second = (describe(photo, setting, described) for photo in pair.photos)
    ratio = None if setting.ratio == 1 else setting.ratio
    matches, distances = (found.numpy() for found in match_descriptors(first, second, ratio=ratio))
    nearest = np.sort(distances.argsort(kind="stable")[: round(setting.share * len(distances))])
    matches = matches[nearest]
    points0, points1 = (centres(photo.frames) for photo in pair.photos)
    found = fit(points0, points1, matches, setting.threshold)
    if setting.guided and found is not None:
        matches = guided_matches(points0, points1, first, second, found)
        found = fit(points0, points1, matches, setting.threshold)
    errors = reprojection_errors(points0[matches[:, 0]], points1[matches[:, 1]], pair.homography)
    height, width = pair.photos[0].image.shape
    return corner_error(found, pair.homography, (height, width)), np.histogram(errors, BINS)[0]


def describe(photo: Any, setting: Setting, described: dict[tuple[str, float, int], torch.Tensor]) -> torch.Tensor:
    """Describe the keypoints of a photo at a patch width, once."""
    key = setting.descriptor, setting.extent, id(photo)
    if key not in described:
        frames = resize_frames(photo.frames, setting.extent)
        described[key] = describe_frames(photo.image, frames, load(setting.descriptor))
    return described[key]


@cache
def load(name: str) -> Describer:
    """Load a descriptor once."""
    return doap.load(name, precision="float32")


def fit(points0: Any, points1: Any, matches: Any, threshold: float) -> NDArray[np.float64] | None:
    """Fit a homography to the matches."""
    geometry = estimate_geometry(points0[matches[:, 0]], points1[matches[:, 1]], "homography", threshold=threshold)
    return geometry.matrix


def guided_matches(
    points0: Any, points1: Any, first: torch.Tensor, second: torch.Tensor, homography: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Match mutual nearest neighbours among the keypoints within `NEAR` pixels of the predicted position."""
    predicted = project(points0.astype(np.float64), homography)
    apart = np.linalg.norm(predicted[:, None] - points1[None], axis=2)
    distances = table_distances(first, second).numpy().copy()
    distances[apart > NEAR] = np.inf
    best = distances.argmin(axis=1)
    rows = np.arange(len(best))
    mutual = (distances.argmin(axis=0)[best] == rows) & np.isfinite(distances[rows, best])
    return np.column_stack([rows[mutual], best[mutual]])


def area(corners: NDArray[np.float64], names: NDArray[np.str_], limit: float, seed: int) -> Any:
    """Return the area under the cumulative corner error, with resamples of sequences."""

    def statistic(weights: NDArray[np.float64]) -> float:
        return area_under_recall(np.repeat(corners, weights.astype(int)), limit)

    return bootstrap_interval(statistic, len(corners), seed, clusters=names, resamples=1000)


def difference(one: Any, other: Any) -> list[float]:
    """Return the difference in points, with its 95 % interval."""
    low, high = central_interval(np.subtract(one.resampled, other.resampled))
    return [round(100 * value, 2) for value in (one.value - other.value, low, high)]


if __name__ == "__main__":
    main()
