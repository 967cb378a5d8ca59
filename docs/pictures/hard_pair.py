"""Draw the image pair of the README: `python docs/pictures/hard_pair.py PHOTOS POSES`.

PHOTOS is the folder of the project's photos and POSES the CSV file with their ground-truth cameras; neither is part of
the repository. RootSIFT and doap-128 describe the same SIFT keypoints. Matches are mutual nearest neighbours, verified
with a fundamental matrix (MAGSAC). The script writes hard_pair.jpg and results/hard-pair.json.

MAGSAC is randomised, so the script also runs it on shuffled matches. The ground truth has no focal lengths; the script
uses the pair of focal lengths with the largest number of consistent matches of both descriptors.
"""

from __future__ import annotations

import csv
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

import doap
from doap.images import draw_matches, read_grey

HERE = Path(__file__).parent
PAIR = ("taj_mahal/016.jpg", "taj_mahal/035.jpg")
DESCRIPTORS = {"RootSIFT": "rootsift", "doap-128": "doap-128"}
PHOTO_SIDE, JPEG_QUALITY = 560, 82
ORDERS, TOLERANCE = 100, 10.0
Floats = NDArray[np.float64]


def main() -> None:
    """Match the pair, compare it with the ground truth, and write the picture and the numbers."""
    photos, poses = (Path(argument) for argument in sys.argv[1:3])
    images = [read_grey(photos / name) for name in PAIR]
    matched = {name: match(images, source) for name, source in DESCRIPTORS.items()}
    truth = fundamental_matrix(poses, [image.shape for image in images], [points for points, _ in matched.values()])
    results, pictures = {}, []
    for name, (points, features) in matched.items():
        inliers = verify(features, np.arange(len(points[0])))
        errors = epipolar_distance(truth, *points)
        correct = int((errors[inliers] < TOLERANCE).sum())
        agreement = [correct_share(features, errors, seed) for seed in range(ORDERS)]
        results[name] = {
            "matches": len(errors),
            "inliers": int(inliers.sum()),
            f"inliers within {TOLERANCE:g} px of the true epipolar lines": correct,
            f"correct geometries in {ORDERS} random orders of the matches": sum(one > 0.7 for one in agreement),
        }
        title = f"{name}: {len(errors):,} matches · {inliers.sum():,} inliers, {correct} correct"
        keypoints = [one.keypoints for one in features[:2]]
        pictures.append(draw_matches(*images, *keypoints, features[2].indices, inliers, title, longest_side=PHOTO_SIDE))
    cv2.imwrite(str(HERE / "hard_pair.jpg"), np.vstack(pictures), [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    settings = {"pair": PAIR, "detector": "sift", "max_keypoints": 2048, "threshold": 1.5, "model": "fundamental"}
    text = json.dumps({"command": "python docs/pictures/hard_pair.py PHOTOS POSES", **settings, **results}, indent=1)
    (HERE.parents[1] / "results" / "hard-pair.json").write_text(text + "\n", encoding="utf-8")


def match(images: list[NDArray[np.uint8]], source: str) -> tuple[tuple[Floats, Floats], Any]:
    """Return the matched points of both images, and their features with the matches."""
    # In float32, the result does not depend on the hardware.
    descriptor = doap.load(source, device="cpu", precision="float32")
    features0, features1 = (doap.extract(image, descriptor) for image in images)
    matches = doap.match(features0, features1)
    points = matches.points(features0, features1)
    return points, (features0, features1, matches)


def verify(features: Any, order: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which matches are inliers, if they are passed to MAGSAC in this order."""
    features0, features1, matches = features
    inliers = np.zeros(len(matches), bool)
    shuffled = doap.Matches(matches.indices[order], matches.scores[order])
    inliers[order] = doap.verify(features0, features1, shuffled).inliers
    return inliers


def correct_share(features: Any, errors: Floats, seed: int) -> float:
    """Return the share of inliers that agree with the ground truth, for a random order of the matches."""
    inliers = verify(features, np.random.default_rng(seed).permutation(len(errors)))
    return float((errors[inliers] < TOLERANCE).mean()) if inliers.any() else 0.0


def fundamental_matrix(poses: Path, sizes: list[tuple[int, ...]], points: list[tuple[Floats, Floats]]) -> Floats:
    """Return the fundamental matrix of the true cameras, with the focal lengths that fit the matches best."""
    with poses.open(encoding="utf-8") as file:
        rows = {row["file"]: row for row in csv.DictReader(file)}
    rotations = [numbers(rows[name]["rotation_matrix"]).reshape(3, 3) for name in PAIR]
    translations = [numbers(rows[name]["translation_vector"]) for name in PAIR]
    rotation = rotations[1] @ rotations[0].T
    x, y, z = translations[1] - rotation @ translations[0]
    essential = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) @ rotation
    candidates = []
    for focal0, focal1 in itertools.product(np.geomspace(0.6, 4, 24), repeat=2):
        inverse0, inverse1 = inverse_camera(sizes[0], focal0), inverse_camera(sizes[1], focal1)
        candidates.append(inverse1.T @ essential @ inverse0)
    return max(candidates, key=lambda one: sum((epipolar_distance(one, *pair) < 2).sum() for pair in points))


def inverse_camera(size: tuple[int, ...], focal: float) -> Floats:
    """Return the inverse camera matrix; the focal length is in units of the longer side of the image."""
    height, width = size
    length = focal * max(size)
    return np.linalg.inv(np.array([[length, 0, (width - 1) / 2], [0, length, (height - 1) / 2], [0, 0, 1]]))


def epipolar_distance(matrix: Floats, points0: Floats, points1: Floats) -> Floats:
    """Return the Sampson distances (M,) of matched points (M, 2) in pixels."""
    x0, x1 = (np.column_stack([points, np.ones(len(points))]) for points in (points0, points1))
    lines1, lines0 = x0 @ matrix.T, x1 @ matrix
    return np.abs((x1 * lines1).sum(axis=1)) / np.sqrt((lines0[:, :2] ** 2 + lines1[:, :2] ** 2).sum(axis=1))


def numbers(text: str) -> Floats:
    """Parse numbers separated by semicolons."""
    return np.array([float(value) for value in text.split(";")])


if __name__ == "__main__":
    main()
