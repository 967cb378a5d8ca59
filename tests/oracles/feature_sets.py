"""Feature sets: of random numbers, and of photos of a few scenes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import cv2
import numpy as np
import torch

from doap.collection.extractor import ExtractorInfo, open_extractor
from doap.collection.features import FeatureSet, PartWriter, StoredImage, make_table
from doap.describer import Describer
from doap.images import frames_from_arrays, read_grey
from doap.types import Features
from oracles.photos import write_photo


def random_features(seed: int, count: int, *, dim: int = 32, binary: bool = False) -> Features:
    random = np.random.default_rng(seed)
    xy, responses = random.uniform(0, 300, (count, 2)), random.random(count).astype(np.float32)
    if binary:
        descriptors = torch.from_numpy(random.integers(0, 256, (count, dim // 8), np.uint8))
    else:
        descriptors = torch.nn.functional.normalize(torch.from_numpy(random.normal(size=(count, dim))).float())
    return Features(frames_from_arrays(xy, random.uniform(2, 9, count)), responses, descriptors, (300, 300))


def write_features(
    folder: Path, images: Mapping[str, Features], *, extractor: ExtractorInfo | None = None, changed: str = ""
) -> FeatureSet:
    """Write a set of these images in this order; `changed` alters the checksums of their files."""
    if extractor is None:
        one = next(iter(images.values())).descriptors
        binary = one.dtype == torch.uint8
        kind, dim = ("binary", 8 * one.shape[1]) if binary else ("real", one.shape[1])
        extractor = ExtractorInfo("random", "sift", "sift", 6.0, 2048, kind, dim, "bits" if binary else "float16")
    with PartWriter(folder, extractor) as writer:
        stored = [StoredImage(name, f"{name}{changed}", features) for name, features in images.items()]
        writer.add(make_table(stored, extractor))
    return FeatureSet(folder)


def write_views(folder: Path, scenes: int = 3, views: int = 4) -> list[str]:
    """Write photos `SCENE/VIEW.png` of scenes from several viewpoints; return their names."""
    names = []
    for scene in range(scenes):
        image = read_grey(write_photo(folder / f"{scene}/0.png", seed=scene))
        for view in range(views):
            turn = cv2.getRotationMatrix2D((160, 120), 12 * view, 1 - 0.05 * view)
            names.append(f"{scene}/{view}.png")
            cv2.imwrite(str(folder / names[-1]), cv2.warpAffine(image, turn, (320, 240)))
    return names


def write_photo_features(folder: Path, photos: Path, names: list[str], name: str, describer: Describer) -> FeatureSet:
    """Write what `doap extract` would write for these photos, in this order, with 150 keypoints each."""
    extractor = open_extractor(describer, max_keypoints=150)
    images = {name: extractor.extract(photos / name) for name in names}
    return write_features(folder, images, extractor=dataclasses.replace(extractor.info, descriptor=name))
