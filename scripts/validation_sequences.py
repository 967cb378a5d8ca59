"""Make Oxford-like sequences from validation photos, to compare weights without using Oxford.

    python scripts/validation_sequences.py PHOTOS SEQUENCES
    doap eval rootsift a.safetensors b.safetensors oxford SEQUENCES --detector colmap --out RESULTS

PHOTOS is a folder with the ledger of `doap data from-images`; only photos of the split `val` are used. Each photo
becomes a sequence of six images. A sequence has one of Oxford's changes (viewpoint, zoom and rotation, blur,
illumination, JPEG) in five strengths. Every image has independent noise.
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
    parser.add_argument("photos", type=Path, help="folder with LEDGER.csv and the photos")
    parser.add_argument("sequences", type=Path, help="output folder")
    parser.add_argument("--each", type=int, default=3, help="number of sequences per kind of change")
    options = parser.parse_args()
    with (options.photos / "LEDGER.csv").open() as ledger:
        photos = [options.photos / row["file"] for row in csv.DictReader(ledger) if row["split"] == "val"]
    random = np.random.default_rng(0)
    selected = random.permutation(len(photos))[: options.each * len(KINDS)]
    for number, photo in enumerate(selected):
        kind = KINDS[number % len(KINDS)]
        folder = options.sequences / f"{kind}{number // len(KINDS) + 1}"
        write_sequence(cv2.imread(str(photos[photo]), cv2.IMREAD_GRAYSCALE), kind, folder, random)


def write_sequence(image: Image, kind: str, folder: Path, random: np.random.Generator) -> None:
    """Write a sequence of one kind of change."""
    folder.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(folder / "img1.png"), add_noise(image, random))
    for strength in range(1, STRENGTHS + 1):
        changed, homography = apply_change(image, kind, strength / STRENGTHS, random)
        cv2.imwrite(str(folder / f"img{strength + 1}.png"), add_noise(changed, random))
        np.savetxt(folder / f"H1to{strength + 1}p", homography)


def apply_change(
    image: Image, kind: str, strength: float, random: np.random.Generator
) -> tuple[Image, NDArray[np.float64]]:
    """Return the image after a change of one kind (0 < strength ≤ 1), and the homography to it."""
    height, width = image.shape
    if kind == "viewpoint":
        homography = tilt_homography(image.shape, np.radians(60 * strength), random.uniform(0, 2 * np.pi))
        return warp(image, homography), homography
    if kind == "zoom":
        angle = random.uniform(-180, 180)
        homography = np.vstack(
            [cv2.getRotationMatrix2D((width / 2, height / 2), angle, 2 ** (-1.5 * strength)), [0, 0, 1]]
        )
        return warp(image, homography), homography
    if kind == "blur":
        return np.asarray(cv2.GaussianBlur(image, (0, 0), 4 * strength), np.uint8), np.eye(3)
    if kind == "light":
        return np.rint(image * (1 - 0.75 * strength)).astype(np.uint8), np.eye(3)
    _, encoded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, round(2 + 40 * (1 - strength) ** 2)])
    return np.asarray(cv2.imdecode(encoded, cv2.IMREAD_GRAYSCALE), np.uint8), np.eye(3)


def tilt_homography(shape: tuple[int, ...], tilt: float, axis: float) -> NDArray[np.float64]:
    """Return the homography of a planar photo that is tilted about an axis through its centre."""
    height, width = shape
    distance = 2 * float(np.hypot(height, width))
    cos, sin = np.cos(axis), np.sin(axis)
    rotation = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
    tilting = np.array([[np.cos(tilt), 0, 0], [0, 1, 0], [np.sin(tilt) / distance, 0, 1]])
    centring = np.array([[1, 0, width / 2], [0, 1, height / 2], [0, 0, 1]])
    return np.asarray(centring @ rotation @ tilting @ rotation.T @ np.linalg.inv(centring))


def add_noise(image: Image, random: np.random.Generator) -> Image:
    """Return the image with Gaussian noise (σ = 2 grey levels)."""
    noisy = image + random.normal(0, 2, image.shape)
    return np.clip(np.rint(noisy), 0, 255).astype(np.uint8)


if __name__ == "__main__":
    main()
