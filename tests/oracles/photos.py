"""Synthetic photos: textures with blobs of many sizes."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np


def write_photo(path: Path, seed: int, height: int = 240, width: int = 320) -> Path:
    """Write a photo that depends only on the seed."""
    random = np.random.default_rng(seed)
    image = np.zeros((height, width), np.float32)
    for sigma in (1.5, 3.0, 6.0, 12.0):
        noise = cv2.GaussianBlur(random.normal(size=(height, width)).astype(np.float32), (0, 0), sigma)
        image += noise / noise.std()
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), np.clip(127 + 30 * image, 0, 255).astype(np.uint8))
    return path
