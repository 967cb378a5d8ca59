"""Features of many images, one file for each: what was looked at once is not looked at again."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from doap.describer import Describer
from doap.detectors import Detector
from doap.errors import DataError
from doap.files import atomic_write
from doap.images import read_grey
from doap.pipeline import extract, extract_sample
from doap.types import Features

IN_MEMORY = 32
"""Images whose features are kept in memory: about 5 MB each, with 8,192 keypoints and 128 numbers."""


class FeatureFiles:
    """Features of the images of a folder, in the pixels as they are stored: EXIF orientation is left alone.

    A file is written to a temporary name and renamed, and holds a key: the checksum of the image's bytes and of what
    detector and descriptor make of a fixed picture. So it is made anew when the image, the detector, its settings or
    the weights have changed, when it is damaged, and only then.

    Args:
        folder: where the files are; `NAME.npz` for the image NAME, in the same folders.
        images: where the images are.
        descriptor, detector, max_keypoints: as for `doap.extract`.
    """

    def __init__(
        self,
        folder: Path,
        images: Path,
        descriptor: Describer,
        detector: Detector | None = None,
        max_keypoints: int = 8192,
    ) -> None:
        self._folder, self._images = folder, images
        self._arguments: dict[str, Any] = {
            "descriptor": descriptor,
            "detector": detector,
            "max_keypoints": max_keypoints,
        }
        seen = extract_sample(descriptor, detector)
        self._maker = f"{max_keypoints}".encode() + seen.frames.tobytes() + seen.descriptors.cpu().numpy().tobytes()
        self.read = lru_cache(IN_MEMORY)(self._read)

    def make(self, name: str) -> str:
        """Look at an image, unless its file is there; return the key. `DataError` for an image that cannot be read."""
        path = self._images / name
        try:
            content = path.read_bytes()
        except OSError as error:
            raise DataError(f"{path}: expected an image file, got {error.strerror}; check the path") from error
        digest = hashlib.sha256(self._maker)
        digest.update(content)
        key = digest.hexdigest()
        if self._is_made(name, key):
            return key
        features = extract(read_grey(path), **self._arguments)
        file = self._file(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as unfinished, unfinished.open("wb") as stream:
            np.savez(
                stream,
                key=key,
                frames=features.frames,
                responses=features.responses,
                descriptors=features.descriptors.cpu().numpy(),
                image_size=features.image_size,
            )
        return key

    def _read(self, name: str) -> Features:
        with self._file(name).open("rb") as stream, np.load(stream) as stored:
            height, width = stored["image_size"].tolist()
            descriptors = torch.from_numpy(stored["descriptors"])
            return Features(stored["frames"], stored["responses"], descriptors, (height, width))

    def _is_made(self, name: str, key: str) -> bool:
        try:
            # numpy leaves a file that it opened itself open when it is damaged.
            with self._file(name).open("rb") as stream, np.load(stream) as stored:
                if str(stored["key"]) != key:
                    return False
            self._read(name)
        except Exception:
            # Not there, or damaged: zipfile and numpy have many words for that, and all mean "make it again".
            return False
        return True

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.npz"
