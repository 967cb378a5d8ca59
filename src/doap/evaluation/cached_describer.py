"""A describer with a disk cache and a timer, used by all benchmarks."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.checks import check_shape
from doap.describer import Describer, ImageDescriber, fingerprint, sample_descriptors
from doap.files import atomic_write
from doap.images import Pyramid
from doap.pipeline import cut_patches, describe_patches


class CachedDescriber:
    """Describe patches, or frames of an image, and cache the descriptors on disk.

    The cache is a folder of `KEY.npy` files. The key is a checksum of the pixels, of the describer's fingerprint and of
    the descriptors of a fixed input, so other pixels, weights, devices or precisions do not share an entry.

    Args:
        describer: Describer to use.
        cache: Cache folder, created on first use; None to disable the cache.

    Attributes:
        seconds: Time spent describing so far, without cache hits.
        fingerprint: Fingerprint of the describer.
    """

    def __init__(self, describer: Describer, cache: Path | None = None) -> None:
        self.describer, self.cache, self.seconds = describer, cache, 0.0
        self.fingerprint = fingerprint(describer)
        self._key = hashlib.sha256(self.fingerprint.encode())
        if cache:
            self._key.update(sample_descriptors(describer).cpu().contiguous().numpy().data)

    def describe_patches(self, patches: NDArray[np.uint8]) -> Tensor:
        """Describe patches (N, S, S) of any size as (N, D) float32 or (N, D/8) uint8, on the CPU."""
        check_shape(patches, "N S S", name="patches")
        return self._cached(lambda: describe_patches(self.describer, patches), patches)

    def describe_frames(self, image: NDArray[np.uint8] | Pyramid, frames: NDArray[np.float32]) -> Tensor:
        """Describe frames (N, 2, 3) of a grey image, with the output of `describe_patches`."""
        describer = self.describer
        if not isinstance(describer, ImageDescriber):
            return self.describe_patches(cut_patches(image, frames, describer))
        pixels = image.levels[0] if isinstance(image, Pyramid) else image
        return self._cached(lambda: describer.describe_frames(image, frames), pixels, frames)

    def _cached(self, describe: Callable[[], Tensor], *inputs: NDArray[Any]) -> Tensor:
        """Return the cached descriptors of these inputs, or call `describe` and cache its output."""
        file = self._file(inputs)
        if file and file.exists():
            with file.open("rb") as stream:
                return torch.from_numpy(np.load(stream))
        begin = time.perf_counter()
        described = describe().cpu()
        self.seconds += time.perf_counter() - begin
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(file) as unfinished, unfinished.open("wb") as stream:
                np.save(stream, described.numpy())
        return described

    def _file(self, inputs: Sequence[NDArray[Any]]) -> Path | None:
        if self.cache is None:
            return None
        digest = self._key.copy()
        for array in inputs:
            digest.update(f" {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).data)
        return self.cache / f"{digest.hexdigest()}.npy"
