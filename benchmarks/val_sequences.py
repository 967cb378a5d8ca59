"""Sequences like Oxford's, of photos that may be chosen on: what weights are compared by before Oxford is looked at.

    python benchmarks/val_sequences.py PHOTOS SEQUENCES
    doap eval rootsift a.safetensors b.safetensors oxford SEQUENCES --detector colmap --out RESULTS

PHOTOS is a folder with the ledger of `doap data from-images`; only its photos of the split `val` are taken. Each photo
becomes one sequence of six images, of a kind that Oxford has: viewpoint, zoom and rotation, blur, light or JPEG, each
in five strengths. Every image gets noise of its own, as every exposure does.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.images.synthetic_views import warp

KINDS = ("viewpoint", "zoom", "blur", "light", "jpeg")
STRENGTHS = 5
Image = NDArray[np.uint8]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("sequences", type=Path)
    parser.add_argument("--each", type=int, default=3, help="photos of each kind")
    options = parser.parse_args()
    with (options.photos / "LEDGER.csv").open() as ledger:
        photos = [options.photos / row["file"] for row in csv.DictReader(ledger) if row["split"] == "val"]
    random = np.random.default_rng(0)
    chosen = random.permutation(len(photos))[: options.each * len(KINDS)]
    for number, photo in enumerate(chosen):
        kind = KINDS[number % len(KINDS)]
        folder = options.sequences / f"{kind}{number // len(KINDS) + 1}"
        folder.mkdir(parents=True, exist_ok=True)
        image = cv2.imread(str(photos[photo]), cv2.IMREAD_GRAYSCALE)
        cv2.imwrite(str(folder / "img1.png"), exposed(image, random))
        for strength in range(1, STRENGTHS + 1):
            changed, homography = change(image, kind, strength / STRENGTHS, random)
            cv2.imwrite(str(folder / f"img{strength + 1}.png"), exposed(changed, random))
            np.savetxt(folder / f"H1to{strength + 1}p", homography)


def change(image: Image, kind: str, strength: float, random: np.random.Generator) -> tuple[Image, NDArray[np.float64]]:
    """The image as it is seen after a change of one kind, 0 < strength ≤ 1, and the homography to it."""
    height, width = image.shape
    if kind == "viewpoint":
        homography = tilted(image.shape, np.radians(60 * strength), random.uniform(0, 2 * np.pi))
        return warp(image, homography), homography
    if kind == "zoom":
        turn = random.uniform(-180, 180)
        homography = np.vstack(
            [cv2.getRotationMatrix2D((width / 2, height / 2), turn, 2 ** (-1.5 * strength)), [0, 0, 1]]
        )
        return warp(image, homography), homography
    if kind == "blur":
        return np.asarray(cv2.GaussianBlur(image, (0, 0), 4 * strength), np.uint8), np.eye(3)
    if kind == "light":
        return np.rint(image * (1 - 0.75 * strength)).astype(np.uint8), np.eye(3)
    _, coded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, round(2 + 40 * (1 - strength) ** 2)])
    return np.asarray(cv2.imdecode(coded, cv2.IMREAD_GRAYSCALE), np.uint8), np.eye(3)


def tilted(shape: tuple[int, ...], tilt: float, axis: float) -> NDArray[np.float64]:
    """The homography of a photo as a plane, tilted about an axis through its middle."""
    height, width = shape
    reach = 2 * float(np.hypot(height, width))
    cos, sin = np.cos(axis), np.sin(axis)
    turn = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
    slant = np.array([[np.cos(tilt), 0, 0], [0, 1, 0], [np.sin(tilt) / reach, 0, 1]])
    middle = np.array([[1, 0, width / 2], [0, 1, height / 2], [0, 0, 1]])
    return np.asarray(middle @ turn @ slant @ turn.T @ np.linalg.inv(middle))


def exposed(image: Image, random: np.random.Generator) -> Image:
    noisy = image + random.normal(0, 2, image.shape)
    return np.clip(np.rint(noisy), 0, 255).astype(np.uint8)


if __name__ == "__main__":
    main()
